"""The generation server: a Ray actor that batches requests through one decoder."""

from __future__ import annotations

import asyncio
import itertools
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch

from .decoder import Decoder, Request, seed_of

QUIET_SECONDS = 0.01  # a batch starts when no request came for so long


@dataclass
class Output:
    """verl's ``TokenOutput`` by field; this process saves the seconds of importing verl."""

    token_ids: list[int]
    log_probs: list[float] | None
    stop_reason: str
    routed_experts: None = None
    num_preempted: int | None = None
    extra_fields: dict[str, Any] = field(default_factory=dict)


class GenerationServer:
    """Answers verl's generation requests.

    A request's sample depends on the weights' version, its prompt, and its ``seed`` among the
    sampling parameters, or, without one, its number among this version's requests for the same
    prompt. The other requests in the batch and the order of arrival have no part in it.

    Args:
        model: Folder of the model.
        prompt_length, response_length: Longest prompt and longest response.
        seed: The rehearsal's seed.
    """

    def __init__(self, model: str, prompt_length: int, response_length: int, seed: int) -> None:
        torch.set_num_threads(1)
        self._decoder = Decoder(Path(model), prompt_length, response_length)
        self._limit = response_length
        self._seed = seed
        self._version: int | None = None
        self._asked: Counter[tuple[int, ...]] = Counter()
        self._waiting: list[tuple[Request, asyncio.Future[Output]]] = []
        self._arrivals = itertools.count()
        self._arrived = -1
        self._task: asyncio.Task[None] | None = None

    async def load(self, weights: dict[str, np.ndarray], version: int | None) -> None:
        """Take new weights, those of global step `version`."""
        self._decoder.load(weights)
        self._version = version
        self._asked.clear()

    async def generate(
        self, request_id: str, prompt_ids: list[int], sampling_params: dict[str, Any], **rest: Any
    ) -> Output:
        """Continue one prompt."""
        if sampling_params.get("top_p", 1.0) != 1.0 or sampling_params.get("top_k", -1) > 0:
            raise ValueError("the rehearsal's server samples with a temperature only")
        prompt = tuple(prompt_ids)
        name = sampling_params.get("seed")
        if name is None:
            name = self._asked[prompt]
            self._asked[prompt] += 1
        request = Request(
            prompt=prompt,
            seed=seed_of(self._seed, self._version, prompt, name),
            temperature=sampling_params.get("temperature", 1.0),
            length=sampling_params.get("max_tokens", self._limit),
        )
        answer: asyncio.Future[Output] = asyncio.get_running_loop().create_future()
        self._waiting.append((request, answer))
        self._arrived = next(self._arrivals)
        if self._task is None or self._task.done():
            self._task = asyncio.create_task(self._answer_when_quiet())
        return await answer

    async def _answer_when_quiet(self) -> None:
        while self._waiting:
            seen = None
            while seen != self._arrived:
                seen = self._arrived
                await asyncio.sleep(QUIET_SECONDS)
            batch, self._waiting = self._waiting, []
            try:
                responses = self._decoder.generate([request for request, _ in batch])
            except Exception as error:
                for _, answer in batch:
                    answer.set_exception(error)
                continue
            for (_, answer), response in zip(batch, responses, strict=True):
                answer.set_result(
                    Output(
                        token_ids=response.tokens,
                        log_probs=response.log_probs,
                        stop_reason="completed" if response.ended else "length",
                        extra_fields={"global_steps": self._version},
                    )
                )

    async def _nothing(self, *args: Any, **settings: Any) -> None:
        """Do nothing: there is no accelerator memory to free and no request is ever aborted."""

    sleep = wake_up = abort_all_requests = resume_generation = _nothing
    clear_kv_cache = release_kv_cache = resume_kv_cache = start_profile = stop_profile = _nothing
