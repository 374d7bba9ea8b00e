"""``effective_batch``, the headline, against the true gradients of a small policy.

Three GRU policies with shared parameters learn to copy, reverse or increment 2–5 digits until half
of their samples are exactly right. Then come 4,000 prompts × 8 responses each, every prompt group's
GRPO gradient under every strategy, and from those the true ratio of squared signal to noise.

A true ratio here is itself an estimate, with a standard error of mostly 1–8 %, while the brackets
of ``topk`` and ``gfpo`` are 2–9 % wide. So a truth counts as outside [low, high] where it is so by
over two of its standard errors. Of twelve policies (seeds 0–11) log-RMSE was .08–.20, and 90 % of
the truths were inside; 77 % with no allowance, where ``gfpo`` was outside in all twelve.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pytest

from dfsim.sim.estimators import estimate_step
from dfsim.strategies.catalog import PRESETS, build
from dfsim.traces.assemble import from_columns

torch = pytest.importorskip("torch", reason="true gradients need the torch of the extra dev")

pytestmark = pytest.mark.torch

SEEDS = (0, 1, 2)
GROUPS, GROUP_SIZE = 4000, 8
CHUNK, BLOCKS = 500, 20
STANDARD_ERRORS = 2.0

SHORTEST, LONGEST, WIDTH = 2, 5, 8
END, PAD, ASK, FIRST_TASK, VOCAB = 10, 11, 12, 13, 16
REVERSE, INCREMENT = 1, 2
EMBEDDING, HIDDEN = 16, 32


def draw_tasks(rng, count):
    """Prompts (count, LONGEST + 2), padded left, and their answers (count, WIDTH), padded right."""
    task = rng.integers(3, size=(count, 1))
    size = rng.integers(SHORTEST, LONGEST + 1, size=(count, 1))
    digits = rng.integers(10, size=(count, LONGEST))

    def digit_at(place):
        return np.take_along_axis(digits, np.clip(place, 0, LONGEST - 1), axis=1)

    place = np.arange(LONGEST + 2) - (LONGEST + 1 - size)
    prompt = np.select(
        [place < -1, place == -1, place < size], [PAD, FIRST_TASK + task, digit_at(place)], ASK
    )
    place = np.arange(WIDTH)
    digit = digit_at(np.where(task == REVERSE, size - 1 - place, place))
    wanted = (digit + (task == INCREMENT)) % 10
    answer = np.select([place < size, place == size], [wanted, END], PAD)
    return torch.as_tensor(prompt), torch.as_tensor(answer)


def new_policy(generator):
    def matrix(rows, columns):
        return torch.randn(rows, columns, generator=generator) * rows**-0.5

    return {
        "embedding": torch.randn(VOCAB, EMBEDDING, generator=generator),
        "input": matrix(EMBEDDING, 3 * HIDDEN),
        "state": matrix(HIDDEN, 3 * HIDDEN),
        "bias": torch.zeros(3 * HIDDEN),
        "head": matrix(HIDDEN, VOCAB),
    }


def advance(policy, token, state):
    """One GRU step."""
    inputs = policy["embedding"][token] @ policy["input"] + policy["bias"]
    reset, keep, candidate = inputs.chunk(3, -1)
    reset_state, keep_state, candidate_state = (state @ policy["state"]).chunk(3, -1)
    keep = torch.sigmoid(keep + keep_state)
    fresh = torch.tanh(candidate + torch.sigmoid(reset + reset_state) * candidate_state)
    return keep * state + (1 - keep) * fresh


def read(policy, prompt):
    state = torch.zeros(len(prompt), HIDDEN)
    for token in prompt.unbind(1):
        state = advance(policy, token, state)
    return state


def response_log_probs(policy, state, response):
    """Log-probabilities of the response tokens, from the state after the prompt."""
    found = []
    for token in response.unbind(1):
        log_probs = torch.log_softmax(state @ policy["head"], -1)
        found.append(log_probs.gather(1, token[:, None])[:, 0])
        state = advance(policy, token, state)
    return torch.stack(found, 1)


@torch.no_grad()
def sample(policy, prompt, generator):
    """Responses at temperature 1, padded after END, and their log-probabilities."""
    state = read(policy, prompt)
    done = torch.zeros(len(prompt), dtype=torch.bool)
    tokens, found = [], []
    for _ in range(WIDTH):
        log_probs = torch.log_softmax(state @ policy["head"], -1)
        token = torch.multinomial(log_probs.exp(), 1, generator=generator)[:, 0]
        token = token.masked_fill(done, PAD)
        found.append(log_probs.gather(1, token[:, None])[:, 0])
        tokens.append(token)
        done = done | (token == END)
        state = advance(policy, token, state)
    return torch.stack(tokens, 1), torch.stack(found, 1)


def warm_up(rng, generator):
    """Supervised training of a new policy until half of its samples are right."""
    policy = {name: value.requires_grad_() for name, value in new_policy(generator).items()}
    optimizer = torch.optim.AdamW(policy.values(), lr=1e-2)
    for update in range(1, 3001):
        prompt, answer = draw_tasks(rng, 256)
        log_probs = response_log_probs(policy, read(policy, prompt), answer)
        loss = -log_probs[answer != PAD].mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if update % 50 == 0:
            right = (sample(policy, prompt, generator)[0] == answer).all(1)
            if right.float().mean() >= 0.5:
                return {name: value.detach() for name, value in policy.items()}
    raise AssertionError("the warm-up never solved half of the prompts")


def rollout(policy, rng, generator):
    """Prompts (G, P), responses (G, n, WIDTH), their token mask, and the batch dfsim sees."""
    prompt, answer = draw_tasks(rng, GROUPS)
    rows = prompt.repeat_interleave(GROUP_SIZE, 0)
    response, log_probs = sample(policy, rows, generator)
    reward = (response == answer.repeat_interleave(GROUP_SIZE, 0)).all(1)
    ended = response == END
    mask = ended.int().cumsum(1) - ended.int() == 0
    lengths = mask.sum(1).numpy()
    group = np.repeat(np.arange(GROUPS), GROUP_SIZE)
    batch = from_columns(
        {
            "step": 1,
            "group_uid": np.array([f"{g:05d}" for g in group], dtype=object),
            "rollout_idx": np.tile(np.arange(GROUP_SIZE), GROUPS),
            "reward": reward.double().numpy(),
            "num_tokens": lengths,
            "old_log_probs": (log_probs[mask].numpy(), lengths),
            "prompt_id": np.array([str(p) for p in rows.tolist()], dtype=object),
        }
    )
    return prompt, response.reshape(GROUPS, GROUP_SIZE, WIDTH), mask, batch


def loss_coefficients(decision, batch, mask):
    """What multiplies ∇ log π of each token: w_it A_i; c is one constant under token-mean."""
    advantage = batch.advantage_N if decision.advantage_N is None else decision.advantage_N
    weight = decision.token_weight_T
    if weight is None:
        weight = np.repeat(decision.weight_N, batch.num_tokens_N)
    padded = torch.zeros(mask.shape)
    padded[mask] = torch.as_tensor(weight * np.repeat(advantage, batch.num_tokens_N)).float()
    return padded.reshape(GROUPS, GROUP_SIZE, WIDTH)


def group_objective(policy, prompt, response, coefficient):
    state = read(policy, prompt[None]).expand(GROUP_SIZE, -1)
    return (response_log_probs(policy, state, response) * coefficient).sum()


def gradient_moments(policy, prompt, response, coefficient):
    """Σ h_g (blocks, parameters) and Σ |h_g|² (blocks) of group gradients; groups dealt to blocks.

    A group all of whose coefficients are 0 has h_g = 0 and still counts as a group.
    """
    per_group = torch.func.vmap(torch.func.grad(group_objective), in_dims=(None, 0, 0, 0))
    sums = torch.zeros(BLOCKS, sum(value.numel() for value in policy.values()))
    sums, squares = sums.double(), torch.zeros(BLOCKS).double()
    moving = torch.nonzero((coefficient != 0).flatten(1).any(1))[:, 0]
    for chunk in moving.split(CHUNK):
        parts = per_group(policy, prompt[chunk], response[chunk], coefficient[chunk])
        gradient = torch.cat([part.flatten(1) for part in parts.values()], 1)
        sums.index_add_(0, chunk % BLOCKS, gradient.double())
        squares.index_add_(0, chunk % BLOCKS, gradient.square().sum(1).double())
    return sums, squares


def signal_to_noise(sums, squares, count):
    """|E h|² / tr cov h; the sampling noise of the mean is taken out of its squared length."""
    mean = sums.sum(0) / count
    length = mean @ mean
    noise = (squares.sum() - count * length) / (count - 1)
    return float(length / noise) - 1 / count


def true_ratio(moments, baseline):
    """Signal to noise relative to the baseline's, and its standard error (jackknife of blocks)."""
    whole = signal_to_noise(*moments, GROUPS) / signal_to_noise(*baseline, GROUPS)
    count = GROUPS - GROUPS // BLOCKS
    kept = [torch.arange(BLOCKS) != block for block in range(BLOCKS)]
    without = [
        signal_to_noise(moments[0][k], moments[1][k], count)
        / signal_to_noise(baseline[0][k], baseline[1][k], count)
        for k in kept
    ]
    return whole, float(np.sqrt((BLOCKS - 1) * np.var(without)))


@dataclass(frozen=True)
class Row:
    """One preset on one policy; every size is relative to the uniform update's."""

    seed: int
    preset: str
    truth: float
    error: float
    point: float
    low: float
    high: float

    @property
    def inside(self):
        slack = STANDARD_ERRORS * self.error + 1e-6
        return self.low - slack <= self.truth <= self.high + slack

    def __str__(self):
        return (
            f"{self.seed:4d} {self.preset:13s} {self.truth:6.3f} ±{self.error:.3f} "
            f"{self.point:6.3f}  [{self.low:.3f}, {self.high:.3f}] {'' if self.inside else 'out'}"
        )


def compare(seed):
    """Solve rates (G) of one policy's groups, and the comparison of every preset."""
    rng, generator = np.random.default_rng(seed), torch.Generator().manual_seed(seed)
    policy = warm_up(rng, generator)
    prompt, response, mask, batch = rollout(policy, rng, generator)
    decisions = {preset: build(preset).decide(batch) for preset in PRESETS}
    sizes = estimate_step(batch, decisions)
    moments = {
        preset: gradient_moments(policy, prompt, response, loss_coefficients(d, batch, mask))
        for preset, d in decisions.items()
    }
    baseline, rows = moments.pop("none"), []
    for preset, own in moments.items():
        estimates = [
            sizes[preset][name] / sizes["none"]["effective_batch"]
            for name in ("effective_batch", "effective_batch_low", "effective_batch_high")
        ]
        rows.append(Row(seed, preset, *true_ratio(own, baseline), *estimates))
    return batch.reward_N.reshape(GROUPS, GROUP_SIZE).mean(1), rows


@pytest.fixture(scope="module")
def comparisons():
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield [compare(seed) for seed in SEEDS]
    torch.set_num_threads(threads)


@pytest.fixture(scope="module")
def rows(comparisons):
    return [row for _, found in comparisons for row in found]


def table(rows):
    header = f"seed {'preset':13s}  truth  error   point  [low, high]"
    return "\n".join(["", header, *map(str, rows)])


def test_solve_rates_spread_from_none_to_all(comparisons):
    for solved_G, _ in comparisons:
        assert 0.4 < solved_G.mean() < 0.6
        counts = np.bincount(np.rint(solved_G * GROUP_SIZE).astype(int), minlength=GROUP_SIZE + 1)
        assert counts.min() > 0.03 * GROUPS
        assert min(counts[0], counts[-1]) > 0.1 * GROUPS


def test_point_is_within_log_rmse_of_truth(rows):
    errors = [np.log(row.point / row.truth) for row in rows]
    assert np.sqrt(np.mean(np.square(errors))) <= 0.3, table(rows)


def test_bracket_holds_the_truth_of_most_presets(rows):
    assert np.mean([row.inside for row in rows]) >= 0.8, table(rows)


def test_gfpo_fails_as_described(rows):
    """A group's solved responses are one and the same here, so their class has no noise inside."""
    gfpo = [row for row in rows if row.preset == "gfpo"]
    assert np.mean([r.truth for r in gfpo]) > np.mean([r.high for r in gfpo]), table(gfpo)
