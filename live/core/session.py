"""One live run of dfsim inside a trainer: decide, deliver, prove, log, capture."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, MutableMapping
from typing import Any

import numpy as np

from ...sim.estimators import estimate_step
from ...sim.estimators.aggregation import check_mode
from ...strategies.base import Scores
from ...strategies.build import build
from ...strategies.sample.base import SamplingStrategy
from ...traces.batch import RolloutBatch
from ...traces.errors import TraceError
from ...traces.schema import TOKEN_COLUMNS
from .backend import ROW_COLUMN, Backend, RunConfig
from .capture import AUTO_TOKENS, Capture, CapturedStep, columns_of, estimate_size
from .delivery import Applied, apply
from .proof import Verdict, as_metrics, expected, judge, pg_loss_witness
from .rows import TOKEN_LISTS, Responses
from .sampler import RowSampler, TrainingSet
from .settings import LiveSettings
from .steer import Steering, dropped_shadow
from .step import LiveStep, pg_loss_of


class Session:
    """Everything dfsim does in a run, called by the trainer.

    Args:
        settings: from ``+dfsim.``.
        run: the run's own settings.
        backend: the trainer's data.
        say: prints one line where the user looks.
    """

    def __init__(
        self,
        settings: LiveSettings,
        run: RunConfig,
        backend: Backend,
        say: Callable[[str], None],
    ) -> None:
        self.settings, self._run, self._backend, self._say = settings, run, backend, say
        self._loss_agg_mode = check_mode(run.loss_agg_mode)
        self._record = {**run.record, "dfsim": settings.record()}
        self._batch_options = run.batch_options
        self.domain: str | None = None
        self._steering: Steering | None = None
        self.capture: Capture | None = None
        self._step: LiveStep | None = None
        self._said: set[str] = set()
        self._given_up = False
        self._keeps_tokens = False
        self._shadows = list(settings.shadows)

    @property
    def proves(self) -> bool:
        """Whether there are weights to prove and a loss that reports what it saw.

        A loss that another plug-in registers is left alone, and its delivery is not checkable.
        """
        return self.settings.weights is not None and self._run.no_report is None

    @property
    def rows(self) -> RowSampler | None:
        """What the trainer's loader draws by, or ``None``."""
        return None if self._steering is None else self._steering.rows

    @property
    def numbers_rows(self) -> bool:
        """Whether the training set needs a column ``ROW_COLUMN``."""
        strategies = self.settings.strategies
        return any(isinstance(s, SamplingStrategy) and s.level == "prompt" for s in strategies)

    def prepare(self, columns: list[str], read_column: Callable[[str], Iterable[Any]]) -> None:
        """Find the domains, set up samplers and the capture; before any model loads.

        Args:
            columns: of the training set.
            read_column: iterates over one of them.

        Raises:
            DfsimError: ``+dfsim.domain`` names a column that the dataset lacks, a sampler can't
                work on it, or the capture's folder can't be used.
        """
        wanted = self.settings.domain
        if wanted is not None and wanted not in columns:
            raise TraceError(
                f"+dfsim.domain={wanted}: the training set has no such column; it has: "
                f"{', '.join(sorted(columns))}"
            )
        found = [c for c in (wanted, "domain", "data_source") if c in columns]
        self.domain = found[0] if found else None
        if self.domain is not None:
            value = next(iter(read_column(self.domain)), None)
            if value is not None and not isinstance(value, (str, int)):
                raise TraceError(
                    f"+dfsim.domain={self.domain}: its values are {type(value).__name__}s, not "
                    "names; add a text column to the training set and name that"
                )
        self._steering = self._start_samplers(columns, read_column)
        if self._steering is not None:
            self._record["dfsim"]["dataset"] = self._steering.record()
        if self.settings.capture is not None:
            self.capture = Capture(self.settings.capture, self._record, self._say)
            self.capture.check_start(self._run.starts_at_one)

    def _start_samplers(
        self, columns: list[str], read_column: Callable[[str], Iterable[Any]]
    ) -> Steering | None:
        delivered, shadows = self.settings.sampler, self.settings.shadow_samplers
        samplers = [*([] if delivered is None else [delivered]), *shadows]
        if not samplers:
            return None
        for sampler in samplers:
            if sampler.level == "domain" and self.domain is None:
                raise TraceError(
                    f"{sampler.name} needs domains: add a column to the training set and name it "
                    "with +dfsim.domain=COLUMN"
                )
            if sampler.level == "prompt" and ROW_COLUMN not in columns:
                raise TraceError(
                    f"{sampler.name} draws by prompt, and this training set's rows are not "
                    f"numbered: add a column {ROW_COLUMN} that counts them from 0"
                )
        values = list(read_column(columns[0] if self.domain is None else self.domain))
        named = None if self.domain is None else values
        training_set = TrainingSet.of(named, len(values))
        run = self._run
        return Steering(delivered, shadows, training_set, run.train_batch_size, run.seed, self._say)

    def begin(self, first_step: int) -> None:
        """Start the capture, once the first step's number is known."""
        if self.capture is None or self.settings.capture is None:
            return
        responses = self._run.train_batch_size * self._run.n
        longest = self._run.max_response_length
        tokens, text = estimate_size(responses, longest, len(TOKEN_LISTS))
        mode = self.settings.capture.tokens
        needed = any(c in TOKEN_COLUMNS for s in self.settings.strategies for c in s.columns)
        small = tokens is not None and tokens <= AUTO_TOKENS
        self._keeps_tokens = mode == "all" or (mode == "auto" and (needed or small))
        if not self._keeps_tokens:
            text = estimate_size(responses, longest, 0)[1]
            if mode == "auto":
                text += ", without token lists (capture.tokens=all keeps them)"
        self.capture.start(first_step, text)

    def observe(self, batch: Any, metrics: MutableMapping[str, Any]) -> Any:
        """Decide for one step and write weights; returns the batch that training goes on with.

        Args:
            batch: the trainer's, after advantages were computed.
            metrics: the trainer's, of the step.
        """
        if self._given_up:
            return batch
        try:
            return self._observe(batch, metrics)
        except Exception as error:
            if self._applies_something or self._raises:
                raise
            self._give_up(error)
            return batch

    @property
    def _applies_something(self) -> bool:
        return self.settings.strategy is not None

    @property
    def _raises(self) -> bool:
        return self.settings.capture is not None and self.settings.capture.on_error == "raise"

    def _give_up(self, error: Exception) -> None:
        """A run that applies nothing must not die of being watched."""
        self._given_up, self._step = True, None
        self._say(
            f"dfsim: watching stopped ({type(error).__name__}: {error}); training goes on without "
            "capture and shadows"
        )

    def _observe(self, batch: Any, metrics: MutableMapping[str, Any]) -> Any:
        began = time.perf_counter()
        rows = self._backend.read(
            batch, domain=self.domain, numbered=self.numbers_rows, text=self._wants_text()
        )
        responses = Responses(rows)
        step_batch = responses.batch(**self._batch_options)
        self._warn_nan(step_batch)
        step = self._decide(responses, step_batch)
        self._step = step
        if self._steering is not None:
            row_N = responses.columns.get("dataset_row")
            row_G = None if row_N is None else row_N[step_batch.group_offsets[:-1]]
            step.domains = self._steering.domains
            step.mix, step.shadow_mix = self._steering.watch(step_batch, row_G, step.decisions)
        if step.applied is not None:
            batch = self._deliver(batch, step, step_batch)
        step.seconds = time.perf_counter() - began
        metrics.update(step.metrics(self._skips(step)))
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

    def _decide(self, responses: Responses, batch: RolloutBatch) -> LiveStep:
        settings = self.settings
        scores = Scores(batch)
        decisions = {"none": build("none").decide(batch, scores)}
        applied: dict[str, Applied] = {}
        own = settings.weights
        if own is not None:
            decisions[own.name] = own.decide(batch, scores)
            applied[own.name] = apply(
                decisions[own.name], batch, settings.rescale, settings.on_empty
            )
        for shadow in [s for s in self._shadows if s.weighs]:
            try:
                decision = shadow.decide(batch, scores)
            except Exception as error:  # a shadow must not stop what it does not touch
                self._shadows.remove(shadow)
                self._say(dropped_shadow(shadow.name, batch.step, error))
                continue
            decisions[shadow.name], applied[shadow.name] = decision, apply(decision, batch)
        estimates = estimate_step(batch, decisions, self._loss_agg_mode)
        return LiveStep(
            responses,
            decisions,
            None if own is None else own.name,
            None if own is None else applied[own.name],
            estimates,
            digests={name: one.digest() for name, one in applied.items()},
        )

    def _deliver(self, batch: Any, step: LiveStep, step_batch: RolloutBatch) -> Any:
        applied, responses = step.applied, step.responses
        assert applied is not None
        rows = responses.rows
        before = np.ones(len(rows.mask_F), np.float32)
        if rows.is_weight_F is not None:
            before = rows.is_weight_F.astype(np.float32)
        weights_T = applied.weights_T(step_batch)
        weight_F = responses.spread(before[responses.flat_T] * weights_T, before)
        advantage_F = rows.advantage_F
        fields = {"weights": weight_F}
        if applied.advantage_N is not None:
            replaced = np.repeat(applied.advantage_N, responses.num_tokens_N)
            advantage_F = responses.spread(replaced, advantage_F)
            fields["advantages"] = advantage_F
            assert rows.returns_F is not None
            fields["returns"] = responses.spread(replaced, rows.returns_F)
        mini_batch_R = rows.mini_batch_R
        if mini_batch_R is None:
            mini_batch_R = np.zeros(len(rows.keys), dtype=np.int64)
        mini_batch_F = np.repeat(mini_batch_R, np.diff(rows.offsets))
        step.want = expected(weight_F, advantage_F, rows.mask_F, mini_batch_F)
        step.pg_losses = (
            pg_loss_of(weight_F, advantage_F, rows.mask_F),
            pg_loss_of(before, rows.advantage_F, rows.mask_F),
        )
        return self._backend.write(batch, fields)

    def skips_update(self) -> bool:
        """Whether this step must not call the actor."""
        return self._step is not None and self._skips(self._step)

    def _skips(self, step: LiveStep) -> bool:
        empty = step.applied is not None and step.applied.empty
        return empty and self.settings.on_empty == "skip_update"

    def finish(self, metrics: MutableMapping[str, Any]) -> None:
        """Judge delivery and hand the step to the capture.

        Args:
            metrics: the trainer's, after the update.
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
                    f"dfsim: step {step.number}: the weights did NOT reach the loss: "
                    f"{step.verdict.reason}. What trains is not what the strategy decided",
                )
            elif step.verdict.delivered is None:
                self._say_once(
                    step.verdict.reason, f"dfsim: delivery not checkable: {step.verdict.reason}"
                )
        settings = self.settings.capture
        if self.capture is not None and settings is not None:
            if (step.number - 1) % settings.every == 0:
                columns = columns_of(
                    step.responses, step.applied, self._keeps_tokens, settings.text
                )
                self.capture.put(CapturedStep(columns, step.record(self._skips(step))))
            metrics["dfsim/capture/failed_steps"] = float(self.capture.failed)
            metrics["dfsim/capture/handover_seconds"] = time.perf_counter() - began

    def _judge(self, step: LiveStep, metrics: MutableMapping[str, Any]) -> Verdict:
        assert step.want is not None
        run = self._run
        if run.no_report is not None:
            return Verdict(None, run.no_report)
        seen, pg_loss = self._backend.take_report(metrics)
        if step.number < run.critic_warmup:
            return Verdict(
                None, f"trainer.critic_warmup={run.critic_warmup}: the actor does not train yet"
            )
        if self._skips(step):
            return Verdict(None, "the update was skipped: the decision kept nothing")
        rows = step.responses.rows
        one = len(rows.keys) == self._batch_options["mini_batch_rows"] and run.ppo_epochs == 1
        shuffled = rows.mini_batch_R is None and not one
        verdict = judge(step.want, seen, dynamic=run.dynamic_batches, shuffled=shuffled)
        if one and run.plain_pg_loss:
            witness = pg_loss_witness(pg_loss, *step.pg_losses)
            verdict = Verdict(verdict.delivered, verdict.reason, witness)
        return verdict

    def close(self) -> None:
        """Write what is left of the capture."""
        if self.capture is not None:
            self.capture.close()
