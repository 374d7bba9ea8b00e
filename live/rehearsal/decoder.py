"""Sampling from a small llama in plain torch, with results that depend on the request alone."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch.nn import functional as F  # noqa: N812

BLOCK = 64  # rows of every forward pass


@dataclass(frozen=True)
class Request:
    """One prompt to continue; `seed` decides the sample."""

    prompt: tuple[int, ...]
    seed: int
    temperature: float
    length: int


@dataclass(frozen=True)
class Response:
    """Sampled tokens, the end token included, and their log-probabilities."""

    tokens: list[int]
    log_probs: list[float]
    ended: bool


def seed_of(*parts: Any) -> int:
    """Return a 64-bit seed that depends on `parts` alone."""
    return int.from_bytes(hashlib.sha256(repr(parts).encode()).digest()[:8], "big")


class Decoder:
    """Decodes with a key-value cache.

    Every forward pass has the same shape: 64 rows, prompts padded on the left to the same width,
    and a cache of the full length. A row's numbers then do not depend on the rows beside it, on
    its place among them, or on how many they are.

    Args:
        folder: Folder of a Hugging Face llama; only its ``config.json`` is read.
        prompt_length, response_length: Longest prompt and longest response.
    """

    def __init__(self, folder: Path, prompt_length: int, response_length: int) -> None:
        config = json.loads((folder / "config.json").read_text())
        self.layers = config["num_hidden_layers"]
        self.heads = config["num_attention_heads"]
        self.width = config["hidden_size"] // self.heads
        self.epsilon = config["rms_norm_eps"]
        self.end, self.pad = config["eos_token_id"], config["pad_token_id"]
        self.vocabulary = config["vocab_size"]
        self.prompt_length, self.response_length = prompt_length, response_length
        self.weights: dict[str, torch.Tensor] = {}
        theta = (config.get("rope_parameters") or config).get("rope_theta", 10000.0)
        frequencies = theta ** -(torch.arange(0, self.width, 2) / self.width)
        angles = torch.outer(torch.arange(prompt_length + response_length), frequencies)
        self._cos, self._sin = angles.cos().repeat(1, 2), angles.sin().repeat(1, 2)

    def load(self, weights: dict[str, np.ndarray]) -> None:
        """Take the weights, by their Hugging Face names."""
        self.weights = {name: torch.from_numpy(np.array(w)) for name, w in weights.items()}

    @torch.inference_mode()  # type: ignore[untyped-decorator]
    def generate(self, requests: list[Request]) -> list[Response]:
        """Answer `requests` in their order."""
        done: list[Response] = []
        for start in range(0, len(requests), BLOCK):
            done += self._block(requests[start : start + BLOCK])
        return done

    def _block(self, requests: list[Request]) -> list[Response]:
        B, P, T = BLOCK, self.prompt_length, self.response_length
        rows = requests + [requests[0]] * (B - len(requests))
        tokens = torch.full((B, P), self.pad)
        noise = np.empty((B, T, self.vocabulary), np.float32)
        for row, request in enumerate(rows):
            tokens[row, P - len(request.prompt) :] = torch.tensor(request.prompt)
            noise[row] = np.random.default_rng(request.seed).gumbel(size=noise.shape[1:])
        temperatures = torch.tensor([[request.temperature] for request in rows])
        greedy = temperatures <= 0
        lengths = torch.tensor([len(request.prompt) for request in rows])
        limits = torch.tensor([min(request.length, T) for request in rows])
        first = P - lengths  # place of a row's first token
        places = torch.arange(P + T)
        open_keys = places[None, :] >= first[:, None]
        cache = [torch.zeros(2, B, self.heads, P + T, self.width) for _ in range(self.layers)]
        causal = places[None, :P, None] >= places[None, None, :]
        mask = torch.where(open_keys[:, None, :] & causal, 0.0, -1e9)
        logits = self._forward(
            tokens, (places[None, :P] - first[:, None]).clamp(min=0), 0, mask, cache
        )
        out = torch.full((B, T), self.pad)
        log_probs = torch.zeros(B, T)
        running = torch.ones(B, dtype=torch.bool)
        stops = limits.clone()
        ended = torch.zeros(B, dtype=torch.bool)
        for t in range(T):
            scores = F.log_softmax(logits / temperatures.where(~greedy, torch.ones(())), dim=-1)
            noisy = scores + torch.from_numpy(noise[:, t]).where(~greedy, torch.zeros(()))
            chosen = noisy.argmax(-1)
            out[:, t] = chosen
            log_probs[:, t] = scores.gather(1, chosen[:, None])[:, 0]
            finished = running & (chosen == self.end) & (t < limits)
            stops = torch.where(finished, t + 1, stops)
            ended |= finished
            running &= ~finished & (t + 1 < limits)
            if not running.any() or t + 1 == T:
                break
            keys = torch.where(open_keys & (places[None] <= P + t), 0.0, -1e9)[:, None, :]
            logits = self._forward(chosen[:, None], (lengths + t)[:, None], P + t, keys, cache)
        return [
            Response(out[row, :stop].tolist(), log_probs[row, :stop].tolist(), bool(ended[row]))
            for row, stop in enumerate(stops[: len(requests)].tolist())
        ]

    def _forward(
        self,
        tokens: torch.Tensor,
        positions: torch.Tensor,
        offset: int,
        mask: torch.Tensor,
        cache: list[torch.Tensor],
    ) -> torch.Tensor:
        """Run `tokens` (B, L) at cache places `offset`…, and return the last place's logits."""
        W, (B, L) = self.weights, tokens.shape
        cos, sin = self._cos[positions][:, None], self._sin[positions][:, None]
        if offset == 0:  # keys beyond the prompt
            mask = F.pad(mask, (0, self.response_length), value=-1e9)[:, :, : cache[0].shape[3]]
        x = W["model.embed_tokens.weight"][tokens]
        for layer in range(self.layers):
            name = f"model.layers.{layer}."
            h = self._norm(x, W[name + "input_layernorm.weight"])
            q, k, v = (
                F.linear(h, W[f"{name}self_attn.{p}_proj.weight"])
                .view(B, L, self.heads, self.width)
                .transpose(1, 2)
                for p in "qkv"
            )
            cache[layer][0, :, :, offset : offset + L] = _rotate(k, cos, sin)
            cache[layer][1, :, :, offset : offset + L] = v
            h = F.scaled_dot_product_attention(
                _rotate(q, cos, sin), cache[layer][0], cache[layer][1], attn_mask=mask[:, None]
            )
            x = x + F.linear(h.transpose(1, 2).flatten(2), W[name + "self_attn.o_proj.weight"])
            h = self._norm(x, W[name + "post_attention_layernorm.weight"])
            gate = F.silu(F.linear(h, W[name + "mlp.gate_proj.weight"]))
            h = gate * F.linear(h, W[name + "mlp.up_proj.weight"])
            x = x + F.linear(h, W[name + "mlp.down_proj.weight"])
        return F.linear(self._norm(x[:, -1], W["model.norm.weight"]), W["lm_head.weight"])

    def _norm(self, x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
        return x * torch.rsqrt(x.square().mean(-1, keepdim=True) + self.epsilon) * weight


def _rotate(x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
    """Apply rotary position embeddings, halves paired as Hugging Face does."""
    left, right = x.chunk(2, dim=-1)
    return x * cos + torch.cat((-right, left), dim=-1) * sin
