"""Loss coefficients against verl's own ``agg_loss``: modes, ranks, micro-batches, padding."""

from __future__ import annotations

import numpy as np
import pytest

from dfsim.sim.estimators.aggregation import LOSS_AGG_MODES, check_mode, coefficients
from dfsim.traces.assemble import from_columns
from dfsim.traces.errors import DfsimError

NUM_RESPONSES, ROWS, SCALE, WIDTH = 11, 16, 40, 7


def batch_with_outputs(rng):
    """11 responses of one or two outputs, dealt to two mini-batches of 16 configured rows."""
    counts = rng.integers(1, 3, NUM_RESPONSES)
    tokens = rng.integers(0, WIDTH, int(counts.sum()))
    tokens[:2] = [3, 5]
    mini = rng.integers(0, 2, len(tokens))
    lengths = np.add.reduceat(tokens, np.concatenate(([0], np.cumsum(counts)[:-1])))
    return from_columns(
        {
            "step": 1,
            "group_uid": np.array(["g"] * NUM_RESPONSES, dtype=object),
            "rollout_idx": np.arange(NUM_RESPONSES),
            "reward": rng.normal(size=NUM_RESPONSES),
            "num_tokens": lengths,
            "output_tokens": (tokens, counts),
            "mini_batch": (mini, counts),
        },
        mini_batch_rows=ROWS,
        loss_scale_factor=SCALE,
    )


def verl_loss(mode, rows, masks, tokens_in_mini_batch, ranks, micro_batches):
    """Mean over ranks of the summed micro-batch losses, as FSDP reduces gradients."""
    torch = pytest.importorskip("torch")
    from verl.trainer.ppo.core_algos import agg_loss

    per_rank = []
    for rank in range(ranks):
        mine = np.arange(len(rows))[rank::ranks]
        parts = np.array_split(mine, micro_batches)
        losses = [
            agg_loss(
                torch.tensor(rows[part]),
                torch.tensor(masks[part]),
                mode,
                dp_size=ranks,
                batch_num_tokens=tokens_in_mini_batch,
                global_batch_size=ROWS,
                loss_scale_factor=SCALE,
            )
            for part in parts
            if len(part)
        ]
        per_rank.append(float(sum(losses)))
    return sum(per_rank) / ranks


@pytest.mark.live
@pytest.mark.parametrize("mode", LOSS_AGG_MODES)
@pytest.mark.parametrize("ranks", [1, 2])
@pytest.mark.parametrize("micro_batches", [1, 3])
def test_coefficients_give_verls_loss(mode, ranks, micro_batches):
    pytest.importorskip("verl", reason="needs the extra live (verl 0.9.1)")
    rng = np.random.default_rng(5)
    batch = batch_with_outputs(rng)
    coefficient = coefficients(batch, check_mode(mode))
    for mini in (0, 1):
        outputs = np.flatnonzero(batch.mini_batch_O == mini)
        tokens = batch.output_tokens_O[outputs]
        rows = np.zeros((ROWS, WIDTH))
        masks = np.zeros((ROWS, WIDTH))
        for place, count in enumerate(tokens):
            masks[place, :count] = 1
            rows[place] = rng.normal(size=WIDTH)
        order = rng.permutation(ROWS)
        theirs = verl_loss(mode, rows[order], masks[order], int(tokens.sum()), ranks, micro_batches)
        sums = (rows * masks).sum(axis=1)[: len(outputs)]
        ours = float((coefficient[outputs] * sums).sum())
        assert ours == pytest.approx(theirs, rel=1e-6)


def test_modes_without_verl():
    """Two responses of 1 and 3 tokens in one mini-batch of two rows, by hand."""
    batch = from_columns(
        {"step": 1, "group_uid": ["a", "a"], "reward": [1.0, 0.0], "num_tokens": [1, 3]},
        loss_scale_factor=10.0,
    )
    by_hand = {
        "token-mean": [1 / 4, 1 / 4],
        "token-sum": [1, 1],
        "seq-mean-token-mean": [1 / 2, 1 / 6],
        "seq-mean-token-sum": [1 / 2, 1 / 2],
        "seq-mean-token-sum-norm": [1 / 20, 1 / 20],
    }
    assert by_hand.keys() == set(LOSS_AGG_MODES)
    for mode, expected in by_hand.items():
        np.testing.assert_allclose(coefficients(batch, check_mode(mode)), expected)


def test_norm_mode_without_a_scale_factor_is_unknown():
    batch = from_columns({"step": 1, "group_uid": ["a"], "reward": [1.0], "num_tokens": [2]})
    assert np.isnan(coefficients(batch, "seq-mean-token-sum-norm")).all()


def test_unknown_mode_names_the_nearest():
    with pytest.raises(DfsimError, match="did you mean 'token-mean'"):
        check_mode("token_mean")
