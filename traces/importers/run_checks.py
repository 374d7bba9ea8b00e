"""What only the whole of a source shows: groups, advantages, lengths, and whether it trained."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, get_args

import numpy as np
import polars as pl

from ..advantage import AdvantageConfig, Estimator
from ..checks.advantages import AdvantageCheck, check_groups, contradictions, count_draws, sentences
from ..checks.group_sizes import GroupSizes
from ..errors import TraceError
from ..findings import Finding
from ..ragged import offsets_of
from ..schema import COLUMNS
from .base import ImportOptions, ImportSummary
from .conventions import is_evaluation

FILE = "__file"
"""Column of a spooled row: index of the file that it came from."""
SPIKE_SHARE = 0.01
"""Share of responses with exactly the greatest length from which it looks like a limit."""
SPIKE_RATIO = 3
"""How many times as many as have any other length."""
MIN_LENGTHS = 10
"""Distinct lengths that it takes to see a spike among them."""
MAX_OTHERS = 20
"""Numeric columns that are tried in the reward's place."""


class RunChecks:
    """Watches a source's steps on their way into a trace, and mends what is certain.

    Args:
        options: how the source is read.
        config: the run's settings, those that the user gave among them.
        summary: gets sentences and findings.
        files: the source's files, by the index that rows carry.
    """

    def __init__(
        self,
        options: ImportOptions,
        config: Mapping[str, Any],
        summary: ImportSummary,
        files: Sequence[Path],
    ) -> None:
        self._options, self._config, self._summary = options, config, summary
        self._files = files
        self._drop_lengths = self._drop_evaluation = False
        self._all_evaluation = False
        n = config.get("n")
        self._sizes = GroupSizes(int(n) if n else None)
        self._numbered = True
        self._gaps, self._groups = 0, 0
        self._lengths: Counter[int] = Counter()
        self._ended = False
        self._prompts: set[frozenset[Any]] = set()
        self._steps = 0
        self._advantages: AdvantageCheck | None = None
        self._draws = 0
        self._evaluated = 0

    def survey(self, paths: Iterable[Path]) -> None:
        """Look once at all spooled rows, for what no single step can tell."""
        longest, lengths, splits, trained = 0, False, False, False
        for path in paths:
            have = pl.scan_parquet(path, glob=False).collect_schema()
            names = [n for n in ("num_tokens", "split") if n in have]
            if not names:
                trained = True
                continue
            frame = pl.read_parquet(path, columns=names, glob=False)
            if "num_tokens" in names:
                longest = max(longest, frame.select(pl.col("num_tokens").max()).item() or 0)
                lengths = True
            if "split" in names:
                held = frame.select(is_evaluation(pl.col("split")).alias("e"))["e"]
                splits, trained = splits or bool(held.any()), trained or not held.all()
            else:
                trained = True
        if lengths and longest == 0:
            self._drop_lengths = True
            self._summary.lengths = None
            self._summary.note("All lengths are 0, so they count as unknown.")
        self._drop_evaluation = splits and trained
        self._all_evaluation = splits and not trained

    def step(self, frame: pl.DataFrame) -> pl.DataFrame:
        """Check one step's responses (a row each), and split what is certainly two groups."""
        if self._drop_evaluation and "split" in frame.columns:
            held = frame.select(is_evaluation(pl.col("split")).alias("e"))["e"]
            self._evaluated += int(held.sum())
            frame = frame.filter(~held)
        if self._drop_lengths:
            frame = frame.drop("num_tokens", strict=False)
        if frame.height == 0:
            return frame
        frame = self._by_file(frame)
        frame = self._split_draws(frame)
        self._count(frame)
        return frame

    def _by_file(self, frame: pl.DataFrame) -> pl.DataFrame:
        """Groups whose rows lie in several files: one group, or one of each file."""
        files = frame.group_by("group_uid", maintain_order=True).agg(
            pl.col(FILE).n_unique().alias("files"), pl.len().alias("rows")
        )
        shared = files.filter(pl.col("files") > 1)
        if shared.height == 0:
            return frame.drop(FILE)
        inside = frame.filter(pl.col("group_uid").is_in(shared["group_uid"].implode()))
        if self._is_local(frame, shared, inside):
            names = pl.col(FILE).replace_strict(
                {i: f"{p.stem}:" for i, p in enumerate(self._files)}, return_dtype=pl.String
            )
            frame = frame.with_columns(group_uid=names + pl.col("group_uid"))
        return frame.drop(FILE)

    def _is_local(self, frame: pl.DataFrame, shared: pl.DataFrame, inside: pl.DataFrame) -> bool:
        """Whether each file numbers its own groups.

        Raises:
            TraceError: the rows can't tell, and the user has not said.
        """
        if self._options.group_ids is not None:
            return self._options.group_ids == "file"
        step = frame["step"][0]
        note = self._summary.note
        if "rollout_idx" in frame.columns and not (
            inside.select("group_uid", "rollout_idx").is_duplicated().any()
        ):
            return False  # one numbering over the files
        if "prompt_id" in inside.columns and inside["prompt_id"].null_count() == 0:
            per_group = inside.group_by("group_uid").agg(pl.col("prompt_id").n_unique().alias("p"))
            if (per_group["p"] > 1).any():
                note("Each file numbers its own groups: one id has another prompt in each file.")
                return True
        if self._sizes.n is not None:
            parts = inside.group_by("group_uid", FILE).len()["len"]
            if (shared["rows"] <= self._sizes.n).all():
                return False
            if (parts <= self._sizes.n).all():
                note("Each file numbers its own groups: together an id has more than n rows.")
                return True
        if shared.height < frame[FILE].n_unique():  # files cut a run of rows, in a group's middle
            return False
        uid, count = shared["group_uid"][0], shared["files"][0]
        names = ", ".join(
            self._files[i].name for i in sorted(inside.filter(group_uid=uid)[FILE].unique())[:3]
        )
        raise TraceError(
            f"step {step}: {shared.height} group ids occur in several files, such as '{uid}' in "
            f"{count} ({names}). If each file, a rank's for instance, numbers its own groups, add "
            "--group-ids file; if a group's rows lie in several files, add --group-ids run; if a "
            "resumed run wrote the step again, leave one of the files out"
        )

    def _split_draws(self, frame: pl.DataFrame) -> pl.DataFrame:
        """Split groups that are several draws of one prompt, where their advantages say so."""
        if not self._holds_advantages(frame):
            return frame
        order = ["group_uid", *(["rollout_idx"] if "rollout_idx" in frame.columns else [])]
        frame = frame.sort(order, maintain_order=True)
        reward, advantage, cuts = _arrays(frame)
        broken = np.flatnonzero(check_groups(reward, advantage, cuts).broken_G)
        suffix = np.zeros(len(reward), dtype=np.int64)
        for group in broken:
            rows = slice(cuts[group], cuts[group + 1])
            draws = count_draws(reward[rows], advantage[rows])
            if draws > 1:
                count = rows.stop - rows.start
                suffix[rows] = np.arange(count) // (count // draws) + 1
                self._draws += draws
        if suffix.any():
            self._sizes.add_unsplit(int(frame["step"][0]), np.diff(cuts).tolist())
            number = pl.Series("number", suffix)
            tail = pl.when(number > 0).then(pl.format("#{}", number)).otherwise(pl.lit(""))
            frame = frame.with_columns(group_uid=pl.col("group_uid") + tail)
        return frame

    def _holds_advantages(self, frame: pl.DataFrame) -> bool:
        known = self._config.get("adv_estimator", "grpo") in get_args(Estimator)
        one = "advantage" in frame.columns and "advantages" not in frame.columns
        return one and known and not self._summary.derived

    def _count(self, frame: pl.DataFrame) -> None:
        self._steps += 1
        groups = frame.group_by("group_uid", maintain_order=True)
        sizes = groups.len()["len"].to_list()
        prompts: list[Any] | None = None
        if "prompt_id" in frame.columns and frame["prompt_id"].null_count() == 0:
            prompts = groups.agg(pl.col("prompt_id").first())["prompt_id"].to_list()
            self._prompts.add(frozenset(prompts))
        self._sizes.add(int(frame["step"][0]), sizes, prompts)
        self._count_indices(frame)
        if "num_tokens" in frame.columns:
            values = frame["num_tokens"].value_counts()
            self._lengths.update(dict(values.iter_rows()))
        self._ended |= "truncated" in frame.columns
        if self._holds_advantages(frame):
            self._check_advantages(frame)

    def _count_indices(self, frame: pl.DataFrame) -> None:
        """Whether a group's responses are numbered 0 … n − 1, and whether numbers are missing."""
        if "rollout_idx" not in frame.columns:
            self._numbered = False
            return
        index = pl.col("rollout_idx")
        per_group = frame.group_by("group_uid").agg(
            (index.max() - index.min() + 1).alias("span"), index.min().alias("first"), pl.len()
        )
        self._groups += per_group.height
        self._numbered &= bool(
            ((per_group["span"] == per_group["len"]) & per_group["first"].is_in([0, 1])).all()
        )
        local = frame["rollout_idx"].n_unique() < frame.height or per_group.height == 1
        self._gaps += int((per_group["span"] > per_group["len"]).sum()) if local else 0

    def _check_advantages(self, frame: pl.DataFrame) -> None:
        if self._advantages is None:
            self._advantages = AdvantageCheck(self._preferred())
        reward, advantage, cuts = _arrays(frame)
        others = {
            name: frame[name].cast(pl.Float64).fill_null(np.nan).to_numpy()
            for name in [c for c in frame.columns if c not in COLUMNS or c == "task_reward"][
                :MAX_OTHERS
            ]
        }
        self._advantages.add(reward, advantage, cuts, others)

    def _preferred(self) -> AdvantageConfig:
        name = self._config.get("adv_estimator", "grpo")
        if self._config.get("norm_adv_by_std_in_grpo") is False and name == "grpo":
            name = "dr_grpo"
        return AdvantageConfig(name, float(self._config.get("adv_eps", 1e-6)))

    def finish(self) -> dict[str, Any]:
        """Say what stands out; returns settings that the rows themselves tell."""
        note, summary = self._summary.note, self._summary
        if self._evaluated:
            note(f"{self._evaluated:,} rows of an evaluation were left out (split).")
        if self._draws:
            note(
                "Several draws of one prompt were told apart by their advantages: they became "
                f"{self._draws} groups of their own (uid#1, uid#2, …)."
            )
        told = {**self._estimator(), **self._limit()}
        report = None if self._advantages is None else self._advantages.report()
        self._sizes.whole = self._numbered or (report is not None and report.belongs)
        summary.findings += self._sizes.findings()
        if self._groups and self._gaps > 0.5 * self._groups:
            summary.findings.append(
                Finding(
                    "rows_missing",
                    f"In {self._gaps:,} of {self._groups:,} groups rollout_idx has gaps: rows are "
                    "missing. If they were chosen by outcome, such as the best and the worst, "
                    "this is no sample of what the policy does, and no number below describes it.",
                    {"groups": self._gaps, "of": self._groups},
                )
            )
        return told

    def _estimator(self) -> dict[str, Any]:
        """The estimator that the stored advantages follow, and what contradicts it."""
        if self._advantages is None:
            return {}
        report, named = self._advantages.report(), self._config.get("adv_estimator")
        self._summary.findings += contradictions(report, named)
        found = report.config
        if report.belongs:
            self._summary.note(list(sentences(report))[-1])
        if found is None or named not in (None, found.adv_estimator):
            return {}
        told: dict[str, Any] = {"adv_estimator": found.adv_estimator}
        if found.adv_estimator in ("grpo", "grpo_batch"):
            told |= {"adv_eps": found.eps, "adv_std_ddof": found.ddof}
        return told

    def _limit(self) -> dict[str, Any]:
        """The length limit that a spike at the greatest length shows."""
        known = self._ended or "max_response_length" in self._config
        if known or self._summary.lengths != "tokens" or len(self._lengths) < MIN_LENGTHS:
            return {}
        longest = max(self._lengths)
        at, total = self._lengths[longest], sum(self._lengths.values())
        other = max(count for length, count in self._lengths.items() if length != longest)
        if at < SPIKE_SHARE * total or at < SPIKE_RATIO * other:
            return {}
        self._summary.note(
            f"{at:,} responses have exactly {longest:,} tokens, where no other length is as "
            "frequent: they count as cut off there; --set max_response_length=N says otherwise."
        )
        return {"max_response_length": longest}

    def evaluation(self) -> str:
        """Why the rows are an evaluation that never trained, or an empty string."""
        if self._options.purpose != "auto":
            return "as --purpose says" if self._options.purpose == "evaluation" else ""
        if self._all_evaluation:
            return "its split is that of an evaluation"
        same = len(self._prompts) == 1 and (self._steps > 1 or not self._prompts)
        if self._summary.reward_is_score and (same or self._steps == 1):
            return (
                "it has verl's 'reward' beside an equal 'score', and the same prompts at every "
                "step, as a validation_data_dir does"
            )
        return ""


def _arrays(frame: pl.DataFrame) -> tuple[Any, Any, Any]:
    """Rewards, advantages and cuts of rows that are sorted by group."""
    sizes = frame["group_uid"].rle().struct.field("len").to_numpy()
    reward = frame["reward"].cast(pl.Float64).to_numpy()
    return reward, frame["advantage"].cast(pl.Float64).to_numpy(), offsets_of(sizes)
