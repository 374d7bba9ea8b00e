"""Agent loops of the rehearsal: one output a session, or one, two, or none."""

from __future__ import annotations

from typing import Any

from verl.experimental.agent_loop.agent_loop import (
    AgentLoopBase,
    AgentLoopMetrics,
    AgentLoopOutput,
)
from verl.utils.tokenizer import normalize_token_ids

from .decoder import seed_of


class SingleOutput(AgentLoopBase):  # type: ignore[misc]
    """Asks once. The sample is a function of step, prompt, session, and turn, not of timing."""

    def __init__(
        self, trainer_config: Any, server_manager: Any, tokenizer: Any, **rest: Any
    ) -> None:
        # The base class builds a multi-turn tokenization for every session, which is not needed.
        self.server_manager = server_manager
        self.tokenizer = tokenizer
        self.response_length = trainer_config.config.actor_rollout_ref.rollout.response_length

    async def run(self, sampling_params: dict[str, Any], **row: Any) -> Any:
        """Answer the prompt of `row`, a row of the dataset with its ``uid`` and session."""
        return await self.ask(sampling_params, row, turn=0)

    async def ask(self, sampling_params: dict[str, Any], row: dict[str, Any], turn: int) -> Any:
        """Ask once; the sample depends on prompt, session and turn."""
        prompt = normalize_token_ids(
            self.tokenizer.apply_chat_template(
                list(row["raw_prompt"]), add_generation_prompt=True, tokenize=True
            )
        )
        uid, session = row["uid"], row["session_id"]
        answer = await self.server_manager.generate(
            request_id=f"{uid}_{session}_{turn}",
            prompt_ids=prompt,
            sampling_params={**sampling_params, "seed": f"{uid}_{session}_{turn}"},
        )
        return AgentLoopOutput(
            prompt_ids=prompt,
            response_ids=answer.token_ids[: self.response_length],
            response_mask=[1] * len(answer.token_ids[: self.response_length]),
            response_logprobs=answer.log_probs[: self.response_length],
            num_turns=2,
            metrics=AgentLoopMetrics(),
            extra_fields={**answer.extra_fields, "turn_scores": [], "tool_rewards": []},
        )


class MultiOutput(SingleOutput):
    """Asks once or twice; one session in twenty gives nothing and one in twenty fails."""

    async def run(self, sampling_params: dict[str, Any], **row: Any) -> Any:
        """Answer the prompt of `row`; what a session does depends on its prompt and number."""
        fate = seed_of("fate", int(row["index"]), int(row["session_id"])) % 20
        if fate == 0:
            return []
        if fate == 1:
            raise RuntimeError("this session of the rehearsal fails on purpose")
        turns = 2 if fate < 8 else 1
        return [await self.ask(sampling_params, row, turn) for turn in range(turns)]
