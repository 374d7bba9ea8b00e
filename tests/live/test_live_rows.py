"""Output rows in the trainer's order against a slow reading of the same rows, and the way back."""

from __future__ import annotations

import dataclasses
import hashlib
import itertools
import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from live_made import UIDS, assert_same_bits, random_rows, random_sessions, rows_of_sessions

from dfsim.live.core.delivery import apply
from dfsim.live.core.rows import OutputRows, Responses, mini_batches, prompt_digest
from dfsim.strategies.build import build
from dfsim.strategies.catalog import WEIGHING
from dfsim.traces.assemble import from_columns
from dfsim.traces.errors import TraceError
from dfsim.traces.ragged import offsets_of
from dfsim.traces.storage.manifest import Manifest
from dfsim.traces.storage.store import TraceWriter, open_trace

SOME = settings(max_examples=60, deadline=None, derandomize=True)
FEW = settings(max_examples=15, deadline=None, derandomize=True)
ALWAYS = ("advantage", "advantages", "num_tokens")  # what every strategy may read
seeds = st.integers(0, 2**32 - 1)
SHAPES = st.fixed_dictionaries(
    {
        "groups": st.integers(1, len(UIDS)),
        "outputs": st.integers(1, 3),
        "padding": st.integers(0, 4),
        "per_token": st.booleans(),
        "mini_batch": st.booleans(),
        "is_weights": st.booleans(),
    }
)


def slow(rows: OutputRows):
    """Responses as dictionaries, in canonical order, each with the flat places of its tokens."""
    sessions: dict[tuple[bytes, int], dict[int, int]] = {}
    for row, key in enumerate(rows.keys):
        if rows.is_padding_R[row]:
            continue
        *uid, session, output = key.split("_")
        place = ("_".join(uid).encode(), int(session))
        sessions.setdefault(place, {})[int(output)] = row
    found = []
    for (uid, session), outputs in sorted(sessions.items()):
        mine = [outputs[o] for o in sorted(outputs)]
        places = [
            [f for f in range(rows.offsets[r], rows.offsets[r + 1]) if rows.mask_F[f]] for r in mine
        ]
        found.append({"uid": uid.decode(), "session": session, "rows": mine, "places": places})
    return found


def flat_of(response):
    return [place for places in response["places"] for place in places]


def split(pair):
    values, lengths = pair
    cuts = np.cumsum(lengths)[:-1]
    return [part.tolist() for part in np.split(np.asarray(values), cuts)]


@given(seeds, SHAPES)
@SOME
def test_responses_are_what_a_slow_reading_finds(seed, shape):
    rows = random_rows(np.random.default_rng(seed), **shape)
    wanted, columns = slow(rows), Responses(rows).columns
    assert columns["group_uid"].tolist() == [w["uid"] for w in wanted]
    assert columns["rollout_idx"].tolist() == [w["session"] for w in wanted]
    assert columns["num_tokens"].tolist() == [len(flat_of(w)) for w in wanted]
    assert columns["reward"].tolist() == [float(rows.reward_R[w["rows"][-1]]) for w in wanted]
    assert columns["acc"].tolist() == [rows.extras["acc"][w["rows"][-1]] for w in wanted]
    head = {}
    for w in wanted:
        head.setdefault(w["uid"], w["rows"][0])
    assert columns["prompt_id"].tolist() == [rows.prompt_R[head[w["uid"]]] for w in wanted]
    assert columns["domain"].tolist() == [rows.domain_R[head[w["uid"]]] for w in wanted]
    for name in ("old_log_probs", "entropy"):
        values = rows.tokens[name]
        assert columns[name][0].dtype == np.float32
        assert split(columns[name]) == [[float(values[f]) for f in flat_of(w)] for w in wanted]
    several = any(len(w["rows"]) > 1 for w in wanted)
    assert ("output_tokens" in columns) == (several or shape["mini_batch"])
    if "output_tokens" in columns:
        counts = [[len(p) for p in w["places"]] for w in wanted]
        assert split(columns["output_tokens"]) == counts
    assert ("mini_batch" in columns) == shape["mini_batch"]
    if shape["mini_batch"]:
        cut = [[int(rows.mini_batch_R[r]) for r in w["rows"]] for w in wanted]
        assert split(columns["mini_batch"]) == cut


@given(seeds, SHAPES)
@SOME
def test_advantages_are_one_a_response_or_one_a_token(seed, shape):
    rows = random_rows(np.random.default_rng(seed), **shape)
    columns = Responses(rows).columns
    lists = [[float(rows.advantage_F[f]) for f in flat_of(w)] for w in slow(rows)]
    differ = any(len(set(part)) > 1 for part in lists)
    assert ("advantages" in columns) == differ
    if differ:
        assert split(columns["advantages"]) == lists
    means = [math.fsum(part) / len(part) if part else 0.0 for part in lists]
    np.testing.assert_allclose(columns["advantage"], means, rtol=1e-12, atol=1e-12)
    if not differ:
        assert columns["advantage"].tolist() == [part[0] if part else 0.0 for part in lists]


@given(seeds)
@FEW
def test_weights_that_were_there_before_are_averaged_over_a_response(seed):
    rows = random_rows(np.random.default_rng(seed), is_weights=True)
    lists = [[float(rows.is_weight_F[f]) for f in flat_of(w)] for w in slow(rows)]
    wanted = [math.fsum(part) / len(part) if part else 0.0 for part in lists]
    np.testing.assert_allclose(Responses(rows).columns["is_weight_in"], wanted, rtol=1e-6)


@given(seeds)
@FEW
def test_policy_versions_are_the_oldest_and_newest_of_all_outputs(seed):
    rows = random_rows(np.random.default_rng(seed))
    columns = Responses(rows).columns
    versions = [[int(rows.policy_version_min_R[r]) for r in w["rows"]] for w in slow(rows)]
    assert columns["policy_version_min"].tolist() == [min(v) for v in versions]
    assert columns["policy_version_max"].tolist() == [max(v) for v in versions]


@given(seeds, SHAPES)
@SOME
def test_spread_lands_on_exactly_the_trained_tokens(seed, shape):
    rng = np.random.default_rng(seed)
    rows = random_rows(rng, **shape)
    responses = Responses(rows)
    before = rng.random(len(rows.mask_F))
    values = rng.random(len(responses.flat_T))
    wanted = before.astype(np.float32)
    places = [f for w in slow(rows) for f in flat_of(w)]
    assert len(places) == len(values)
    for place, value in zip(places, values, strict=True):
        wanted[place] = np.float32(value)
    untouched = before.copy()
    spread = responses.spread(values, before)
    assert spread.dtype == np.float32
    assert spread.tobytes() == wanted.tobytes()
    assert before.tobytes() == untouched.tobytes()
    padding = np.repeat(rows.is_padding_R, np.diff(rows.offsets))
    assert (spread == before.astype(np.float32))[padding | ~rows.mask_F].all()


@given(seeds, SHAPES)
@SOME
def test_the_order_is_that_of_a_batch_whatever_the_order_of_rows(seed, shape):
    rng = np.random.default_rng(seed)
    sessions = random_sessions(rng, groups=shape["groups"], per_token=shape["per_token"])
    one = Responses(rows_of_sessions(rng, sessions, padding=0, mini_batch=False))
    two = Responses(rows_of_sessions(rng, sessions, padding=5, mini_batch=False))
    assert_same_bits(one.batch(), two.batch())
    order = rng.permutation(len(one.num_tokens_N))
    shuffled = {}
    for name, value in one.columns.items():
        if isinstance(value, tuple):
            cuts, lengths = offsets_of(value[1]), value[1][order]
            parts = [value[0][cuts[i] : cuts[i + 1]] for i in order]
            shuffled[name] = (np.concatenate(parts), lengths)
        else:
            shuffled[name] = value if np.ndim(value) == 0 else np.asarray(value)[order]
    assert_same_bits(from_columns(shuffled), one.batch())


def test_a_missing_domain_is_named_where_others_have_one():
    rng = np.random.default_rng(3)
    sessions = random_sessions(rng, groups=3)
    for s in sessions:
        s["domain"] = None if s["uid"] == sessions[0]["uid"] else "math"
    batch = Responses(rows_of_sessions(rng, sessions)).batch()
    assert batch.domains == ("math", "unlabelled")
    named = dict(zip(batch.uid_G, batch.domain_G, strict=True))
    assert [u for u, code in named.items() if code == 1] == [sessions[0]["uid"]]


def test_a_verifiers_number_never_hides_a_column_of_the_trace():
    rows = random_rows(np.random.default_rng(4))
    reward = {"reward": np.full(len(rows.keys), 9.0)}
    columns = Responses(dataclasses.replace(rows, extras=reward)).columns
    assert columns["reward"].max() <= 1
    assert set(columns["verifier_reward"]) == {9.0}


def test_a_penalised_reward_keeps_the_verifiers_score_beside_it():
    rows = random_rows(np.random.default_rng(5))
    score = rows.reward_R + np.float32(0.25)
    columns = Responses(dataclasses.replace(rows, task_reward_R=score)).columns
    assert (columns["task_reward"] - columns["reward"]).tolist() == [0.25] * len(columns["reward"])


def test_a_step_of_padding_alone_is_refused():
    rows = random_rows(np.random.default_rng(6))
    blank = dataclasses.replace(rows, is_padding_R=np.ones(len(rows.keys), bool))
    with pytest.raises(TraceError, match="step 7: every row is padding"):
        Responses(blank)


# On disk and back


@pytest.mark.live
@pytest.mark.parametrize("per_token", [False, True])
@given(seeds)
@FEW
def test_a_captured_batch_is_the_live_one_and_every_preset_decides_the_same(
    tmp_path_factory, per_token, seed
):
    pytest.importorskip("pyarrow")
    from dfsim.live.core.capture import columns_of, to_frame

    rng = np.random.default_rng(seed)
    options = {"mini_batch": bool(seed % 2), "per_token": per_token}
    responses = Responses(random_rows(rng, **options))
    folder = tmp_path_factory.mktemp("trace")
    writer = TraceWriter(folder, Manifest(writer="test", config={"n": 6, "ppo_mini_batch_size": 4}))
    writer.write_step(to_frame(columns_of(responses, None, tokens=True, text=False)))
    live = responses.batch(mini_batch_rows=24)
    (read,) = open_trace(folder).batches(responses.columns)
    assert_same_bits(read, live)
    for name in WEIGHING:
        strategy = build(name)
        needed = {*strategy.columns, *strategy.optional_columns, *ALWAYS}
        (light,) = open_trace(folder).batches(needed)
        mine = apply(strategy.decide(live), live).digest()
        assert apply(strategy.decide(light), light).digest() == mine, name


@pytest.mark.live
def test_weights_that_were_there_before_read_back_to_the_bit(tmp_path):
    pytest.importorskip("pyarrow")
    from dfsim.live.core.capture import columns_of, to_frame

    responses = Responses(random_rows(np.random.default_rng(8), is_weights=True))
    frame = to_frame(columns_of(responses, None, tokens=False, text=False))
    TraceWriter(tmp_path, Manifest(writer="test")).write_step(frame)
    (read,) = open_trace(tmp_path).batches(["is_weight_in"])
    live = responses.batch().extras["is_weight_in"]
    assert read.extras["is_weight_in"].tobytes() == live.tobytes()


@pytest.mark.live
def test_a_domain_has_the_same_name_live_and_read_back(tmp_path):
    pytest.importorskip("pyarrow")
    from dfsim.live.core.capture import columns_of, to_frame

    rng = np.random.default_rng(9)
    writer, live = TraceWriter(tmp_path, Manifest(writer="test")), []
    for step, domain in enumerate(("copy", "sort"), start=1):
        sessions = [{**s, "domain": domain} for s in random_sessions(rng)]
        responses = Responses(rows_of_sessions(rng, sessions, step=step))
        writer.write_step(to_frame(columns_of(responses, None, tokens=False, text=False)))
        live.append(responses.batch())
    for mine, read in zip(live, open_trace(tmp_path).batches(["domain"]), strict=True):
        named = [read.domains[code] for code in read.domain_N]
        assert named == [mine.domains[code] for code in mine.domain_N]


# Mini-batches and prompts


def shares(rows: int, ranks: int, mini_batch_rows: int):
    """verl, literally: each rank takes a contiguous share and cuts it into mini-batches."""
    left, found = list(range(rows)), {}
    for _ in range(ranks):
        share, left = left[: rows // ranks], left[rows // ranks :]
        for number in itertools.count():
            cut, share = share[: mini_batch_rows // ranks], share[mini_batch_rows // ranks :]
            found.update(dict.fromkeys(cut, number))
            if not share:
                break
    return [found[row] for row in range(rows)]


@given(st.integers(1, 6), st.integers(1, 5), st.integers(1, 5))
@SOME
def test_mini_batches_are_verls_contiguous_shares(ranks, per_rank, updates):
    rows, mini = ranks * per_rank * updates, ranks * per_rank
    found = mini_batches(rows, ranks, mini)
    assert found.tolist() == shares(rows, ranks, mini)
    assert np.bincount(found).tolist() == [mini] * updates


def test_mini_batches_by_hand():
    assert mini_batches(8, 2, 4).tolist() == [0, 0, 1, 1, 0, 0, 1, 1]
    assert mini_batches(6, 1, 2).tolist() == [0, 0, 1, 1, 2, 2]


@given(st.lists(st.integers(-1, 2**31), max_size=6))
@FEW
def test_a_prompt_has_one_name_whatever_holds_its_ids(ids):
    raw = b"".join(i.to_bytes(8, "little", signed=True) for i in ids)
    wanted = hashlib.blake2b(raw, digest_size=8).hexdigest()
    held = np.array(ids, np.int64)
    assert prompt_digest(held) == wanted
    assert prompt_digest(np.repeat(held, 2)[::2]) == wanted
    if all(i < 2**31 for i in ids):
        assert prompt_digest(held.astype(np.int32)) == wanted
    assert prompt_digest(np.append(held, 0)) != wanted


def test_texts_are_the_first_prompt_and_the_last_response():
    rows = random_rows(np.random.default_rng(10))
    told = {n: np.array([f"{n} {k}" for k in rows.keys], object) for n in ("prompt", "response")}
    texts = Responses(dataclasses.replace(rows, texts=told)).texts()
    wanted = slow(rows)
    assert texts["prompt"].tolist() == [f"prompt {rows.keys[w['rows'][0]]}" for w in wanted]
    assert texts["response"].tolist() == [f"response {rows.keys[w['rows'][-1]]}" for w in wanted]
    assert Responses(rows).texts() == {}


def test_a_mean_over_tokens_is_exact_where_it_can_be():
    # Dyadic weights: the mean of 0.5 and 0.25 is 3/8 in any arithmetic.
    rng = np.random.default_rng(11)
    mask = np.array([True, False, True])
    tokens = np.zeros(3, np.float32)
    output = {"mask": mask, "advantage": tokens, "old_log_probs": tokens, "entropy": tokens}
    session = {"uid": "u", "session": 0, "reward": 1.0, "domain": "d", "acc": 1.0}
    session["outputs"] = [{**output, "prompt": "p", "version": 1}]
    before = np.array([0.5, 9.0, 0.25], np.float32)
    rows = rows_of_sessions(rng, [session], padding=0, is_weight_F=before)
    assert Fraction(float(Responses(rows).columns["is_weight_in"][0])) == Fraction(3, 8)
