"""One live run of dfsim inside verl's trainer: decide, deliver, prove, log, capture."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping, MutableMapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from ..sim.aggregation import check_mode
from ..sim.estimators import estimate_step
from ..strategies.base import Decision, Scores
from ..strategies.catalog import build
from ..traces.batch import RolloutBatch
from ..traces.errors import TraceError
from ..traces.schema import TOKEN_COLUMNS
from .adapt import flat_values, read_rows, write_fields
from .capture import AUTO_TOKENS, Capture, CapturedStep, columns_of, estimate_size
from .compat import POLICY_LOSSES, data_parallel_size, policy_loss_mode
from .delivery import Applied, apply
from .proof import Seen, Verdict, as_metrics, expected, judge, pg_loss_witness, take_seen
from .rows import TOKEN_FIELDS, Responses
from .run_config import batch_options, run_config
from .settings import LiveSettings

HEADLINE = (
    *("effective_batch", "effective_batch_low", "effective_batch_high"),
    *("signal_scale", "loss_scale", "group_bias", "live_group_frac"),
    *("kept_frac", "trained_token_frac", "wasted_token_frac"),
    *("weight_mean", "weight_std", "weight_max"),
)
"""Estimators that a live run logs every step; replay of its capture gives all."""


@dataclass
class _Step:
    """What one step needs between its decision and its end."""

    responses: Responses
    decisions: Mapping[str, Decision]
    applied: Applied | None
    estimates: Mapping[str, Mapping[str, float]]
    want: Seen | None = None
    pg_losses: tuple[float, float] = (0.0, 0.0)
    verdict: Verdict | None = None
    digests: Mapping[str, str] = field(default_factory=dict)
    seconds: float = 0.0

    @property
    def skips_update(self) -> bool:
        return self.applied is not None and self.applied.empty


class Session:
    """Everything dfsim does in a run; the trainer calls it at four points.

    Args:
        settings: from ``+dfsim.``.
        config: verl's resolved configuration as plain Python values.
        say: prints one line where the user looks.
    """

    def __init__(
        self, settings: LiveSettings, config: Mapping[str, Any], say: Callable[[str], None]
    ) -> None:
        self.settings, self._config, self._say = settings, config, say
        actor = config["actor_rollout_ref"]["actor"]
        self._actor, self._rollout = actor, config["actor_rollout_ref"]["rollout"]
        self._loss_agg_mode = check_mode(actor.get("loss_agg_mode") or "token-mean")
        self._run_config = {**run_config(config), "dfsim": settings.record()}
        self._batch_options = batch_options(self._run_config)
        self._mini_batch_rows: int | None = self._batch_options["mini_batch_rows"]
        self.domain: str | None = None
        self._step: _Step | None = None
        self._said: set[str] = set()
        self.capture = (
            None
            if settings.capture is None
            else Capture(settings.capture, self._run_config, self._say)
        )

    @property
    def proof_mode(self) -> str | None:
        """Loss mode to prove delivery under, or ``None`` where there is nothing to prove or no way.

        Weights are proven for verl's own losses; a loss that another plug-in registers is left
        alone, and its delivery is not checkable.
        """
        mode = policy_loss_mode(self._config)
        if self.settings.strategy is None or mode not in POLICY_LOSSES:
            return None
        return mode

    def choose_domain(self, columns: list[str]) -> None:
        """Find the dataset column that names the domain, before any model loads.

        Raises:
            TraceError: ``+dfsim.domain`` names a column that the dataset lacks.
        """
        wanted = self.settings.domain
        if wanted is not None and wanted not in columns:
            raise TraceError(
                f"+dfsim.domain={wanted}: the training set has no such column; it has: "
                f"{', '.join(sorted(columns))}"
            )
        found = [c for c in (wanted, "domain", "data_source") if c in columns]
        self.domain = found[0] if found else None

    def begin(self, first_step: int) -> None:
        """Start the capture, once the first step's number is known."""
        if self.capture is None or self.settings.capture is None:
            return
        responses = int(self._config["data"]["train_batch_size"]) * int(self._rollout["n"])
        longest = self._config["data"].get("max_response_length")
        tokens, text = estimate_size(responses, longest, len(TOKEN_FIELDS))
        mode = self.settings.capture.tokens
        needed = any(c in TOKEN_COLUMNS for s in self.settings.strategies for c in s.columns)
        small = tokens is not None and tokens <= AUTO_TOKENS
        self._tokens = mode == "all" or (mode == "auto" and (needed or small))
        if not self._tokens:
            text = estimate_size(responses, longest, 0)[1]
            if mode == "auto":
                text += ", without token lists (capture.tokens=all keeps them)"
        self.capture.start(first_step, text)

    def observe(self, trainer: Any, batch: Any, metrics: MutableMapping[str, Any]) -> Any:
        """Decide for one step and write weights; returns the meta that training goes on with.

        Args:
            trainer: verl's trainer.
            batch: ``KVBatchMeta`` after advantages were computed.
            metrics: verl's metrics of the step.
        """
        began = time.perf_counter()
        rows, tensors = read_rows(
            batch,
            trainer.global_steps,
            domain=self.domain,
            kl_in_reward=bool(self._config["algorithm"].get("use_kl_in_reward")),
            ranks=data_parallel_size(trainer),
            mini_batch_rows=None if self._actor.get("shuffle") else self._mini_batch_rows,
            text=trainer.tokenizer if self._wants_text() else None,
        )
        responses = Responses(rows)
        step_batch = responses.batch(**self._batch_options)
        self._warn_nan(step_batch)
        step = self._decide(responses, step_batch)
        self._step = step
        if step.applied is not None:
            batch = self._deliver(batch, step, step_batch, tensors)
        step.seconds = time.perf_counter() - began
        metrics.update(self._metrics(step))
        return batch

    def _wants_text(self) -> bool:
        return self.settings.capture is not None and self.settings.capture.text

    def _warn_nan(self, batch: RolloutBatch) -> None:
        nan = int(np.isnan(batch.advantage_N).sum())
        if nan:
            self._say_once(
                "nan",
                f"dfsim: step {batch.step} has {nan} responses whose advantage is NaN; one NaN "
                "reward makes verl's whole group NaN, and no weight can undo that. Let the "
                "verifier return a number",
            )

    def _say_once(self, key: str, text: str) -> None:
        if key not in self._said:
            self._said.add(key)
            self._say(text)

    def _decide(self, responses: Responses, batch: RolloutBatch) -> _Step:
        settings = self.settings
        scores = Scores(batch)
        decisions = {"none": build("none").decide(batch, scores)}
        for strategy in settings.strategies:
            decisions[strategy.name] = strategy.decide(batch, scores)
        applied = {name: apply(decision, batch) for name, decision in decisions.items()}
        own = settings.strategy
        if own is not None:
            applied[own.name] = apply(
                decisions[own.name], batch, settings.rescale, settings.on_empty
            )
        estimates = estimate_step(batch, decisions, self._loss_agg_mode)
        return _Step(
            responses,
            decisions,
            None if own is None else applied[own.name],
            estimates,
            digests={s.name: applied[s.name].digest() for s in settings.strategies},
        )

    def _deliver(
        self, batch: Any, step: _Step, step_batch: RolloutBatch, tensors: Mapping[str, Any]
    ) -> Any:
        applied, responses = step.applied, step.responses
        assert applied is not None
        rows = responses.rows
        before = np.ones(len(rows.mask_F), np.float32)
        if rows.is_weight_F is not None:
            before = rows.is_weight_F.astype(np.float32)
        weights_T = applied.weights_T(step_batch)
        weight_F = responses.spread(before[responses.flat_T] * weights_T, before)
        advantage_F = rows.advantage_F
        fields = {"rollout_is_weights": weight_F}
        if applied.advantage_N is not None:
            replaced = np.repeat(applied.advantage_N, responses.num_tokens_N)
            advantage_F = responses.spread(replaced, advantage_F)
            fields["advantages"] = advantage_F
            fields["returns"] = responses.spread(replaced, flat_values(tensors["returns"]))
        step.want = expected(weight_F, advantage_F, rows.mask_F)
        step.pg_losses = (
            _pg_loss(weight_F, advantage_F, rows.mask_F),
            _pg_loss(before, rows.advantage_F, rows.mask_F),
        )
        return write_fields(batch, tensors["response_mask"], fields)

    def skips_update(self) -> bool:
        """Whether this step must not call the actor."""
        return self._step is not None and self._deliverable_skip(self._step)

    def _deliverable_skip(self, step: _Step) -> bool:
        return step.skips_update and self.settings.on_empty == "skip_update"

    def _metrics(self, step: _Step) -> dict[str, float]:
        found: dict[str, float] = {}
        own = self.settings.strategy
        for name, values in step.estimates.items():
            prefix = "dfsim" if own is not None and name == own.name else f"dfsim/{name}"
            for estimator in HEADLINE:
                if estimator in values and math.isfinite(values[estimator]):
                    found[f"{prefix}/{estimator}"] = values[estimator]
        if own is not None:
            found["dfsim/update_skipped"] = float(self._deliverable_skip(step))
            assert step.applied is not None
            found["dfsim/rescale"] = step.applied.scale
        found["dfsim/decide_seconds"] = step.seconds
        return found

    def finish(self, metrics: MutableMapping[str, Any]) -> None:
        """Judge delivery and hand the step to the capture.

        Args:
            metrics: verl's metrics after the update.
        """
        step, self._step = self._step, None
        if step is None:
            return
        began = time.perf_counter()
        if step.want is not None:
            step.verdict = self._judge(step, metrics)
            metrics.update(as_metrics(step.verdict))
            if step.verdict.delivered == 0:
                self._say_once(
                    "undelivered",
                    f"dfsim: step {step.responses.rows.step}: the weights did NOT reach the loss: "
                    f"{step.verdict.reason}. What trains is not what the strategy decided",
                )
            elif step.verdict.delivered is None:
                self._say_once(
                    step.verdict.reason, f"dfsim: delivery not checkable: {step.verdict.reason}"
                )
        settings = self.settings.capture
        if self.capture is not None and settings is not None:
            if (step.responses.rows.step - 1) % settings.every == 0:
                columns = columns_of(step.responses, step.applied, self._tokens, settings.text)
                self.capture.put(CapturedStep(columns, self._record(step)))
            metrics["dfsim/capture/failed_steps"] = float(self.capture.failed)
            metrics["dfsim/capture/handover_seconds"] = time.perf_counter() - began

    def _judge(self, step: _Step, metrics: MutableMapping[str, Any]) -> Verdict:
        assert step.want is not None
        if self.proof_mode is None:
            mode = policy_loss_mode(self._config)
            return Verdict(None, f"loss_mode={mode} is not one of verl's own, so nothing reports")
        got = take_seen(metrics)
        if self._deliverable_skip(step):
            return Verdict(None, "the update was skipped: the decision kept nothing")
        rows = self._mini_batch_rows
        one = len(step.responses.rows.keys) == rows and (self._actor.get("ppo_epochs") or 1) == 1
        dynamic = bool(self._actor.get("use_dynamic_bsz"))
        verdict = judge(step.want, got, dynamic=dynamic, several_updates=not one)
        if one and self._loss_agg_mode == "token-mean" and self.proof_mode == "vanilla":
            witness = pg_loss_witness(metrics.get("actor/pg_loss"), *step.pg_losses)
            verdict = Verdict(verdict.delivered, verdict.reason, witness)
        return verdict

    def _record(self, step: _Step) -> dict[str, Any]:
        """One line of ``live.jsonl``."""
        verdict = step.verdict
        return {
            "step": step.responses.rows.step,
            "digests": dict(step.digests),
            "delivered": None if verdict is None else verdict.delivered,
            "reason": None if verdict is None else verdict.reason,
            "pg_loss": None if verdict is None else verdict.pg_loss,
            "update_skipped": self._deliverable_skip(step),
            "rescale": None if step.applied is None else step.applied.scale,
            "expected": None if step.want is None else step.want.to_dict(),
            "decide_seconds": step.seconds,
        }

    def close(self) -> None:
        """Write what is left of the capture."""
        if self.capture is not None:
            self.capture.close()


def _pg_loss(weight_F: Any, advantage_F: Any, mask_F: Any) -> float:
    weighted = weight_F[mask_F].astype(np.float64) * advantage_F[mask_F].astype(np.float64)
    return float(-weighted.sum() / max(mask_F.sum(), 1))
