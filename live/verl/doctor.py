"""``dfsim doctor``: versions, registration, private seams; and the canary, which trains."""

from __future__ import annotations

import contextlib
import io
import tempfile
import warnings
from collections.abc import Callable, Mapping, Sequence
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import numpy as np

from ..core.gate import Gate
from ..core.proof import METRIC, proof_name
from .compat import SEAMS, SUPPORTED_VERL, TRAINER_MODE, Seam

PACKAGES = (
    *("torch", "ray", "tensordict", "TransferQueue", "transformers"),
    *("cachetools", "fastapi", "uvicorn"),
)
_AS_EXPECTED = "as expected"
_INSTALL = "pip install 'dfsim[live]' adds what is missing"


def check_installation() -> list[Gate]:
    """Versions, registration, and the signature of every private seam."""
    checks = [_verl_version()]
    if checks[0].passed is False and "not installed" in checks[0].message:
        return checks
    for name in PACKAGES:
        try:
            checks.append(Gate(name, None, version(name)))
        except PackageNotFoundError:
            checks.append(Gate(name, False, f"not installed; verl's trainer needs it: {_INSTALL}"))
    if any(check.passed is False for check in checks[1:]):
        return checks
    noise = io.StringIO()
    with (
        warnings.catch_warnings(),
        contextlib.redirect_stderr(noise),
        contextlib.redirect_stdout(noise),
    ):
        warnings.simplefilter("ignore")
        checks.append(_registration())
        checks += [_seam(seam) for seam in SEAMS]
    return checks


def _seam(seam: Seam) -> Gate:
    problem = seam.problem()
    return Gate(str(seam), problem is None, problem or _AS_EXPECTED)


def folded(checks: Sequence[Gate]) -> list[Gate]:
    """The same for reading: seams that are as expected become one line."""
    fine = [check for check in checks if check.message == _AS_EXPECTED]
    rest = [check for check in checks if check not in fine]
    if fine:
        rest.append(Gate("seams", True, f"{len(fine)} private functions of verl {_AS_EXPECTED}"))
    return rest


def _verl_version() -> Gate:
    try:
        found = version("verl")
    except PackageNotFoundError:
        return Gate("verl", False, f"not installed; {_INSTALL}")
    if found in SUPPORTED_VERL:
        return Gate("verl", True, found)
    return Gate(
        "verl", False, f"{found}; dfsim's seams were measured on {', '.join(SUPPORTED_VERL)}"
    )


def _registration() -> Gate:
    try:
        from verl.trainer.ppo.core_algos import POLICY_LOSS_REGISTRY
        from verl.trainer.ppo.v1.trainer_base import TRAINER_REGISTRY
        from verl.trainer.ppo.v1.trainer_sync import PPOTrainerSync  # noqa: F401
    except Exception as error:
        return Gate("plug-in", False, f"verl does not import ({type(error).__name__}: {error})")
    lacking = [
        what
        for what, there in (
            (f"trainer {TRAINER_MODE}", TRAINER_MODE in TRAINER_REGISTRY),
            ("reporting losses", proof_name("vanilla") in POLICY_LOSS_REGISTRY),
        )
        if not there
    ]
    if lacking:
        return Gate(
            "plug-in",
            False,
            f"verl did not load it ({', '.join(lacking)} missing); unset "
            "VERL_USE_EXTERNAL_PLUGINS, or add dfsim to it, and install dfsim where verl runs",
        )
    return Gate("plug-in", True, f"trainer {TRAINER_MODE} and the reporting losses are registered")


QUIET = (
    "actor_rollout_ref.actor.optim.weight_decay=0",
    "actor_rollout_ref.actor.use_kl_loss=false",
    "actor_rollout_ref.actor.entropy_coeff=0",
    "algorithm.use_kl_in_reward=false",
)
"""Weight decay, KL and entropy move parameters at zero weight too, so the canary turns them off."""


def run_canary(
    trainer_mode: str = TRAINER_MODE,
    overrides: Sequence[str] = (),
    zero: Sequence[str] = (),
    on_step: Callable[[int, Mapping[str, Any]], None] | None = None,
) -> list[Gate]:
    """Train for real on this CPU, and see whether weights reach the gradient.

    dfsim's own trainer gets weights 0 for two steps and 1 for a third. Another trainer is run with
    ``overrides``, and its loss reports what it saw; where ``zero`` says how that plug-in is told to
    weigh everything 0, gradients must vanish.

    Args:
        trainer_mode: registered trainer to audit.
        overrides: Hydra overrides that its plug-in needs.
        zero: Hydra overrides under which it weighs everything 0.
        on_step: called with each step's number and metrics.
    """
    from ..rehearsal.canary import ZERO_STEPS
    from ..rehearsal.launch import Rehearsal, run_rehearsal

    ours = trainer_mode == TRAINER_MODE
    if ours:
        file = Path(__file__).parents[1] / "rehearsal" / "canary.py"
        overrides = (
            f"+dfsim.strategy='{file}:Canary'",
            "+dfsim.on_empty=deliver",
            *overrides,
        )
    else:
        loss = f"actor_rollout_ref.actor.policy_loss.loss_mode={proof_name('vanilla')}"
        overrides = (loss, *overrides, *zero)
    with tempfile.TemporaryDirectory(prefix="dfsim-canary-") as folder:
        result = run_rehearsal(
            Rehearsal(
                steps=ZERO_STEPS + ours,
                trainer_mode=trainer_mode,
                overrides=(*QUIET, *overrides),
                save_parameters=Path(folder),
            ),
            on_step=on_step,
        )
        moved = [_moved(result, step) for step in range(1, len(result.steps) + 1)]
    if ours:
        checks = [
            _zero(step, result.steps[step - 1], moved[step - 1])
            for step in range(1, ZERO_STEPS + 1)
        ]
        last = result.steps[ZERO_STEPS]
        norm, difference = last["actor/grad_norm"], moved[ZERO_STEPS]
        checks.append(
            Gate(
                f"step {ZERO_STEPS + 1}, weights 1",
                norm > 0 and difference > 0,
                f"gradient norm {norm:.4g}, largest parameter difference {difference:.4g}",
            )
        )
        delivered = [step.get("dfsim/delivered") for step in result.steps]
        checks.append(
            Gate("delivered", delivered == [1.0] * len(delivered), f"dfsim/delivered {delivered}")
        )
        return checks
    checks = [_report(step, metrics) for step, metrics in enumerate(result.steps, start=1)]
    if zero:
        checks += [
            _zero(step, metrics, moved[step - 1])
            for step, metrics in enumerate(result.steps, start=1)
        ]
    return checks


def _moved(result: Any, step: int) -> float:
    before, after = result.parameters(step - 1), result.parameters(step)
    return max(float(np.abs(after[name] - before[name]).max()) for name in before)


def _zero(step: int, metrics: Mapping[str, Any], moved: float) -> Gate:
    norm = metrics["actor/grad_norm"]
    return Gate(
        f"step {step}, weights 0",
        norm == 0 and moved == 0,
        f"gradient norm {norm!r}, largest parameter difference {moved!r}",
    )


def _report(step: int, metrics: Mapping[str, Any]) -> Gate:
    """What the loss saw under somebody else's trainer: told, not judged."""
    seen = metrics.get(f"actor/{METRIC}/seen")
    norm = f"gradient norm {metrics.get('actor/grad_norm')!r}"
    if seen is None:
        return Gate(f"step {step}", None, f"the policy loss did not report; {norm}")
    if seen < 1:
        return Gate(f"step {step}", None, f"the loss got no rollout_is_weights; {norm}")
    mean = metrics[f"actor/{METRIC}/weight"] / metrics[f"actor/{METRIC}/mask"]
    return Gate(f"step {step}", None, f"the loss saw mean weight {mean:.6g}; {norm}")
