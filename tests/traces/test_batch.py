"""Batches in canonical order whatever the row order, and what no batch can hold."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dfsim.traces.assemble import from_columns
from dfsim.traces.batch import RolloutBatch
from dfsim.traces.errors import TraceError
from dfsim.traces.importers.base import ImportOptions
from dfsim.traces.importers.importing import import_trace
from dfsim.traces.ragged import offsets_of
from dfsim.traces.storage.store import open_trace
from dfsim.traces.synthetic import random_step

FEW = settings(max_examples=60, deadline=None, derandomize=True)
seeds = st.integers(0, 2**32 - 1)


def rich_step(rng: np.random.Generator) -> dict[str, Any]:
    """A hostile step with every kind of column: outputs, two token lists, extras, versions."""
    columns = random_step(rng)
    count = len(columns["reward"])
    lengths = np.asarray(columns["num_tokens"])
    outputs = rng.integers(1, 4, count)
    cuts = [rng.multinomial(t, np.full(o, 1 / o)) for t, o in zip(lengths, outputs, strict=True)]
    return {
        **columns,
        "output_tokens": (np.concatenate(cuts), outputs),
        "mini_batch": (rng.integers(0, 3, int(outputs.sum())), outputs),
        "entropy": (rng.random(int(lengths.sum())).astype(np.float32), lengths),
        "advantage": rng.normal(size=count),
        "policy_version_min": rng.integers(0, 5, count),
        "task_reward": rng.normal(size=count),
        "acc": rng.integers(0, 2, count).astype(float),
    }


def reordered(columns: dict[str, Any], order: Any) -> dict[str, Any]:
    out: dict[str, Any] = {}
    for name, value in columns.items():
        if isinstance(value, tuple):
            values, lengths = value
            parts = np.split(values, np.cumsum(lengths)[:-1])
            out[name] = (np.concatenate([parts[i] for i in order]), np.asarray(lengths)[order])
        else:
            out[name] = value if np.ndim(value) == 0 else np.asarray(value)[order]
    return out


def same(a: Any, b: Any) -> bool:
    if not isinstance(a, np.ndarray):
        return bool(a == b)
    floats = a.dtype.kind == "f"
    return a.dtype == b.dtype and np.array_equal(a, b, equal_nan=floats)


def assert_same_batch(one: RolloutBatch, two: RolloutBatch) -> None:
    for item in dataclasses.fields(RolloutBatch):
        a, b = getattr(one, item.name), getattr(two, item.name)
        if item.name == "extras":
            assert a.keys() == b.keys()
            assert all(same(a[k], b[k]) for k in a)
        else:
            assert same(a, b), item.name


def refusal(**changes: Any) -> str:
    columns = {"step": 1, "group_uid": ["a", "a", "b"], "reward": [1.0, 0.0, 0.5], **changes}
    with pytest.raises(TraceError) as caught:
        from_columns({k: v for k, v in columns.items() if v is not None}, where="source")
    text = str(caught.value)
    assert "\n" not in text
    return text


@given(seeds)
@FEW
def test_row_order_changes_nothing(seed):
    rng = np.random.default_rng(seed)
    columns = rich_step(rng)
    order = rng.permutation(len(columns["reward"]))
    assert_same_batch(from_columns(columns), from_columns(reordered(columns, order)))


@given(seeds)
@FEW
def test_every_value_follows_its_response(seed):
    columns = rich_step(np.random.default_rng(seed))
    batch = from_columns(columns)
    keys = [(batch.uid_G[g], i) for g, i in zip(batch.group_N, batch.rollout_idx_N, strict=True)]
    assert keys == sorted(keys, key=lambda key: (key[0].encode(), key[1]))
    starts = {
        name: offsets_of(columns[name][1]) for name in ("entropy", "old_log_probs", "mini_batch")
    }
    given_keys = zip(columns["group_uid"], columns["rollout_idx"], strict=True)
    source = {key: i for i, key in enumerate(given_keys)}
    assert len(source) == len(keys) == batch.num_responses
    lists = {
        "entropy": (batch.entropy_T, batch.token_offsets),
        "old_log_probs": (batch.old_log_prob_T, batch.token_offsets),
        "mini_batch": (batch.mini_batch_O, batch.output_offsets),
    }
    for row, key in enumerate(keys):
        i = source[key]
        assert batch.reward_N[row] == columns["reward"][i]
        assert batch.extras["task_reward"][row] == columns["task_reward"][i]
        assert batch.domains[batch.domain_N[row]] == columns["domain"][i]
        assert batch.prompt_id_G[batch.group_N[row]] == columns["prompt_id"][i]
        for name, (values, offsets) in lists.items():
            mine = values[offsets[row] : offsets[row + 1]].tolist()
            a, b = starts[name][i], starts[name][i + 1]
            assert mine == columns[name][0][a:b].tolist()


@given(seeds)
@FEW
def test_the_givers_arrays_stay_as_they_were_and_the_batch_is_read_only(seed):
    columns = rich_step(np.random.default_rng(seed))
    order = np.lexsort((columns["rollout_idx"], columns["group_uid"].astype(str)))
    columns = reordered(columns, order)  # in canonical order nothing has to be copied
    before = {k: np.copy(v[0] if isinstance(v, tuple) else v) for k, v in columns.items()}
    batch = from_columns(columns)
    for name, value in columns.items():
        array = value[0] if isinstance(value, tuple) else value
        if isinstance(array, np.ndarray):
            assert array.flags.writeable, name
            assert np.array_equal(array, before[name]), name
    arrays = [getattr(batch, f.name) for f in dataclasses.fields(batch)]
    for array in [*arrays, *batch.extras.values()]:
        if isinstance(array, np.ndarray):
            assert not array.flags.writeable
    with pytest.raises(ValueError):
        batch.reward_N[0] = 5.0


@given(seeds)
@FEW
def test_taking_rows_is_building_from_them(seed):
    rng = np.random.default_rng(seed)
    columns = rich_step(rng)
    keep = rng.random(len(columns["reward"])) < 0.6
    keep[0] = True
    whole = from_columns(columns, domains=("d0", "d1", "d2"))
    source = zip(columns["group_uid"], columns["rollout_idx"], strict=True)
    kept = {key for key, k in zip(source, keep, strict=True) if k}
    mask = np.array(
        [
            (whole.uid_G[g], i) in kept
            for g, i in zip(whole.group_N, whole.rollout_idx_N, strict=True)
        ]
    )
    part = from_columns(reordered(columns, np.flatnonzero(keep)), domains=("d0", "d1", "d2"))
    assert_same_batch(whole.take(mask), part)


def test_an_empty_batch_has_no_groups():
    batch = from_columns({"step": 3, "group_uid": [], "reward": [], "old_log_probs": ([], [])})
    assert (batch.num_responses, batch.num_groups, batch.step) == (0, 0, 3)
    assert batch.buckets == ()


def test_without_an_index_rows_count_up_inside_their_group():
    batch = from_columns({"step": 1, "group_uid": ["b", "a", "b", "a"], "reward": [1, 2, 3, 4]})
    assert batch.rollout_idx_N.tolist() == [0, 1, 0, 1]
    assert batch.reward_N.tolist() == [2, 4, 1, 3]


def test_groups_sort_by_the_bytes_of_their_uid():
    uids = ["é", "a", "Z", "10", "9", "\U0001f600", "￿"]
    batch = from_columns({"step": 1, "group_uid": uids, "reward": range(7)})
    assert batch.uid_G.tolist() == sorted(uids, key=str.encode)
    assert batch.uid_G.tolist()[-1] == "\U0001f600"  # UTF-16 would put it before the last


def test_an_absent_column_is_none_and_asking_for_it_names_the_remedy():
    batch = from_columns({"step": 1, "group_uid": ["a"], "reward": [1.0], "acc": [1.0]})
    for name in ("num_tokens_N", "domain_N", "old_log_prob_T", "mini_batch_O", "prompt_id_G"):
        assert getattr(batch, name) is None
    with pytest.raises(TraceError, match=r"gfpo needs column 'num_tokens'.*--length chars"):
        batch.column("num_tokens", "gfpo")
    with pytest.raises(TraceError, match=r"mine needs column 'f1'.*extra columns .* are acc"):
        batch.column("f1", "mine")
    assert batch.column("acc", "mine").tolist() == [1.0]


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"reward": None}, ["source", "'reward' is missing"]),
        ({"group_uid": None}, ["source", "'group_uid' is missing"]),
        ({"step": None}, ["source", "'step' is missing"]),
        ({"step": [1, 2, 1]}, ["source", "steps 1 and 2"]),
        ({"rollout_idx": [3, 3, 3]}, ["rollout_idx=3", "'a'", "twice", "output_idx"]),
        ({"rollout_idx": [0, 1]}, ["'rollout_idx' has 2 of 3 rows"]),
        ({"reward": [1.0]}, ["'reward' has 1 of 3 rows"]),
        ({"domain": ["x", "y", "x"]}, ["group 'a'", "'domain'", "'x'", "'y'", "one prompt"]),
        ({"prompt_id": ["p", "q", "p"]}, ["group 'a'", "'prompt_id'", "'p'", "'q'"]),
        ({"entropy": ([0.1, 0.2], [1, 1])}, ["'entropy'", "2 lists", "3 rows"]),
        ({"entropy": ([0.1, 0.2], [1, 1, 1])}, ["'entropy'", "2 values", "of 3"]),
        (
            {"old_log_probs": ([-1.0] * 3, [1, 1, 1]), "entropy": ([0.1] * 4, [1, 2, 1])},
            ["'entropy' has 2 where others have 1", "'a'", "rollout_idx=1"],
        ),
        (
            {"old_log_probs": ([-1.0] * 3, [1, 1, 1]), "num_tokens": [1, 1, 4]},
            ["'num_tokens' has 4 where token lists have 1", "'b'"],
        ),
        (
            {"output_tokens": ([2, 2, 2], [1, 1, 1]), "num_tokens": [2, 2, 3]},
            ["'output_tokens' has 2 where num_tokens has 3", "'b'"],
        ),
        (
            {"mini_batch": ([0, 1, 1, 0], [2, 1, 1]), "num_tokens": [2, 2, 3]},
            ["'mini_batch' has 2", "output_tokens", "'a'"],
        ),
    ],
)
def test_what_no_batch_can_hold_is_refused(changes, said):
    text = refusal(**changes)
    for part in said:
        assert part in text


def test_a_domain_outside_the_given_ones_is_refused():
    columns = {"step": 1, "group_uid": ["a"], "reward": [1.0], "domain": ["math"]}
    with pytest.raises(TraceError, match="'math' is not among the domains given: code, logic"):
        from_columns(columns, domains=("code", "logic"))


def test_one_output_a_response_needs_no_output_lengths():
    columns = {"step": 1, "group_uid": ["a", "a"], "reward": [1, 0], "num_tokens": [3, 5]}
    batch = from_columns({**columns, "mini_batch": ([0, 1], [1, 1])})
    assert batch.output_tokens_O.tolist() == [3, 5]
    listed = from_columns(
        {**columns, "mini_batch": ([0, 1], [1, 1]), "old_log_probs": (np.zeros(8), [3, 5])}
    )
    assert listed.one_minus_prob_sq_O.tolist() == [0.0, 0.0]


def test_outputs_share_out_the_tokens_of_their_session():
    log_probs = np.log([0.5, 0.25, 0.5, 0.75, 0.5]).astype(np.float32)
    batch = from_columns(
        {
            "step": 1,
            "group_uid": ["a", "a"],
            "rollout_idx": [1, 0],
            "reward": [1, 0],
            "old_log_probs": (log_probs, [3, 2]),
            "output_tokens": ([2, 1, 2], [2, 1]),
        }
    )
    wanted = [0.25**2 + 0.5**2, 0.5**2 + 0.75**2, 0.5**2]  # (1 − π)², row 0 of group a first
    np.testing.assert_allclose(batch.one_minus_prob_sq_O, wanted, rtol=1e-6)
    assert batch.num_tokens_N.tolist() == [2, 3]


def test_log_probs_without_a_value_count_nothing():
    log_probs = np.array([np.nan, np.inf, -np.inf, 0.0], dtype=np.float32)
    batch = from_columns(
        {"step": 1, "group_uid": ["a"], "reward": [1], "old_log_probs": (log_probs, [4])}
    )
    assert batch.one_minus_prob_sq_O.tolist() == [1.0]  # only −inf: probability 0


def test_token_advantages_give_a_response_the_mean_of_their_size():
    columns = {"step": 1, "group_uid": ["a", "a"], "reward": [1, 0], "advantage": [2.0, -0.5]}
    batch = from_columns({**columns, "advantages": ([1.0, -3.0], [2, 0])})
    assert batch.abs_advantage_N.tolist() == [2.0, 0.5]  # without tokens its own |A|


@given(seeds, st.integers(0, 5))
@FEW
def test_tie_keys_look_at_prompts_and_not_at_random_uids(seed, tie_seed):
    rng = np.random.default_rng(seed)
    columns = random_step(rng)
    columns["prompt_id"] = columns["group_uid"]  # distinct prompts
    names = sorted(set(columns["group_uid"]))
    renamed = dict(zip(names, [f"v{i}" for i in rng.permutation(len(names))], strict=True))
    other = {**columns, "group_uid": np.array([renamed[u] for u in columns["group_uid"]], object)}

    def keys(batch: RolloutBatch, seed: int) -> dict[str, int]:
        found = batch.tie_keys(seed, np.arange(batch.num_groups))
        return dict(zip(batch.prompt_id_G.tolist(), found.tolist(), strict=True))

    mine = keys(from_columns(columns), tie_seed)
    assert mine == keys(from_columns(other), tie_seed)
    assert mine != keys(from_columns(columns), tie_seed + 1)
    assert len(set(mine.values())) == len(names)


# From rows with masks and several outputs


ROW: dict[str, Any] = {"step": 1, "group_uid": "g", "rollout_idx": 0, "reward": 1.0}


def imported(folder: Path, rows: list[dict[str, Any]], **columns: str) -> RolloutBatch:
    source = folder / "rows.jsonl"
    source.write_text("".join(json.dumps(row) + "\n" for row in rows))
    import_trace(source, folder / "out", options=ImportOptions(columns), force=True)
    trace = open_trace(folder / "out")
    (batch,) = trace.batches(trace.columns)
    return batch


def import_refusal(folder: Path, rows: list[dict[str, Any]], **columns: str) -> str:
    with pytest.raises(TraceError) as caught:
        imported(folder, rows, **columns)
    text = str(caught.value)
    assert text.startswith(f"{folder / 'rows.jsonl'}")
    assert "\n" not in text
    return text


def test_only_trainable_tokens_are_kept(tmp_path):
    rows = [
        {**ROW, "old_log_probs": [-1, -2, -3], "advantage": [0, 5, 5], "response_mask": [0, 1, 1]},
        {**ROW, "rollout_idx": 1, "old_log_probs": [-4], "advantage": [9], "response_mask": [0]},
        {**ROW, "rollout_idx": 2, "old_log_probs": [], "advantage": [], "response_mask": []},
        {**ROW, "rollout_idx": 3, "old_log_probs": [-6], "advantage": [-1], "response_mask": [1]},
    ]
    batch = imported(tmp_path, rows)
    assert batch.old_log_prob_T.tolist() == [-2, -3, -6]
    assert batch.num_tokens_N.tolist() == [2, 0, 0, 1]
    assert batch.advantage_N.tolist() == [5, 0, 0, -1]
    counted = imported(tmp_path, [{**ROW, "response_mask": [0, 1, 1, 1]}])
    assert counted.num_tokens_N.tolist() == [3]
    rows[0]["response_mask"] = [0, 1]
    text = import_refusal(tmp_path, rows)
    assert ":1: column 'old_log_probs' holds 3 values; response_mask has 2" in text
    rows[0]["response_mask"] = None
    assert ":1: column 'response_mask' holds no value" in import_refusal(tmp_path, rows)


def test_an_advantage_that_varies_over_tokens_belongs_elsewhere(tmp_path):
    rows = [{**ROW, "adv": [1.0, 1.0]}, {**ROW, "rollout_idx": 1, "adv": [1.0, 2.0]}]
    text = import_refusal(tmp_path, rows, advantage="adv")
    assert ":2: column 'adv' (as advantage) holds different values" in text
    assert "advantages=COLUMN" in text
    assert imported(tmp_path, rows, advantages="adv").advantage_T.tolist() == [1, 1, 1, 2]


def output(session: int, index: int, tokens: int, mini: int, **more: Any) -> dict[str, Any]:
    row = {**ROW, "rollout_idx": session, "output_idx": index, "mini_batch": mini}
    return {**row, "old_log_probs": [-float(index)] * tokens, "advantage": [0.5] * tokens, **more}


def test_outputs_of_a_session_merge_in_their_order(tmp_path):
    rows = [output(0, 1, 1, 1), output(1, 0, 2, 0), output(0, 0, 2, 0), output(0, 2, 0, 1)]
    batch = imported(tmp_path, rows)
    assert batch.old_log_prob_T.tolist() == [0, 0, -1, 0, 0]
    assert batch.output_offsets.tolist() == [0, 3, 4]
    assert batch.output_tokens_O.tolist() == [2, 1, 0, 2]
    assert batch.mini_batch_O.tolist() == [0, 1, 1, 0]
    assert batch.advantage_N.tolist() == [0.5, 0.5]  # an output without a token has no say
    assert batch.num_tokens_N.tolist() == [3, 2]


def test_outputs_that_contradict_each_other_are_refused(tmp_path):
    for more, said in [
        ({"reward": 0.25}, "differ in reward by 0.75"),
        ({"advantage": [-0.5]}, "differ in advantage by 1"),
        ({"output_idx": 0}, "has output_idx=0 twice"),
    ]:
        text = import_refusal(tmp_path, [output(3, 0, 1, 0), output(3, 1, 1, 0) | more])
        assert ", step 1: " in text
        assert "group 'g' rollout_idx=3" in text
        assert said in text
    rows = [{"step": 1, "group_uid": "g", "reward": 1.0, "output_idx": 0}]
    assert "without rollout_idx" in import_refusal(tmp_path, rows)


def test_a_trainers_mean_is_no_token_list_and_a_chat_is_no_text(tmp_path):
    chat = [{"role": "user", "content": "hi"}]
    rows = [{**ROW, "entropy": 0.5, "prompt": chat}, {**ROW, "rollout_idx": 1, "prompt": chat}]
    batch = imported(tmp_path, rows)
    assert batch.entropy_T is None
    assert len(batch.prompt_id_G) == 1
    text = import_refusal(tmp_path, rows[:1], entropy="entropy")
    assert "it must be a list with one value a token" in text
