"""``effective_batch``, the headline, against true gradients of five small policies.

See :mod:`policies` for them, and ``fixtures/smollm2_groups.json`` for a pretrained language model.
A truth is the signal to noise of exact prompt-group gradients, relative to the uniform update's,
and itself an estimate, whose standard error stands beside it. Brackets are judged by the letter.
"""

from __future__ import annotations

import json
import os
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest

from dfsim.sim.estimators import estimate_step
from dfsim.sim.estimators.evenness import ERROR_LANGUAGE, ERROR_SMALL, PHI
from dfsim.strategies.build import build
from dfsim.traces.assemble import from_columns

torch = pytest.importorskip("torch", reason="true gradients need the torch of the extra dev")

from policies import GROUP_SIZE, POLICIES, measure  # noqa: E402

pytestmark = pytest.mark.torch

SHARES = np.linspace(0.05, 0.95, 19)
LANGUAGE_MODEL = Path(__file__).parents[1] / "fixtures" / "smollm2_groups.json"


@dataclass(frozen=True)
class Row:
    """One preset on one policy; every size is relative to the uniform update's."""

    policy: str
    preset: str
    truth: float
    error: float
    point: float
    low: float
    high: float
    by_share: np.ndarray
    """The point for each of ``SHARES`` in place of φ."""

    @property
    def changes(self):
        """Whether the preset does anything to this policy's groups."""
        return self.error > 0 or self.truth != 1

    @property
    def inside(self):
        return self.low - 1e-6 <= self.truth <= self.high + 1e-6

    def __str__(self):
        return (
            f"{self.policy:20s} {self.preset:13s} {self.truth:6.3f} ±{self.error:.3f} "
            f"{self.point:6.3f}  [{self.low:.3f}, {self.high:.3f}]{'' if self.inside else '  out'}"
        )


def rows_of(policy, batch, truth):
    """The estimates of every preset, beside its truth and standard error."""
    decisions = {preset: build(preset).decide(batch) for preset in truth}
    by_share = [estimate_step(batch, decisions, phi=share) for share in SHARES]
    sizes = estimate_step(batch, decisions)

    def relative(found, preset, name="effective_batch"):
        return found[preset][name] / found["none"]["effective_batch"]

    return [
        Row(
            policy,
            preset,
            *truth[preset],
            relative(sizes, preset),
            relative(sizes, preset, "effective_batch_low"),
            relative(sizes, preset, "effective_batch_high"),
            np.array([relative(found, preset) for found in by_share]),
        )
        for preset in truth
        if preset != "none"
    ]


@pytest.fixture(scope="module")
def measured(request):
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    cache = request.config.cache.mkdir("policies")
    second = os.environ.get("PYTEST_XDIST_WORKER", "gw0") != "gw0"
    for name in reversed(POLICIES) if second else POLICIES:  # two workers meet in the middle
        measure(name, cache)
    yield {name: measure(name, cache) for name in POLICIES}
    torch.set_num_threads(threads)


@pytest.fixture(scope="module")
def rows(measured):
    return [r for name, own in measured.items() for r in rows_of(name, own.batch, own.truth)]


@pytest.fixture(scope="module")
def language_model_rows():
    """Of SmolLM2-135M: each token of a response is given the response's mean (1 − π)²."""
    held = json.loads(LANGUAGE_MODEL.read_text(encoding="utf-8"))
    groups = held["groups"]
    lengths = np.concatenate([g["lengths"] for g in groups])
    residual = np.concatenate([g["squared_residual"] for g in groups]) / lengths
    log_probs = np.repeat(np.log1p(-np.sqrt(residual)), lengths).astype(np.float32)
    size = len(groups[0]["rewards"])
    uids = np.repeat(np.array([f"{i:03d}" for i in range(len(groups))], dtype=object), size)
    columns = {
        "step": 1,
        "group_uid": uids,
        "prompt_id": uids,
        "reward": np.concatenate([g["rewards"] for g in groups]),
        "num_tokens": lengths,
        "old_log_probs": (log_probs, lengths),
        "domain": np.repeat(np.array([g["domain"] for g in groups], dtype=object), size),
    }
    truth = {"none": (1.0, 0.0), **{k: tuple(v) for k, v in held["truth"].items()}}
    return rows_of("smollm2-135m", from_columns(columns), truth)


def table(rows):
    header = f"{'policy':20s} {'preset':13s}  truth  error   point  [low, high]"
    return "\n".join(["", header, *map(str, rows), *summary(rows)])


def log_errors(rows, place=None):
    """ln(point / truth) of rows that change something; the point is that of a share's place."""
    kept = [row for row in rows if row.changes]
    points = [row.point if place is None else row.by_share[place] for row in kept]
    return np.log(np.array(points) / np.array([row.truth for row in kept]))


def rms(values):
    return float(np.sqrt(np.mean(np.square(values))))


def left_out(rows):
    """Policy → the share that fits the others best, and the log-RMSE with it here."""
    found = {}
    for policy in dict.fromkeys(row.policy for row in rows):
        others = [row for row in rows if row.policy != policy]
        own = [row for row in rows if row.policy == policy]
        best = min(range(len(SHARES)), key=lambda place: rms(log_errors(others, place)))
        found[policy] = (float(SHARES[best]), rms(log_errors(own, best)))
    return found


def summary(rows):
    yield f"log-RMSE {rms(log_errors(rows)):.3f} with φ = {PHI}; by policy, and left out:"
    for policy, (share, error) in left_out(rows).items():
        own = rms(log_errors([row for row in rows if row.policy == policy]))
        yield f"{policy:20s} {own:.3f}  φ of the others {share:.2f}: {error:.3f}"
    judged = [row for row in rows if row.changes]
    yield f"inside the bracket: {sum(row.inside for row in judged)} of {len(judged)}"


def test_solve_rates_spread_from_none_to_all(measured):
    for own in measured.values():
        solved_G = own.batch.reward_N.reshape(-1, GROUP_SIZE).mean(1)
        assert 0.4 < solved_G.mean() < 0.6
        counts = np.bincount(np.rint(solved_G * GROUP_SIZE).astype(int), minlength=GROUP_SIZE + 1)
        assert min(counts[0], counts[-1]) > 0.05 * len(solved_G)
        assert own.live > 0.3 * len(solved_G)


def test_dapo_and_a_rule_without_effect_are_the_uniform_update(rows):
    """Groups of one reward carry no gradient, so leaving them out changes nothing."""
    for row in rows:
        if row.preset == "dapo":
            assert (row.truth, row.point, row.low, row.high) == pytest.approx((1, 1, 1, 1))


def test_point_is_within_log_rmse_of_truth(rows, language_model_rows, capsys):
    with capsys.disabled():
        print(table([*rows, *language_model_rows]))
    assert rms(log_errors(rows)) <= 0.25
    by_policy = [rms(log_errors([r for r in rows if r.policy == p])) for p in POLICIES]
    assert np.exp(max(by_policy)) <= ERROR_SMALL
    assert np.exp(rms(log_errors(language_model_rows))) == pytest.approx(ERROR_LANGUAGE, abs=0.05)


def test_bracket_holds_nine_of_ten_truths_by_the_letter(rows):
    judged = [row for row in rows if row.changes]
    assert np.mean([row.inside for row in judged]) >= 0.9, table(rows)


def test_difffilter_is_in_the_bracket_of_every_policy(rows, language_model_rows):
    own = [r for r in (*rows, *language_model_rows) if r.preset.startswith("difffilter")]
    assert all(row.inside for row in own), table(own)


def test_a_share_fitted_to_the_other_policies_does_no_better(rows, language_model_rows):
    """So what is left belongs to the policy, and no log of one policy tells another's φ."""
    everything = [*rows, *language_model_rows]
    fitted = rms([error for _, error in left_out(everything).values()])
    own = [rms(log_errors([r for r in everything if r.policy == p])) for p in left_out(everything)]
    assert fitted > rms(own) - 0.02, table(everything)
