"""Result files: the folder of ``--out`` and the table of ``--decisions``."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import polars as pl

from ...sim.inspect.census import Census
from ...sim.mix.result import CAUTIONS
from ...sim.provenance import provenance
from ...sim.replay.loop import OnDecision
from ...sim.result import RECORD_VERSION, ReplayResult
from ...strategies.base import Decision
from ...traces.batch import RolloutBatch
from ...traces.errors import DfsimError
from ...traces.storage.files import check_regular, replacing_file
from ...traces.storage.store import Trace
from ..figures import trace_footer, write_figures
from ..mix.figures import write_mix_figures
from ..pages import REPLAY_JSON
from ..replay.sensitivity import write_sensitivity
from .result import writing_result


def replay_record(
    result: ReplayResult, text: Mapping[str, object] | None = None
) -> dict[str, object]:
    """The JSON of a replay, with captured text where there is any."""
    record = result.to_dict()
    record |= {"version": RECORD_VERSION, "provenance": provenance()}
    if result.mixers:
        record["notes"] = [*result.notes, *CAUTIONS]
    if text is not None:
        record["text"] = text
    return record


def write_replay(
    result: ReplayResult,
    folder: Path,
    force: bool,
    text: Mapping[str, object] | None = None,
) -> None:
    """Write ``replay.json``, tables by run, step and mix, figures, and the page.

    Args:
        result: a replay.
        folder: replaced only after success, and only with ``force``.
        force: replace an earlier result.
        text: what :class:`dfsim.sim.replay.samples.TextSamples` kept.

    Raises:
        DfsimError: the folder exists, or is not dfsim's.
    """
    with writing_result(REPLAY_JSON, replay_record(result, text), folder, force) as scratch:
        steps = result.steps()
        steps.write_parquet(scratch / "steps.parquet", compression="zstd")
        steps.write_csv(scratch / "steps.csv")
        result.table().write_csv(scratch / "estimates.csv")
        write_figures(result, scratch)
        write_sensitivity(result, scratch, trace_footer(result))
        if result.mixers:
            mixing = pl.concat([m.steps() for m in result.mixers.values()])
            mixing.write_parquet(scratch / "mixing.parquet", compression="zstd")
            mixing.write_csv(scratch / "mixing.csv")
            for index, mixer in enumerate(result.mixers.values()):
                write_mix_figures(mixer, scratch, f"mix_{index + 1}", trace_footer(result))


@contextmanager
def writing_decisions(target: Path, strategy: str) -> Iterator[OnDecision]:
    """Collect one strategy's weights into a Parquet file that appears only when complete.

    Columns: ``step, group_uid, rollout_idx, weight`` and, for a token strategy, ``token_weights``;
    ``advantage`` where the strategy replaces advantages. Weights are float32, as delivered live.

    Args:
        target: the file.
        strategy: whose decisions to write.

    Raises:
        DfsimError: the target is a device or pipe, or lies in no folder.
    """
    with (
        replacing_file(target) as scratch,
        tempfile.TemporaryDirectory(prefix=f".{target.name}-", dir=target.parent) as parts,
    ):
        written: list[Path] = []

        def on_decision(batch: RolloutBatch, decisions: Mapping[str, Decision]) -> None:
            path = Path(parts) / f"{len(written):06d}.parquet"
            _frame(batch, decisions[strategy]).write_parquet(path)
            written.append(path)

        yield on_decision
        pl.scan_parquet(written, glob=False).sink_parquet(scratch, compression="zstd")


def _frame(batch: RolloutBatch, decision: Decision) -> pl.DataFrame:
    columns = {
        "step": np.full(batch.num_responses, batch.step),
        "group_uid": pl.Series(batch.uid_G[batch.group_N].tolist(), dtype=pl.String),
        "rollout_idx": batch.rollout_idx_N,
        "weight": decision.weight_N.astype(np.float32),
    }
    frame = pl.DataFrame(columns)
    if decision.advantage_N is not None:
        frame = frame.with_columns(pl.Series("advantage", decision.advantage_N.astype(np.float32)))
    if decision.token_weight_T is not None and batch.token_offsets is not None:
        weights = decision.token_weight_T.astype(np.float32)
        rows = pl.Series(np.repeat(np.arange(batch.num_responses), np.diff(batch.token_offsets)))
        lists = (
            pl.DataFrame({"row": rows, "token_weights": weights})
            .group_by("row", maintain_order=True)
            .agg("token_weights")
        )
        index = pl.DataFrame({"row": np.arange(batch.num_responses)})
        joined = index.join(lists, on="row", how="left", maintain_order="left")["token_weights"]
        frame = frame.with_columns(joined.fill_null(pl.Series([[]], dtype=pl.List(pl.Float32))))
    return frame


def check_prompts(trace: Trace, target: Path) -> None:
    """Refuse a prompt table that can't be written, before the trace is read.

    Raises:
        DfsimError: another ending than ``write_prompts`` knows, a device or pipe, or the trace has
            no prompt ids.
    """
    check_regular(target)
    if target.suffix not in (".csv", ".parquet"):
        raise DfsimError(f"--prompts {target} must end in .csv or .parquet")
    if "prompt_id" not in trace.columns:
        raise DfsimError(
            "--prompts needs prompt ids, which the trace lacks: import with --map prompt_id=COLUMN"
        )


def write_prompts(found: Census, target: Path) -> None:
    """Write one row a prompt, as CSV or Parquet by the file's ending."""
    with replacing_file(target) as scratch:
        table = found.prompt_table()
        if target.suffix == ".csv":
            table.write_csv(scratch)
        else:
            table.write_parquet(scratch)
