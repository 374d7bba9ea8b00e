"""What ``dfsim promote`` writes beside ``promotion.json``: launch scripts and a table of runs."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

from ...strategies.spec import Spec
from .compat import TRAINER_MODE

RUNS = "runs.csv"

_HEAD = r"""#!/usr/bin/env bash
set -euo pipefail
here="$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)"
hydra() { local q="'"; printf "%s" "$q${1//$q/\\$q}$q"; } # a path in Hydra's quotes
if [ $# -eq 0 ]; then
  echo "usage: $0 python3 -m verl.trainer.main_ppo YOUR OVERRIDES" >&2
  exit 2
fi
"""

_LAUNCH = r"""# Adds the promoted strategy to your verl command. CAPTURE: folder of the live trace.
# Afterwards: dfsim verify "$CAPTURE" --promotion promotion.json
exec "$@" \
  trainer.v1.trainer_mode={mode} \
  "+dfsim.promotion=$(hydra "$here/promotion.json")" \
  "+dfsim.capture.dir=$(hydra "${{CAPTURE:-$here/live}}")"
"""

_PAIRED = r"""# {method}, seed {seed}: the same seed as its pair, so that differences are paired.
# LOGGER: verl's loggers, such as [console,file,wandb]; runs.csv is filled from file.
export VERL_FILE_LOGGER_PATH="$here/{run}.jsonl"
"$@" \
  trainer.v1.trainer_mode={mode} \
{deliver}  "+dfsim.capture.dir=$(hydra "$here/{run}")" \
  data.seed={seed} \
  actor_rollout_ref.actor.data_loader_seed={seed} \
  actor_rollout_ref.rollout.seed={seed} \
  trainer.experiment_name={run} \
  "trainer.logger=${{LOGGER:-[console,file]}}"
"${{PYTHON:-python3}}" -m dfsim.live.verl.runs "$here/../{runs}" {method} {seed} \
  "$VERL_FILE_LOGGER_PATH"
"""

_DELIVER = r"""  "+dfsim.promotion=$(hydra "$here/../promotion.json")" \
"""


def write_scripts(folder: Path, strategy: str, seeds: int) -> list[Path]:
    """Write ``launch.sh`` and, for seeds, a pair of scripts each and an empty ``runs.csv``.

    Args:
        folder: where ``promotion.json`` lies.
        strategy: the promoted strategy's name.
        seeds: how many pairs.

    Returns:
        The files written.
    """
    written = [_script(folder / "launch.sh", _LAUNCH.format(mode=TRAINER_MODE))]
    if seeds:
        (folder / "seeds").mkdir()
        runs = folder / RUNS
        runs.write_text("method,seed\n")
        written.append(runs)
    for seed in range(1, seeds + 1):
        for method, deliver in (("baseline", ""), (_plain(strategy), _DELIVER)):
            run = f"{method}_{seed}"
            text = _PAIRED.format(
                mode=TRAINER_MODE, method=method, seed=seed, run=run, deliver=deliver, runs=RUNS
            )
            written.append(_script(folder / "seeds" / f"{run}.sh", text))
    return written


def _plain(strategy: str) -> str:
    """A strategy's name as a file and shell word, without the files of a user's own."""
    parts = [replace(part, file="") for part in Spec.parse(strategy)]
    return re.sub(r"[^\w.-]+", "-", "+".join(map(str, parts))).strip("-")


def _script(path: Path, text: str) -> Path:
    path.write_text(_HEAD + text)
    path.chmod(0o755)
    return path
