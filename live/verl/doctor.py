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

from ..core.verification.check import Check
from .compat import SUPPORTED_VERL, TRAINER_MODE
from .loss import METRIC, proof_name
from .seams import SEAMS, Seam

PACKAGES = (
    *("torch", "ray", "tensordict", "TransferQueue", "transformers"),
    *("cachetools", "fastapi", "uvicorn"),
)
_INSTALL = "pip install 'dfsim[live]' adds what is missing"


def check_installation() -> list[Check]:
    """Versions, registration, and the signature of every private seam."""
    found = _version("verl")
    if found is None:
        return [Check("verl", False, f"not installed; {_INSTALL}")]
    wrong = f"{found}; dfsim's seams were measured on {', '.join(SUPPORTED_VERL)}"
    supported = found in SUPPORTED_VERL
    packages = [_package(name) for name in PACKAGES]
    checks = [Check("verl", supported, found if supported else wrong), *packages]
    if any(check.passed is False for check in packages):
        return checks
    noise = io.StringIO()
    with (
        warnings.catch_warnings(),
        contextlib.redirect_stderr(noise),
        contextlib.redirect_stdout(noise),
    ):
        warnings.simplefilter("ignore")
        checks.append(_registration())
        checks.append(
            Check(
                "settings",
                None,
                f"+dfsim settings act under trainer.v1.trainer_mode={TRAINER_MODE} alone; verl's "
                "own trainers ignore them in silence",
            )
        )
        checks += [_seam(seam) for seam in SEAMS]
    return checks


def _version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None


def _package(name: str) -> Check:
    found = _version(name)
    if found is None:
        return Check(name, False, f"not installed; verl's trainer needs it: {_INSTALL}")
    return Check(name, None, found)


def _seam(seam: Seam) -> Check:
    problem = seam.problem()
    return Check(str(seam), problem is None, problem or "as expected")


def folded(checks: Sequence[Check]) -> list[Check]:
    """The same for reading: seams that are as expected become one line."""
    seams = {str(seam) for seam in SEAMS}
    fine = [check for check in checks if check.name in seams and check.passed]
    rest = [check for check in checks if check not in fine]
    if fine:
        rest.append(Check("seams", True, f"{len(fine)} private parts of verl as expected"))
    return rest


def _registration() -> Check:
    try:
        from verl.trainer.ppo.core_algos import POLICY_LOSS_REGISTRY
        from verl.trainer.ppo.v1.trainer_base import TRAINER_REGISTRY
        from verl.trainer.ppo.v1.trainer_sync import PPOTrainerSync  # noqa: F401
    except Exception as error:
        return Check("plug-in", False, f"verl does not import ({type(error).__name__}: {error})")
    lacking = [
        what
        for what, there in (
            (f"trainer {TRAINER_MODE}", TRAINER_MODE in TRAINER_REGISTRY),
            ("reporting losses", proof_name("vanilla") in POLICY_LOSS_REGISTRY),
        )
        if not there
    ]
    if lacking:
        return Check(
            "plug-in",
            False,
            f"verl did not load it ({', '.join(lacking)} missing); unset "
            "VERL_USE_EXTERNAL_PLUGINS, or add dfsim to it, and install dfsim where verl runs",
        )
    return Check("plug-in", True, f"trainer {TRAINER_MODE} and the reporting losses are registered")


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
) -> list[Check]:
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
            Check(
                f"step {ZERO_STEPS + 1}, weights 1",
                norm > 0 and difference > 0,
                f"gradient norm {norm:.4g}, largest parameter difference {difference:.4g}",
            )
        )
        delivered = [step.get("dfsim/delivered") for step in result.steps]
        checks.append(
            Check("delivered", delivered == [1.0] * len(delivered), f"dfsim/delivered {delivered}")
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


def _zero(step: int, metrics: Mapping[str, Any], moved: float) -> Check:
    norm = metrics["actor/grad_norm"]
    return Check(
        f"step {step}, weights 0",
        norm == 0 and moved == 0,
        f"gradient norm {norm!r}, largest parameter difference {moved!r}",
    )


def _report(step: int, metrics: Mapping[str, Any]) -> Check:
    """What the loss saw under somebody else's trainer: told, not judged."""
    seen = metrics.get(f"actor/{METRIC}/seen")
    norm = f"gradient norm {metrics.get('actor/grad_norm')!r}"
    if seen is None:
        return Check(f"step {step}", None, f"the policy loss did not report; {norm}")
    if seen < 1:
        return Check(f"step {step}", None, f"the loss got no rollout_is_weights; {norm}")
    mean = metrics[f"actor/{METRIC}/weight"] / metrics[f"actor/{METRIC}/mask"]
    return Check(f"step {step}", None, f"the loss saw mean weight {mean:.6g}; {norm}")
