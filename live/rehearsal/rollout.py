"""verl's two sides of a rollout engine: the replica that starts a server, and the weight sync."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import ray
import torch
from verl.workers.rollout.base import BaseRollout
from verl.workers.rollout.replica import RolloutReplica

from .server import GenerationServer

PARAMETERS_VARIABLE = "DFSIM_REHEARSAL_PARAMETERS"


def server_name(replica: int) -> str:
    """Return the Ray name of a replica's server."""
    return f"rehearsal_server_{replica}"


class CpuReplica(RolloutReplica):  # type: ignore[misc]
    """One generation server."""

    async def launch_servers(self) -> None:
        """Start the server as a named Ray actor."""
        server = (
            ray.remote(GenerationServer)
            .options(name=server_name(self.replica_rank), num_cpus=1)
            .remote(
                str(self.model_config.path),
                self.config.prompt_length,
                self.config.response_length,
                self.config.seed,
            )
        )
        self.servers = [server]
        self._server_handle = server
        self._server_address = server_name(self.replica_rank)


class CpuRollout(BaseRollout):  # type: ignore[misc]
    """The training worker's end: hands the weights to its replica's server.

    With ``DFSIM_REHEARSAL_PARAMETERS`` set, the first rank also writes every set of weights that
    it hands over to ``<that folder>/step_<global step>.npz``.
    """

    async def resume(self, tags: list[str]) -> None:
        """Do nothing: the server keeps its memory."""

    async def release(self) -> None:
        """Do nothing: the server keeps its memory."""

    async def update_weights(
        self,
        weights: Iterator[tuple[str, torch.Tensor]],
        wire_format: str = "named_tensors",
        global_steps: int | None = None,
        **rest: Any,
    ) -> None:
        """Gather the weights, in which every rank takes part, and send them to the server."""
        if wire_format != "named_tensors":
            raise ValueError(f"the rehearsal's rollout knows no wire format {wire_format!r}")
        arrays = {name: tensor.detach().float().cpu().numpy().copy() for name, tensor in weights}
        rank = torch.distributed.get_rank()
        if (folder := os.environ.get(PARAMETERS_VARIABLE)) and rank == 0:
            _write(Path(folder) / f"step_{global_steps}.npz", arrays)
        await ray.get_actor(server_name(rank)).load.remote(arrays, global_steps)


def _write(path: Path, arrays: dict[str, np.ndarray]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_suffix(".partial")
    with partial.open("wb") as file:
        np.savez(file, **arrays)  # type: ignore[arg-type]
    partial.replace(path)
