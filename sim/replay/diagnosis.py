"""What a strategy's weights do to *this* trace: named findings with evidence and advice."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from ...strategies.base import Decision, Strategy
from ...strategies.catalog import PRESETS
from ...strategies.signals import TokenEfficiency
from ...strategies.spec import Spec
from ...traces.findings import Finding
from ...traces.ragged import Float
from ...traces.spelling import option
from ..estimators.terms import Weighted
from ..result import Estimates

SCALE_BAND = (0.8, 1.25)
BIAS_LIMIT = 0.2
TIE_LIMIT = 0.1
NO_OP_LIMIT = 0.1
STARVED = 0.1
BEYOND_LIVE = 1.25

FACTS = (
    "uniform",
    "tied_frac",
    "dropped",
    "dropped_live",
    "kept",
    "kl",
    "policy_gradient",
    "negative_frac",
)


def live_groups(value: float) -> str:
    """Live groups: a decimal, two below one; a dash for NaN."""
    return "–" if np.isnan(value) else f"{value:.1f}" if value >= 1 else f"{value:.2f}"


def step_facts(weighted: Weighted) -> Float:
    """What diagnoses need of a step beyond the estimators: (K, F), in the order of ``FACTS``."""
    terms, batch = weighted.terms, weighted.terms.batch
    kept = weighted.weight_KN > 0
    trains = terms.live_G | (batch.group_size_G == 1)
    carries = trains[batch.group_N] & (batch.abs_advantage_N > 1e-9)
    kl = np.nan
    if batch.ref_kl_N is not None:
        per_token = terms.coef_N / np.maximum(terms.tokens_N, 1)
        kl = float((per_token * batch.ref_kl_N).sum())
    num_kept = kept.sum(axis=1)
    count = len(num_kept)
    return np.stack(
        [
            [_uniform(d) for d in weighted.decisions],
            [0.0 if d.tied_N is None else d.tied_N.mean() for d in weighted.decisions],
            batch.num_responses - num_kept,
            carries.sum() - (kept & carries).sum(axis=1),
            num_kept,
            np.full(count, kl),
            weighted.signal_KN.sum(axis=1),
            np.full(count, (batch.reward_N < 0).mean()),
        ],
        axis=1,
    )


def _uniform(decision: Decision) -> float:
    """1 where all weights are one positive constant and no advantage is replaced, else 0."""
    weight = decision.weight_N if decision.token_weight_T is None else decision.token_weight_T
    if decision.advantage_N is not None or len(weight) == 0:
        return 0.0
    top = weight.max()
    return float(top > 0 and top - weight.min() <= 1e-9 * top)


@dataclass(frozen=True)
class RunFacts:
    """Everything a diagnosis may look at.

    Attributes:
        strategy: what decided.
        estimates: its run-level numbers.
        baseline: those of ``none``.
        steps: step numbers (S).
        facts: fact → value per step (S).
        baseline_facts: those of ``none``.
        domain_signal: domain → share of the run's signal, for the strategy and for ``none``.
        optimizer: the run's, or ``None`` where the trace does not say.
    """

    strategy: Strategy
    estimates: Estimates
    baseline: Estimates
    steps: Sequence[int]
    facts: Mapping[str, Float]
    baseline_facts: Mapping[str, Float]
    domain_signal: Mapping[str, tuple[float, float]]
    optimizer: str | None

    @property
    def name(self) -> str:
        """The strategy's name."""
        return self.strategy.name

    def mean(self, estimator: str) -> float:
        """Run-level mean of an estimator."""
        return self.estimates[estimator].mean


def diagnose(run: RunFacts) -> list[Finding]:
    """All findings that apply, most drastic first."""
    return [finding for check in _CHECKS for finding in check(run)]


def _no_op(run: RunFacts) -> Iterator[Finding]:
    uniform = run.facts["uniform"] > 0
    share = float(uniform.mean())
    if share >= NO_OP_LIMIT:
        what = "on every step" if share == 1 else f"on {uniform.sum()} of {len(uniform)} steps"
        yield Finding(
            "no_op",
            f"{run.name} changes nothing {what}: its weights are one constant, so training would "
            f"be as without it{_but_scale(run)}.",
            {
                "share": share,
                "steps": [s for s, u in zip(run.steps, uniform, strict=True) if u],
            },
            "Change its parameters until it acts, or train without it.",
        )


def _but_scale(run: RunFacts) -> str:
    scale = run.mean("weight_mean")
    return "" if abs(scale - 1) < 1e-6 else f", but for a loss {scale:.2f} times as large"


def _empty_step(run: RunFacts) -> Iterator[Finding]:
    empty = run.facts["kept"] == 0
    if empty.any():
        yield Finding(
            "empty_step",
            f"{run.name} keeps nothing on {empty.sum()} of {len(empty)} steps: decide what the "
            "trainer does then (skip the update, or keep all), or loosen its parameters.",
            {"steps": [s for s, e in zip(run.steps, empty, strict=True) if e]},
        )


def _thin_batch(run: RunFacts) -> Iterator[Finding]:
    own, none = run.mean("effective_batch"), run.baseline["effective_batch"].mean
    if own < 0.5 * none:
        yield Finding(
            "thin_batch",
            f"{run.name} leaves an effective batch of {live_groups(own)} of {live_groups(none)} "
            "live groups: expect noisier updates; generate more prompts a step, or keep more.",
            {"effective_batch": own, "none": none},
        )


def _bracket_beyond_live(run: RunFacts) -> Iterator[Finding]:
    high, none = run.mean("effective_batch_high"), run.baseline["effective_batch"].mean
    if high > BEYOND_LIVE * none:
        low = run.mean("effective_batch_low")
        yield Finding(
            "bracket_beyond_live",
            f"{run.name}'s bracket reaches {live_groups(high)}, beyond the {live_groups(none)} "
            "live groups that there are: the noise model does not fit these weights and "
            f"advantages, so only the lower end, {live_groups(low)}, says anything.",
            {"low": low, "high": high, "live": none},
        )


def _scale_shift(run: RunFacts) -> Iterator[Finding]:
    scale, cv = run.mean("signal_scale"), run.mean("signal_scale_cv")
    if scale < SCALE_BAND[0] or scale > SCALE_BAND[1]:
        steady = "" if np.isnan(cv) else f", varying by {cv:.0%} over steps"
        yield Finding(
            "scale_shift",
            f"{run.name} scales the policy gradient by {scale:.2f}{steady}. "
            f"{_optimizer(run.optimizer, scale)}",
            {"signal_scale": scale, "signal_scale_cv": cv, "optimizer": run.optimizer},
        )


def _optimizer(name: str | None, scale: float) -> str:
    remains = "cancel a constant factor, not its variation nor the balance against KL and entropy"
    if scale == 0:
        return "Nothing is left to learn from."
    sgd = f"a learning rate × {scale:.2f}; run `none` with it before crediting the selection"
    if name is None:
        return f"The trace names no optimizer: AdamW and clipping {remains}. Under SGD: {sgd}."
    if "adam" in name.lower():
        return f"{name} and gradient clipping {remains}."
    return f"Under {name} that is {sgd}."


def _biased_groups(run: RunFacts) -> Iterator[Finding]:
    bias, one_sided = run.mean("group_bias"), run.mean("one_sided_frac")
    if bias > BIAS_LIMIT:
        push = "up" if run.mean("positive_share") > 0.5 else "down"
        evidence: dict[str, Any] = {
            "group_bias": bias,
            "positive_share": run.mean("positive_share"),
        }
        variant = _renormalised(run.name)
        cure = "Weigh whole groups alike, or re-centre advantages after weighting, to avoid it."
        if variant is not None:
            evidence["variant"] = variant
            cure = f"{variant} re-normalises advantages inside the kept subset, which removes that."
        yield Finding(
            "biased_groups",
            f"{run.name} unbalances groups: {bias:.0%} of a group's signal no longer cancels, and "
            f"pushes responses {push} on the whole. {cure}",
            evidence,
        )
    if one_sided > 0.5:
        yield Finding(
            "one_sided",
            f"{run.name} keeps advantages of one sign only in {one_sided:.0%} of the groups it "
            "trains on: it imitates or suppresses instead of comparing.",
            {"one_sided_frac": one_sided},
            "Keep both signs of a group, or take a variant that re-normalises advantages inside "
            "the kept subset.",
        )


def _renormalised(name: str) -> str | None:
    """The same strategy with advantages re-normalised, where the catalog has one."""
    spec = Spec.parse(name)
    preset = PRESETS.get(spec.preset)
    if preset is None or not preset.renormalised:
        return None
    return str(replace(Spec.parse(preset.renormalised), point=spec.point))


def _tie_break(run: RunFacts) -> Iterator[Finding]:
    tied = float(run.facts["tied_frac"].mean())
    if tied > TIE_LIMIT:
        yield Finding(
            "tie_break",
            f"{tied:.0%} of {run.name}'s decisions fall between equal scores, as they must where "
            "rewards take few levels: which of the equals train is the tie rule's choice.",
            {"tied_frac": tied},
            f"Try other values of {option('tie_seed')} before crediting the rule; a finer reward "
            "breaks ties by itself.",
        )


def _splits_nothing(run: RunFacts) -> Iterator[Finding]:
    dropped, live = run.facts["dropped"].sum(), run.facts["dropped_live"].sum()
    if run.strategy.kind == "select" and dropped > 0 and live == 0:
        yield Finding(
            "splits_nothing",
            f"{run.name} drops only responses whose advantage is 0: the gradient's direction stays "
            "as it is. It saves the update's compute, and pays only with refill.",
            {"dropped": int(dropped), "refill_factor": run.mean("refill_factor")},
        )


def _kl_dominates(run: RunFacts) -> Iterator[Finding]:
    kl, own = run.facts["kl"].sum(), run.facts["policy_gradient"].sum()
    none = run.baseline_facts["policy_gradient"].sum()
    kept = run.mean("kept_frac")
    if not (kl > 0 and own > 0 and none > 0 and kept > 0):
        return
    rise = none / own
    if rise * kept > 1.0 + 1e-9:
        yield Finding(
            "kl_dominates",
            f"{run.name} raises the KL : policy-gradient ratio {rise:.2f}-fold, more than the "
            f"{1 / kept:.2f} that dropping rows explains: zero weights do not mask the KL loss. "
            "Lower kl_loss_coef, or filter before the loss.",
            {"ratio_rise": rise, "kept_frac": kept, "kl_to_policy_gradient": kl / own},
        )


def _domain_starved(run: RunFacts) -> Iterator[Finding]:
    if not any(share for share, _ in run.domain_signal.values()):
        return
    for domain, (share, none) in run.domain_signal.items():
        if none > 0 and share < STARVED * none:
            yield Finding(
                "domain_starved",
                f"{run.name} leaves domain '{domain}' {share:.1%} of the signal, of {none:.1%} "
                "without it: that domain stops learning.",
                {"domain": domain, "signal_share": share, "none": none},
            )


def _prefers_long(run: RunFacts) -> Iterator[Finding]:
    scorer = run.strategy.scorer
    negative = float(run.facts["negative_frac"].mean())
    if isinstance(scorer, TokenEfficiency) and scorer.metric == "efficiency" and negative > 0:
        yield Finding(
            "prefers_long",
            f"{run.name} divides rewards by tokens, and {negative:.0%} of them are negative: it "
            "then prefers long answers. Shift rewards to be ≥ 0, or set metric=short.",
            {"negative_frac": negative},
        )


_CHECKS: tuple[Callable[[RunFacts], Iterator[Finding]], ...] = (
    _no_op,
    _empty_step,
    _thin_batch,
    _bracket_beyond_live,
    _biased_groups,
    _scale_shift,
    _splits_nothing,
    _tie_break,
    _kl_dominates,
    _domain_starved,
    _prefers_long,
)


def facts_table(rows: Sequence[Float], strategy: int) -> dict[str, Float]:
    """Fact → values (S) of one strategy, from per-step arrays (K, F)."""
    stacked = np.array(rows)[:, strategy]
    return {name: stacked[:, i] for i, name in enumerate(FACTS)}
