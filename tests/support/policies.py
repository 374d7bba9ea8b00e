"""Small policies trained from scratch, and the exact gradient of every prompt group of theirs.

Three GRUs and a transformer learn to copy, reverse or increment 2–5 digits; another transformer
learns the rehearsal's three domains: sums, words reversed, a table. Each stops when half of its
samples are right. Then come fresh prompts × 8 responses, and the gradient of each.
"""

from __future__ import annotations

import hashlib
import inspect
import random
import sys
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from filelock import FileLock

from dfsim.live.rehearsal import task
from dfsim.strategies.build import build
from dfsim.strategies.catalog import WEIGHING
from dfsim.traces.assemble import from_columns

GROUP_SIZE, CHUNK, BLOCKS = 8, 50, 20

# Digits


class Digits:
    """Copy, reverse or increment 2–5 digits; the domain is the task."""

    pad, end, vocabulary, prompt_width, width = 11, 10, 16, 7, 8
    domains = ("copy", "reverse", "increment")
    _longest, _ask, _first_task = 5, 12, 13

    def __init__(self, seed):
        self._rng = np.random.default_rng(seed)

    def draw(self, count, *, training=False):
        """Prompts (count, P), padded left, answers (count, W), padded right, and domains."""
        rng, longest = self._rng, self._longest
        job = rng.integers(3, size=(count, 1))
        size = rng.integers(2, longest + 1, size=(count, 1))
        digits = rng.integers(10, size=(count, longest))

        def digit_at(place):
            return np.take_along_axis(digits, np.clip(place, 0, longest - 1), axis=1)

        place = np.arange(self.prompt_width) - (longest + 1 - size)
        head = [place < -1, place == -1, place < size]
        prompt = np.select(head, [self.pad, self._first_task + job, digit_at(place)], self._ask)
        place = np.arange(self.width)
        digit = digit_at(np.where(job == 1, size - 1 - place, place))
        wanted = (digit + (job == 2)) % 10
        answer = np.select([place < size, place == size], [wanted, self.end], self.pad)
        named = [self.domains[j] for j in job[:, 0]]
        return torch.as_tensor(prompt), torch.as_tensor(answer), named


class ThreeDomains:
    """The rehearsal's task, in its warm-up's shares while training, evenly afterwards."""

    pad, end, vocabulary, prompt_width, width = 0, 1, 4 + 12 + 52, 16, 14
    domains = task.DOMAINS
    _characters = "0123456789+ " + task.ALPHABET + task.ALPHABET.upper()
    _shares = (0.62, 0.3, 0.08)

    def __init__(self, seed):
        self._random = random.Random(seed)
        self._ids = {c: i + 4 for i, c in enumerate(self._characters)}

    def draw(self, count, *, training=False):
        named = [self.domains[i % 3] for i in range(count)]
        if training:
            named = self._random.choices(self.domains, self._shares, k=count)
        prompt = torch.full((count, self.prompt_width), self.pad)
        answer = torch.full((count, self.width), self.pad)
        for row, domain in enumerate(named):
            problem = task.problem(domain, self._random)
            asked = [2, *(self._ids[c] for c in problem.question), 3]
            prompt[row, -len(asked) :] = torch.tensor(asked)
            wanted = [*(self._ids[c] for c in problem.answer), self.end]
            answer[row, : len(wanted)] = torch.tensor(wanted)
        return prompt, answer, named


# Networks: ``new`` draws parameters, ``logits`` gives (B, W, V) for responses (B, W).


def matrix(generator, rows, columns, scale=1.0):
    return torch.randn(rows, columns, generator=generator) * rows**-0.5 * scale


class Gru:
    """One layer of 32 units."""

    learning_rate, batch, check_every = 1e-2, 256, 50
    _embedding, _hidden = 16, 32

    def __init__(self, job):
        self.job = job

    def new(self, generator):
        hidden = self._hidden
        return {
            "embedding": torch.randn(self.job.vocabulary, self._embedding, generator=generator),
            "input": matrix(generator, self._embedding, 3 * hidden),
            "state": matrix(generator, hidden, 3 * hidden),
            "bias": torch.zeros(3 * hidden),
            "head": matrix(generator, hidden, self.job.vocabulary),
        }

    def logits(self, policy, prompt, response):
        state = torch.zeros(len(prompt), self._hidden)
        for token in prompt.unbind(1):
            state = self._advance(policy, token, state)
        found = []
        for token in response.unbind(1):
            found.append(state @ policy["head"])
            state = self._advance(policy, token, state)
        return torch.stack(found, 1)

    @staticmethod
    def _advance(policy, token, state):
        inputs = policy["embedding"][token] @ policy["input"] + policy["bias"]
        reset, keep, candidate = inputs.chunk(3, -1)
        reset_state, keep_state, candidate_state = (state @ policy["state"]).chunk(3, -1)
        keep = torch.sigmoid(keep + keep_state)
        fresh = torch.tanh(candidate + torch.sigmoid(reset + reset_state) * candidate_state)
        return keep * state + (1 - keep) * fresh


class Transformer:
    """Two layers of attention over learned positions, pre-normalised."""

    learning_rate, batch, check_every = 3e-3, 128, 4

    def __init__(self, job, width, heads=4, layers=2):
        self.job, self._width, self._heads, self._layers = job, width, heads, layers

    def new(self, generator):
        width, length = self._width, self.job.prompt_width + self.job.width
        found = {
            "embedding": torch.randn(self.job.vocabulary, width, generator=generator) / 2,
            "position": torch.randn(length, width, generator=generator) / 2,
            "head": matrix(generator, width, self.job.vocabulary),
            "norm": torch.ones(width),
        }
        for i in range(self._layers):
            found |= {
                f"{i}.attention": matrix(generator, width, 3 * width),
                f"{i}.out": matrix(generator, width, width, 0.5),
                f"{i}.up": matrix(generator, width, 4 * width),
                f"{i}.down": matrix(generator, 4 * width, width, 0.5),
                f"{i}.norm1": torch.ones(width),
                f"{i}.norm2": torch.ones(width),
            }
        return found

    def logits(self, policy, prompt, response):
        tokens = torch.cat([prompt, response], 1)[:, :-1]
        count, length = tokens.shape
        x = policy["embedding"][tokens] + policy["position"][:length]
        hidden = (tokens == self.job.pad) & (torch.arange(length) < prompt.shape[1] - 1)
        mask = torch.full((length, length), -1e9).triu(1)
        mask = mask + torch.where(hidden, -1e9, 0.0)[:, None, :]
        for i in range(self._layers):
            states = _normed(x, policy[f"{i}.norm1"]) @ policy[f"{i}.attention"]
            q, k, v = states.reshape(count, length, 3, self._heads, -1).permute(2, 0, 3, 1, 4)
            scores = q @ k.transpose(-1, -2) * q.shape[-1] ** -0.5 + mask[:, None]
            mixed = (torch.softmax(scores, -1) @ v).transpose(1, 2).reshape(count, length, -1)
            x = x + mixed @ policy[f"{i}.out"]
            up = torch.nn.functional.gelu(_normed(x, policy[f"{i}.norm2"]) @ policy[f"{i}.up"])
            x = x + up @ policy[f"{i}.down"]
        return _normed(x, policy["norm"])[:, prompt.shape[1] - 1 :] @ policy["head"]


def _normed(x, gain):
    return x * torch.rsqrt(x.square().mean(-1, keepdim=True) + 1e-6) * gain


POLICIES = {
    "gru-0": (lambda: Gru(Digits(0)), 0, 2000),
    "gru-1": (lambda: Gru(Digits(1)), 1, 2000),
    "gru-2": (lambda: Gru(Digits(2)), 2, 2000),
    "transformer-digits": (lambda: Transformer(Digits(3), 32), 3, 1200),
    "transformer-domains": (lambda: Transformer(ThreeDomains(4), 32), 4, 1000),
}
"""Name → network, seed, prompt groups."""


def log_probs_of(net, policy, prompt, response):
    log_probs = torch.log_softmax(net.logits(policy, prompt, response), -1)
    return log_probs.gather(2, response[..., None])[..., 0]


@torch.no_grad()
def sample(net, policy, prompt, generator):
    """Responses at temperature 1, padded after the end, and their log-probabilities."""
    job = net.job
    tokens = torch.full((len(prompt), job.width), job.pad)
    found = torch.zeros(tokens.shape)
    done = torch.zeros(len(prompt), dtype=torch.bool)
    for place in range(job.width):
        log_probs = torch.log_softmax(net.logits(policy, prompt, tokens)[:, place], -1)
        token = torch.multinomial(log_probs.exp(), 1, generator=generator)[:, 0]
        token = token.masked_fill(done, job.pad)
        found[:, place] = log_probs.gather(1, token[:, None])[:, 0]
        tokens[:, place] = token
        done = done | (token == job.end)
    return tokens, found


@torch.no_grad()
def solve_rate(net, policy):
    """How likely a sample is right, on average over fresh prompts: the answer's probability."""
    prompt, answer, _ = net.job.draw(512)
    log_probs = log_probs_of(net, policy, prompt, answer)
    return float(torch.where(answer != net.job.pad, log_probs, 0.0).sum(1).exp().mean())


def warm_up(net, generator):
    """Supervised training of a new policy until half of its samples are right."""
    policy = {name: value.requires_grad_() for name, value in net.new(generator).items()}
    optimizer = torch.optim.AdamW(policy.values(), lr=net.learning_rate)
    for update in range(1, 3001):
        prompt, answer, _ = net.job.draw(net.batch, training=True)
        log_probs = log_probs_of(net, policy, prompt, answer)
        loss = -log_probs[answer != net.job.pad].mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if update % net.check_every == 0 and solve_rate(net, policy) >= 0.5:
            return {name: value.detach() for name, value in policy.items()}
    raise AssertionError("the warm-up never solved half of the prompts")


@dataclass(frozen=True)
class Moments:
    """Of group gradients h_g, groups dealt to blocks.

    A group all of whose coefficients are 0 has h_g = 0 and still counts as a group.

    Attributes:
        inner: Σ h of block a · Σ h of block b, (blocks, blocks).
        squares: Σ |h_g|² of each block.
        groups: how many.
    """

    inner: np.ndarray
    squares: np.ndarray
    groups: int

    def signal_to_noise(self, kept=slice(None)):
        """|E h|² / tr cov h; the sampling noise of the mean is taken out of its squared length."""
        blocks = np.arange(len(self.squares))[kept]
        count = self.groups * len(blocks) / len(self.squares)
        length = self.inner[np.ix_(blocks, blocks)].sum() / count**2
        noise = (self.squares[blocks].sum() - count * length) / (count - 1)
        return length / noise - 1 / count

    def ratio_to(self, baseline):
        """Signal to noise relative to the baseline's, and its standard error (jackknife)."""
        without = []
        for block in range(len(self.squares)):
            kept = np.arange(len(self.squares)) != block
            without.append(self.signal_to_noise(kept) / baseline.signal_to_noise(kept))
        error = np.sqrt((len(without) - 1) * np.var(without))
        return float(self.signal_to_noise() / baseline.signal_to_noise()), float(error)


@dataclass(frozen=True)
class Measured:
    """One policy: the batch that dfsim sees, and preset → true ratio and its standard error."""

    batch: object
    truth: dict
    live: int


def measure(name, cache: Path) -> Measured:
    """Train a policy and take its gradients, or read what an earlier run, or worker, found."""
    digest = hashlib.sha256((inspect.getsource(sys.modules[__name__]) + torch.__version__).encode())
    file = cache / f"{name}-{digest.hexdigest()[:12]}.npz"
    with FileLock(file.with_suffix(".lock")):
        if not file.exists():
            np.savez(file, held=np.array(_measured(name), dtype=object))
        held = np.load(file, allow_pickle=True)["held"].item()
    batch = from_columns(held["columns"])
    moments = {preset: Moments(*held["moments"][preset]) for preset in held["moments"]}
    truth = {preset: own.ratio_to(moments["none"]) for preset, own in moments.items()}
    return Measured(batch, truth, int(batch.live_G.sum()))


def _measured(name):
    make, seed, groups = POLICIES[name]
    net, generator = make(), torch.Generator().manual_seed(seed)
    policy = warm_up(net, generator)
    prompt, answer, domains = net.job.draw(groups)
    rows = prompt.repeat_interleave(GROUP_SIZE, 0)
    response, log_probs = sample(net, policy, rows, generator)
    reward = (response == answer.repeat_interleave(GROUP_SIZE, 0)).all(1)
    ended = response == net.job.end
    mask = ended.int().cumsum(1) - ended.int() == 0
    lengths = mask.sum(1).numpy()
    group = np.repeat(np.arange(groups), GROUP_SIZE)
    columns = {
        "step": 1,
        "group_uid": np.array([f"{g:05d}" for g in group], dtype=object),
        "rollout_idx": np.tile(np.arange(GROUP_SIZE), groups),
        "reward": reward.double().numpy(),
        "num_tokens": lengths,
        "old_log_probs": (log_probs[mask].numpy(), lengths),
        "prompt_id": np.array([str(p) for p in rows.tolist()], dtype=object),
        "domain": np.repeat(np.array(domains, dtype=object), GROUP_SIZE),
    }
    batch = from_columns(columns)
    decisions = {preset: build(preset).decide(batch) for preset in WEIGHING}
    shape = (groups, GROUP_SIZE, net.job.width)
    return {
        "columns": columns,
        "moments": _moments(net, policy, prompt, response, mask, batch, decisions, shape),
    }


def _moments(net, policy, prompt, response, mask, batch, decisions, shape):
    """Preset → moments of its group gradients: one gradient a response serves all presets.

    A rule that weighs tokens takes a gradient of its own.
    """
    response, mask = response.reshape(shape), mask.reshape(shape).float()

    def objective(policy, prompt, response, weight):
        prompts = prompt.expand(len(response), -1)
        return (log_probs_of(net, policy, prompts, response) * weight).sum()

    of_group = torch.func.vmap(torch.func.grad(objective), in_dims=(None, 0, 0, 0))
    plain, per_token = {}, {}
    for preset, decision in decisions.items():
        advantage = batch.advantage_N if decision.advantage_N is None else decision.advantage_N
        if decision.token_weight_T is None:
            weight = (decision.weight_N * advantage).reshape(shape[:2])
            plain[preset] = torch.as_tensor(weight).float()
            continue
        padded = torch.zeros(mask.shape)
        tokens = decision.token_weight_T * np.repeat(advantage, batch.num_tokens_N)
        padded[mask > 0] = torch.as_tensor(tokens).float()
        per_token[preset] = padded
    sums, squares = {}, {p: np.zeros(BLOCKS) for p in decisions}
    moving = torch.nonzero(torch.as_tensor(batch.live_G))[:, 0]
    size = sum(value.numel() for value in policy.values())
    sums = {p: torch.zeros(BLOCKS, size, dtype=torch.float64) for p in decisions}
    for chunk in moving.split(CHUNK):
        block = (chunk % BLOCKS).numpy()

        def gradients(prompts, responses, weights):
            parts = of_group(policy, prompts, responses, weights)
            return torch.cat([part.flatten(1) for part in parts.values()], 1)

        found = {}
        prompts = prompt[chunk].repeat_interleave(GROUP_SIZE, 0)
        alone = [x[chunk].flatten(0, 1)[:, None] for x in (response, mask)]
        whole = gradients(prompts, *alone).reshape(len(chunk), GROUP_SIZE, size)
        for preset, weight in plain.items():
            found[preset] = torch.einsum("gn,gnp->gp", weight[chunk], whole)
        for preset, weight in per_token.items():
            found[preset] = gradients(prompt[chunk], response[chunk], weight[chunk])
        for preset, h in found.items():
            sums[preset].index_add_(0, torch.as_tensor(block), h.double())
            np.add.at(squares[preset], block, h.square().sum(1).double().numpy())
    return {
        preset: ((own @ own.T).numpy(), squares[preset], len(prompt))
        for preset, own in sums.items()
    }
