"""The pages of the documentation, and what stands in their code blocks."""

from __future__ import annotations

import dataclasses
import re
import shlex
from pathlib import Path

from conftest import ROOT, SHARED

DOCS = ROOT / "docs"
PAGES = {path.name: path.read_text(encoding="utf-8") for path in sorted(DOCS.glob("*.md"))}
README = "README.md"
TEXTS = {**PAGES, README: (ROOT / README).read_text(encoding="utf-8")}
FENCE = re.compile(r"^```([^\n]*)\n(.*?)^```$", re.M | re.S)
SPAN = re.compile(r"`([^`\n]+)`")


def outside_fences(text: str) -> str:
    return FENCE.sub("", text)


def blocks(page: str) -> list[tuple[str, str]]:
    """Info string and content of a page's code blocks."""
    return [(info.strip(), text) for info, text in FENCE.findall(TEXTS[page])]


def written_files(page: str) -> dict[str, str]:
    """Files that a page shows: their name follows the language."""
    return {info.split()[1]: text for info, text in blocks(page) if len(info.split()) == 2}


def commands_in(text: str) -> list[str]:
    """Commands of dfsim in a code block, continued lines joined."""
    lines = re.sub(r" *\\\n *", " ", text).splitlines()
    return [line.removeprefix("$ ") for line in lines if re.match(r"(\$ )?dfsim ", line)]


@dataclasses.dataclass(frozen=True)
class Shown:
    """A command that a page shows with its output."""

    page: str
    command: str
    output: tuple[str, ...]


def shown_in(page: str) -> list[Shown]:
    found = []
    for _, text in blocks(page):
        for part in re.split(r"^\$ ", re.sub(r" *\\\n *", " ", text), flags=re.M)[1:]:
            command, *output = part.splitlines()
            found.append(Shown(page, command, tuple(output)))
    return found


def words_of(command: str) -> list[str]:
    return shlex.split(re.sub(r" …$", "", command))[1:]


def stage(page: str, folder: Path) -> None:
    """What a page's commands find: the bundled trace, and the files that the page shows."""
    (folder / "traces").symlink_to(ROOT / "traces")
    runs = SHARED / "dataflex_rl_all_runs_171.csv"
    for name, source in (
        ("all_runs_171.csv", runs),
        ("runs.csv", runs),
        ("completions", SHARED / "trl_run"),
    ):
        if source.exists():
            (folder / name).symlink_to(source)
    written = written_files("own_strategy.md" if page == README else page)
    for name, text in written.items():
        (folder / name).write_text(text, encoding="utf-8")
