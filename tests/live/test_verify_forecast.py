"""The forecast beside what a live run shows: for as many steps, of the same size, and no gate."""

from __future__ import annotations

import numpy as np
import pytest
from conftest import ROOT
from said import run

from dfsim.live.core.delivery import apply
from dfsim.live.core.promotion import read_promotion, sealed
from dfsim.strategies.build import build
from dfsim.traces.storage.store import open_trace

pytest.importorskip("pyarrow")

from live_trace import live_trace
from promoted import checked, promotion_of


@pytest.mark.parametrize(
    ("low", "high", "inside"), [(0.0, 1.0, True), (0.9, 1.0, False), (None, None, None)]
)
def test_a_figure_outside_is_told_and_no_fault(tmp_path, low, high, inside):
    path = live_trace(tmp_path / "live", build("maxvar"))
    out = promotion_of(tmp_path, build("maxvar"))
    file = out / "promotion.json"
    record = read_promotion(out).record()
    record["forecast"]["kept_frac"] |= {"future_low": low, "future_high": high}
    file.write_text(sealed(record))
    found = checked(path, read_promotion(out))
    (one,) = [c for c in found.comparisons if c.name == "kept_frac"]
    batches = list(open_trace(path).batches(["num_tokens"]))
    kept = [apply(build("maxvar").decide(b), b).weight_N.mean(dtype=float) for b in batches]
    assert one.observed == pytest.approx(np.mean(kept), abs=0.05)  # steps differ in size
    assert one.inside is inside
    assert found.passed
    lines = [
        s for s in run("verify", path, "--promotion", out).stdout.splitlines() if "kept_f" in s
    ]
    assert ("outside" in lines[0]) == (inside is False)


def test_the_interval_is_for_as_many_steps_as_ran(tmp_path):
    """A mean over L steps strays √(1 + S/L) as far from the forecast of S steps."""
    strategy = build("topk")
    path = live_trace(tmp_path / "live", strategy, steps=4)
    promotion = read_promotion(promotion_of(tmp_path, strategy, source=ROOT / "traces"))
    wider = (1 + promotion.trace["steps"] / 4) ** 0.5
    forecast = promotion.forecast["live_group_frac"]
    (one,) = [c for c in checked(path, promotion).comparisons if c.name == "live_group_frac"]
    for end in ("low", "high"):
        reach = (forecast[f"future_{end}"] - forecast["mean"]) * wider
        assert getattr(one, end) == pytest.approx(forecast["mean"] + reach)


def test_an_effective_batch_of_another_size_is_not_judged(tmp_path):
    strategy = build("topk")
    path = live_trace(tmp_path / "live", strategy, steps=4)
    out = promotion_of(tmp_path, strategy, source=ROOT / "traces")
    file = out / "promotion.json"
    record = read_promotion(out).record()
    groups = open_trace(path).count("groups") / 4
    assert groups < 0.5 * record["forecast"]["num_groups"]["mean"]
    apart = checked(path, read_promotion(out))
    record["forecast"]["num_groups"]["mean"] = groups
    file.write_text(sealed(record))
    alike = checked(path, read_promotion(out))
    for found, judged in ((apart, False), (alike, True)):
        inside = {c.name: c.inside for c in found.comparisons}
        assert (inside["effective_batch"] is not None) == judged
        assert inside["kept_frac"] is not None
        assert any("effective_batch grows with them" in n for n in found.notes) != judged
