"""From numbers to advice: a verdict on each screened strategy, and the shortlist in sentences."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np

from ...traces.ragged import Float
from ..replay.diagnosis import live_groups
from ..stats.series import ALPHA, MOST_RELATED, Differences
from .choice import Choice
from .front import BATCH_STEP, BIAS_STEP, SHARE_STEP, cost_of
from .result import Screened

CARE = ("one_sided", "biased_groups", "domain_starved", "kl_dominates", "empty_step")

NO_CHANGE = ("no_op", "splits_nothing", "same", "no_signal")

TOO_SHORT = "On the front of these few steps, too few for a claim"

HEADINGS = {
    "promote": "Worth a live run",
    "care": "Worth one only with care",
    "beaten": "Beaten on this data",
    "unclear": "No better than another, but not told apart from it",
    "thin": "Too thin",
    "no_op": "No-ops on this data",
    "splits_nothing": "Change no gradient direction",
    "same": "Same decisions as another",
    "no_signal": "Nothing to compare",
}


def judge(
    rows: Sequence[Screened],
    names: Sequence[str],
    alike_KK: Float,
    choices: Sequence[Choice],
    by: str,
    baseline: str,
) -> list[Screened]:
    """Give each strategy its verdict and sentence.

    Args:
        rows: screened strategies.
        names: strategies in the order of ``alike_KK``.
        alike_KK: share of responses that two strategies decide alike.
        choices: sweeps and their chosen points.
        by: the screen's estimator.
        baseline: the strategy that differences are taken to.
    """
    by_name = {row.name: row for row in rows}
    judged = []
    for row in rows:
        if row.name in (baseline, "none"):
            judged.append(replace(row, verdict="baseline"))
            continue
        index = names.index(row.name)
        earlier = dict.fromkeys(["none", baseline, *names[:index]])
        twin = next((n for n in earlier if alike_KK[index, names.index(n)] == 1.0), None)
        choice = next((c for c in choices if row.name in c.points), None)
        verdict, sentence = _verdict(row, by_name, twin, choice, by, baseline)
        judged.append(replace(row, verdict=verdict, sentence=sentence))
    return [_warned(row, judged) for row in judged]


def _warned(row: Screened, rows: Sequence[Screened]) -> Screened:
    """A row whose advice names a strategy that this screen itself advises against says so."""
    advised = {d.evidence.get("variant") for d in row.result.diagnosis if d.name in CARE}
    for other in rows if row.verdict == "care" else ():
        if other.name in advised and other.verdict in ("thin", "beaten"):
            word = "too thin" if other.verdict == "thin" else "beaten"
            return replace(row, sentence=f"{row.sentence} ({other.name} itself is {word} here.)")
    return row


def _verdict(
    row: Screened,
    rows: Mapping[str, Screened],
    twin: str | None,
    choice: Choice | None,
    by: str,
    baseline: str,
) -> tuple[str, str]:
    found = {d.name: d for d in row.result.diagnosis}
    cost = cost_of(rows["none"].result.estimates)
    silent = _lacking(row.name, rows["none"])
    if silent:
        return "no_signal", silent
    no_op = found.get("no_op")
    if twin not in (None, "none"):
        return "same", f"{row.name} decides every response as {twin} does."
    if no_op is not None and no_op.evidence["share"] == 1.0:
        return "no_op", no_op.message
    if twin is not None:
        return "no_op", f"{row.name} decides every response as {twin} does."
    if "splits_nothing" in found:
        return "splits_nothing", found["splits_nothing"].message
    lacking = _lacking(row.name, row)
    if lacking:
        return "no_signal", lacking
    if "thin_batch" in found:
        return "thin", found["thin_batch"].message
    if choice is not None and choice.chosen not in (None, row.name):
        return "not_chosen", f"{row.name}: {choice.chosen} had the better {by} on the first half."
    if row.beaten_by is not None:
        verdict = "beaten" if row.told_apart else "unclear"
        return verdict, _beaten(row, rows[row.beaten_by], cost)
    grave = [found[name].message for name in CARE if name in found]
    if _upper_end_alone(row, rows[baseline], cost):
        grave.insert(
            0,
            f"Only the upper end of its bracket speaks for it: it trains as much as {baseline}, "
            "and leaves groups no more balanced.",
        )
    elif row.beaten_low_by is not None:
        grave.insert(
            0,
            f"It rests on the upper end of its bracket: at the lower end {row.beaten_low_by} beats "
            "it.",
        )
    gain = _gain(row, rows[baseline], cost)
    if no_op is not None:
        gain += f" {no_op.message}"
    if grave:
        return "care", " ".join([gain, *grave])
    scale = row.result.estimates["signal_scale"].mean
    if "scale_shift" in found:
        gain += f" It scales the gradient by {scale:.2f}: match learning rates under SGD."
    return "promote", gain


def _lacking(name: str, row: Screened) -> str | None:
    """Why the effective batch of ``row`` leaves nothing to say of a strategy, or ``None``."""
    found = row.result.estimates["effective_batch"]
    if not np.isfinite(found.mean):
        why = found.reason or "no step allows it"
        return f"{name}: no effective batch of {row.name} can be estimated: {why}."
    if row.name == "none" and found.mean == 0:
        return f"{name}: no logged group has rewards that differ, so there is no signal to weigh."
    return None


def _upper_end_alone(row: Screened, baseline: Screened, cost: str) -> bool:
    """Whether a strategy gains nothing on the baseline but at its bracket's upper end."""
    low, base = (_mean(r, "effective_batch_low") for r in (row, baseline))
    return (
        low <= base * (1 + BATCH_STEP)
        and _mean(row, cost) >= _mean(baseline, cost) - SHARE_STEP
        and _mean(row, "group_bias") >= _mean(baseline, "group_bias") - BIAS_STEP
    )


def _bracket(row: Screened) -> str:
    found = row.result.estimates
    low, high = found["effective_batch_low"].mean, found["effective_batch_high"].mean
    return f"[{live_groups(low)}, {live_groups(high)}]"


_PAID = {"trained_token_frac": "tokens", "kept_frac": "responses"}


def _mean(row: Screened, estimator: str) -> float:
    return row.result.estimates[estimator].mean


def _beaten(row: Screened, winner: Screened, cost: str) -> str:
    return (
        f"{row.name} by {winner.name}: {_bracket(row)} against {_bracket(winner)}, {_PAID[cost]} "
        f"{_mean(row, cost):.0%} against {_mean(winner, cost):.0%}, group bias "
        f"{_mean(row, 'group_bias'):.2f} against {_mean(winner, 'group_bias'):.2f}."
    )


def _gain(row: Screened, baseline: Screened, cost: str) -> str:
    """What a strategy on the front gives, against the baseline."""
    mine = row.result.estimates
    own, all_ = mine["effective_batch"].mean, baseline.result.estimates["effective_batch"].mean
    ends = (mine[f"effective_batch_{end}"].mean for end in ("low", "high"))
    low, high = (_share(end, all_) for end in ends)
    text = (
        f"{row.name}: effective batch {live_groups(own)} of {baseline.name}'s {live_groups(all_)}, "
    )
    text += f"{_share(own, all_)} [{low}, {high}]"
    paid, base = _mean(row, cost), _mean(baseline, cost)
    same, what = abs(paid - base) < SHARE_STEP, _PAID[cost]
    text += f", from as many {what}" if same else f", from {_share(paid, base)} of its {what}"
    return f"{text}; group bias {_mean(row, 'group_bias'):.2f}."


def _share(part: float, whole: float) -> str:
    return f"{part / whole:.0%}" if whole > 0 else "–"


def _choice(choice: Choice, by: str, baseline: str) -> str:
    if choice.chosen is None:
        return f"{choice.base}: no point was chosen: {choice.reason}."
    assert choice.first_steps is not None
    assert choice.second_steps is not None
    (a, b), (c, d) = choice.first_steps, choice.second_steps
    place = "still the best" if choice.judged_rank == 1 else f"place {choice.judged_rank}"
    return (
        f"{choice.chosen} had the best {by} of {len(choice.points)} points on steps {a}–{b} "
        f"({choice.chosen_on:.2f}). Judged on steps {c}–{d}: {choice.judged:.2f} against "
        f"{baseline}'s {choice.judged_baseline:.2f}, {place} of them. The rest of its figures "
        "is of the whole run."
    )


def sentences(
    rows: Sequence[Screened],
    differences: Differences,
    choices: Sequence[Choice],
    by: str,
    baseline: str,
) -> list[tuple[str, list[str]]]:
    """Headings and sentences, most useful first."""
    found: list[tuple[str, list[str]]] = []
    for verdict, heading in HEADINGS.items():
        listed = [row.sentence for row in rows if row.verdict == verdict]
        if verdict == "promote" and not listed and any(row.sentence for row in rows):
            listed = ["None of these strategies: each is listed below with its reason."]
        if listed:
            short = verdict == "promote" and differences.reason
            found.append((TOO_SHORT if short else heading, listed))
    if choices:
        found.append(("Sweeps", [_choice(choice, by, baseline) for choice in choices]))
    found.append(("Differences", _differences(rows, differences, by, baseline)))
    return found


def _differences(rows: Sequence[Screened], found: Differences, by: str, baseline: str) -> list[str]:
    if found.reason:
        return [f"No claim that any two differ in {by}: {found.reason}."]
    others = [row for row in rows if row.name != baseline]
    above = [r.name for r in others if r.difference.claimed > 0]
    below = [r.name for r in others if r.difference.claimed < 0]
    open_ = [
        r.name for r in others if r.difference.claimed == 0 and np.isfinite(r.difference.p_adjusted)
    ]
    lacking = [r.name for r in others if np.isnan(r.difference.mean)]
    told = {
        "above": above,
        "below": below,
        "not told from": open_,
        "for want of values on a tenth of the steps not compared with": lacking,
    }
    parts = [f"{label} {baseline}: {', '.join(names)}" for label, names in told.items() if names]
    said = "; ".join(parts) if parts else "no strategy differs anywhere"
    text = [
        f"{by}, {said} (Holm over {found.comparisons} pairs at {ALPHA:.0%}; {_related(found)})."
    ]
    if by == "effective_batch_low" and baseline == "none":
        text.append(
            "The bracket of none has no width, so few strategies have a lower end above it; this "
            "says how much the pessimistic reading costs."
        )
    leader = _leader(rows, by)
    return [*text, leader] if leader else text


def _related(found: Differences) -> str:
    if not np.isfinite(found.related):
        return f"{found.steps} steps"
    allowed = (
        "which is allowed for"
        if found.related <= MOST_RELATED
        else "too much for so few: take claims as hints"
    )
    return (
        f"{found.steps} steps, correlated up to {found.related:.2f} from one to the next, {allowed}"
    )


def _leader(rows: Sequence[Screened], by: str) -> str | None:
    """Which of the others the first of the list that changes an update can't be told from."""
    ranked = [r for r in rows if r.verdict not in ("baseline", *NO_CHANGE)]
    if len(ranked) < 2:
        return None
    first, *rest = ranked
    apart = {*first.difference.above, *first.difference.below}
    near = [r.name for r in rest if r.name not in apart]
    text = f"Of those that change the update, {first.name} has the best {by}"
    if not near:
        return f"{text}, and is told apart from every other."
    return f"{text}, but is not told apart from {', '.join(near)}."
