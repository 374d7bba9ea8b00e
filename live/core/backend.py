"""What a session needs of the trainer that it runs in."""

from __future__ import annotations

from collections.abc import Mapping, MutableMapping
from dataclasses import dataclass
from typing import Any, Protocol

from ...traces.ragged import AnyArray
from ...traces.storage.manifest import Manifest
from .proof import Seen
from .rows import OutputRows

ROW_COLUMN = "dfsim_row"
"""Column of the training set that numbers its rows, where a sampler draws by row."""


@dataclass(frozen=True)
class RunConfig:
    """The run's settings as plain values.

    Attributes:
        record: what matters for reading and comparing runs, as a manifest keeps it (JSON).
        n: sessions a prompt.
        train_batch_size: prompts a step.
        max_response_length: tokens a response, or ``None`` where unknown.
        seed: of the data.
        loss_agg_mode: how the loss is averaged.
        no_report: why no loss reports what it saw, or ``None`` where one does.
        plain_pg_loss: whether the logged pg_loss is −Σ(w·A)/Σmask while the ratio is 1.
        dynamic_batches: whether micro-batches are cut by tokens.
        ppo_epochs: passes over a step.
        critic_warmup: the first step at which the actor trains.
        starts_at_one: whether the run is certain to begin at step 1.
    """

    record: Mapping[str, Any]
    n: int
    train_batch_size: int
    max_response_length: int | None = None
    seed: int = 0
    loss_agg_mode: str = "token-mean"
    no_report: str | None = None
    plain_pg_loss: bool = True
    dynamic_batches: bool = False
    ppo_epochs: int = 1
    critic_warmup: int = 0
    starts_at_one: bool = True

    @property
    def batch_options(self) -> dict[str, Any]:
        """What a batch must know of the run, as a trace's manifest would tell it."""
        manifest = Manifest(writer="", config=dict(self.record), columns={"advantage": "Float64"})
        return {
            "advantage_config": manifest.advantage_config,
            "mini_batch_rows": manifest.mini_batch_rows,
            "loss_scale_factor": self.record.get("loss_scale_factor"),
        }


class Backend(Protocol):
    """A trainer's data. ``batch`` is whatever the trainer hands over once advantages are there."""

    def read(self, batch: Any, *, domain: str | None, numbered: bool, text: bool) -> OutputRows:
        """Read one step.

        Args:
            batch: the trainer's.
            domain: dataset column that names the domain, or ``None``.
            numbered: whether the training set has a column ``ROW_COLUMN``.
            text: whether to decode prompts and responses.
        """

    def write(self, batch: Any, fields: Mapping[str, AnyArray]) -> Any:
        """Replace token values (F) of the step that was read last.

        Args:
            batch: the trainer's.
            fields: ``weights``, and where they are replaced ``advantages`` and ``returns``.

        Returns:
            The batch that training must go on with.
        """

    def take_report(self, metrics: MutableMapping[str, Any]) -> tuple[Seen | None, float | None]:
        """Move what the loss saw out of the step's metrics.

        Args:
            metrics: the trainer's, after the update.

        Returns:
            The sums, ``None`` where the loss did not run; and the logged pg_loss.
        """
