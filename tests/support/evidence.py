"""``python tests/support/evidence.py JOURNAL``: run tests marked evidence, print what they find.

Each result is a line of the journal under the commit it is for. What passed there before, with
nothing changed since, is not run again.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def printed_by(*command: str) -> tuple[int, str]:
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    return done.returncode, done.stdout


def state() -> str:
    """The commit, or an empty string where the tree differs from it."""
    _, changed = printed_by("git", "status", "--porcelain")
    return "" if changed else printed_by("git", "rev-parse", "HEAD")[1].strip()


def tests() -> list[str]:
    pytest = (sys.executable, "-m", "pytest", "-q", "--collect-only", "-m", "evidence", "tests")
    return [line for line in printed_by(*pytest)[1].splitlines() if "::" in line]


def read(journal: Path) -> list[dict]:
    lines = journal.read_text().splitlines() if journal.exists() else []
    return [json.loads(line) for line in lines]


def measure(test: str, commit: str) -> dict:
    began = time.monotonic()
    code, text = printed_by(
        sys.executable, "-m", "pytest", "-q", "-rP", "-p", "no:cacheprovider", test
    )
    _, _, after = text.partition("Captured stdout call")
    findings = [] if code else after.splitlines()[1:]
    findings = [line for line in findings if line.strip() and not line.startswith("=")][:-1]
    return {
        "commit": commit,
        "test": test,
        "passed": code == 0,
        "seconds": round(time.monotonic() - began),
        "findings": findings if code == 0 else text.splitlines()[-30:],
    }


def main() -> int:
    journal = Path(sys.argv[1])
    journal.parent.mkdir(parents=True, exist_ok=True)
    commit = state()
    known = {
        r["test"]: r for r in read(journal) if commit and r["commit"] == commit and r["passed"]
    }
    failed = 0
    for test in tests():
        record = known.get(test) or measure(test, commit)
        if test not in known:
            with journal.open("a") as file:
                file.write(json.dumps(record) + "\n")
        failed += not record["passed"]
        word = "passed" if record["passed"] else "FAILED"
        print(f"{word} in {record['seconds']} s  {test}")
        for line in record["findings"]:
            print(f"    {line}")
    return int(failed > 0)


if __name__ == "__main__":
    sys.exit(main())
