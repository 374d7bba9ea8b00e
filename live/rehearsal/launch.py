"""Start a rehearsal in its own processes, follow it, and leave nothing behind."""

from __future__ import annotations

import contextlib
import json
import os
import re
import secrets
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from types import FrameType

import numpy as np

from ...traces.errors import DfsimError, nearest
from . import model, task

RUN_VARIABLE = "DFSIM_REHEARSAL_RUN"  # scratch folder
RAY_VARIABLE = "DFSIM_REHEARSAL_RAY"  # Ray's folder; marks every process of the run
MODEL_VARIABLE = "DFSIM_REHEARSAL_MODEL"
FORKS_VARIABLE = "DFSIM_REHEARSAL_FORKS"  # socket of `fork_server`
ROWS = 192
AGENTS = {"single": "SingleOutput", "multi-output": "MultiOutput"}
ASYNC_MODES = ("colocate_async", "separate_async")
Step = dict[str, float]
OnStep = Callable[[int, Step], None]


@dataclass(frozen=True)
class Rehearsal:
    """A run of verl's v1 trainer on this machine.

    Args:
        steps: Training steps.
        prompts, responses: Prompts a step, and sessions a prompt.
        seed: Seed of the dataset, its order, and every sample.
        trainer_mode: Name of a registered trainer.
        device: ``cpu``, or an accelerator that verl knows, such as ``cuda``: training runs there,
            sampling stays on the CPU.
        agent: ``single`` or ``multi-output``.
        ranks: Data-parallel ranks.
        mini_batches: Optimizer steps a step.
        dynamic_batches: Micro-batches by tokens in place of one micro-batch for each mini-batch and
            rank.
        lr: Learning rate.
        overrides: Hydra overrides that come last.
        fork: Import verl once and fork every process from there, which starts in a third of the
            time.
        folder: Scratch folder, kept; without one, a temporary folder that is deleted.
        save_parameters: Folder for the parameters at the start and after each step.
    """

    steps: int = 2
    prompts: int = 6
    responses: int = 6
    seed: int = 0
    trainer_mode: str = "sync"
    device: str = "cpu"
    agent: str = "single"
    ranks: int = 1
    mini_batches: int = 1
    dynamic_batches: bool = False
    lr: float = 1e-4
    overrides: tuple[str, ...] = ()
    fork: bool = True
    folder: Path | None = None
    save_parameters: Path | None = None

    def __post_init__(self) -> None:
        if self.agent not in AGENTS:
            raise DfsimError(
                f"--agent {self.agent} is not known{nearest(self.agent, AGENTS)}; it is "
                f"{' or '.join(AGENTS)}"
            )
        if self.prompts > ROWS:
            raise DfsimError(f"--prompts {self.prompts}: the task holds {ROWS} prompts")
        if self.prompts % self.mini_batches:
            raise DfsimError(
                f"--mini-batches {self.mini_batches} does not divide --prompts {self.prompts}"
            )
        if self.prompts // self.mini_batches * self.responses % self.ranks:
            raise DfsimError(
                f"--ranks {self.ranks} does not divide the {self.prompts // self.mini_batches} × "
                f"{self.responses} rows of a mini-batch"
            )

    def command(self) -> list[str]:
        """Return the command line; its folders are variables that `run_rehearsal` sets."""
        actor, rollout = "actor_rollout_ref.actor", "actor_rollout_ref.rollout"
        rows = self.prompts // self.mini_batches * self.responses // self.ranks
        scratch = f"${{oc.env:{RUN_VARIABLE}}}"
        async_mode = self.trainer_mode in ASYNC_MODES
        settings = {
            "data.train_files": f"{scratch}/train.parquet",
            "data.val_files": f"{scratch}/val.parquet",
            "data.train_batch_size": self.prompts,
            "data.max_prompt_length": task.MAX_PROMPT_TOKENS,
            "data.max_response_length": task.MAX_RESPONSE_TOKENS,
            "data.dataloader_num_workers": 0,
            "data.seed": self.seed,
            "actor_rollout_ref.model.path": f"${{oc.env:{MODEL_VARIABLE}}}",
            "actor_rollout_ref.model.use_remove_padding": False,
            "actor_rollout_ref.model.enable_gradient_checkpointing": False,
            "+actor_rollout_ref.model.override_config.attn_implementation": "sdpa",
            f"{actor}.optim.lr": self.lr,
            f"{actor}.ppo_mini_batch_size": self.prompts // self.mini_batches,
            f"{actor}.ppo_micro_batch_size_per_gpu": rows,
            f"{actor}.use_dynamic_bsz": self.dynamic_batches,
            f"{actor}.ppo_max_token_len_per_gpu": 2048,
            f"{actor}.data_loader_seed": self.seed,
            f"{rollout}.name": "cpu",
            f"{rollout}.n": self.responses,
            f"{rollout}.seed": self.seed,
            f"{rollout}.tensor_model_parallel_size": 1,
            f"{rollout}.dtype": "float32",
            f"{rollout}.free_cache_engine": False,
            f"{rollout}.calculate_log_probs": True,
            f"{rollout}.log_prob_micro_batch_size_per_gpu": rows,
            f"{rollout}.agent.num_workers": 1,
            f"{rollout}.agent.default_agent_loop": self.agent,
            f"{rollout}.agent.agent_loop_config_path": f"{scratch}/agents.yaml",
            "actor_rollout_ref.ref.log_prob_micro_batch_size_per_gpu": rows,
            "algorithm.adv_estimator": "grpo",
            "reward.num_workers": 1,
            "reward.custom_reward_function.path": f"pkg://{task.__name__}",
            "trainer.device": self.device,
            "trainer.nnodes": 1,
            "trainer.n_gpus_per_node": self.ranks,
            "trainer.logger": "[file]",
            "trainer.val_before_train": False,
            "trainer.resume_mode": "disable",
            "trainer.default_local_dir": f"{scratch}/checkpoints",
            "trainer.total_epochs": 1_000_000,
            "trainer.total_training_steps": self.steps,
            "trainer.v1.trainer_mode": self.trainer_mode,
            "trainer.v1.sampler.custom_sampler.path": f"pkg://{__package__}.buffer",
            "trainer.v1.sampler.custom_sampler.name": "RehearsalBuffer" + "Async" * async_mode,
            "transfer_queue.backend.SimpleStorage.num_data_storage_units": 1,
            "ray_kwargs.ray_init.num_cpus": 16,
            "+ray_kwargs.ray_init.num_gpus": self.ranks,
            "+ray_kwargs.ray_init.address": "local",
            "+ray_kwargs.ray_init._temp_dir": f"${{oc.env:{RAY_VARIABLE}}}",
            "+ray_kwargs.ray_init.object_store_memory": 500_000_000,
            "+ray_kwargs.ray_init.include_dashboard": False,
            "hydra.run.dir": scratch,
            "hydra.output_subdir": "null",
        }
        for role in ("actor", "ref"):
            settings |= {
                f"actor_rollout_ref.{role}.strategy": "fsdp2",
                f"actor_rollout_ref.{role}.use_torch_compile": False,
                f"actor_rollout_ref.{role}.fsdp_config.use_torch_compile": False,
            } | {
                f"+actor_rollout_ref.{role}.fsdp_config.mixed_precision.{what}_dtype": "fp32"
                for what in ("param", "reduce", "buffer")
            }
        fork = self.fork and self.device == "cpu"  # a forked process can't use CUDA
        if fork:
            client = Path(__file__).with_name("fork_client.py")
            settings["ray_kwargs.ray_init.runtime_env.py_executable"] = (
                f"'{sys.executable} -I -S {client}'"
            )
        main = f"{__package__}.fork_server" if fork else "verl.trainer.main_ppo"
        return [
            *(sys.executable, "-m", main),
            *(f"{name}={value}" for name, value in settings.items()),
            *self.overrides,
        ]

    def environment(self) -> dict[str, str]:
        """Return the environment of the run's processes, but for its folders."""
        variables = {
            **{k: v for k, v in os.environ.items() if k != "RAY_ADDRESS"},
            "DFSIM_REHEARSAL": "1",
            "DFSIM_REHEARSAL_SEED": str(self.seed),
            "VERL_LOGGING_LEVEL": "WARN",
            "HF_HUB_OFFLINE": "1",
            "HF_DATASETS_OFFLINE": "1",
            "HYDRA_FULL_ERROR": "1",
            "PYTHONHASHSEED": "0",
            "OMP_NUM_THREADS": "1",
            "TQ_NUM_THREADS": "1",
            "TRANSFER_QUEUE_ENABLE": "1",
            "TOKENIZERS_PARALLELISM": "false",
            "RAY_USAGE_STATS_ENABLED": "0",
            "RAY_DEDUP_LOGS": "0",
            "RAY_COLOR_PREFIX": "0",
        }
        if self.device == "cpu":
            variables["VERL_PLATFORM"] = "cpu"
            variables.pop("CUDA_VISIBLE_DEVICES", None)
        if self.save_parameters is not None:
            variables["DFSIM_REHEARSAL_PARAMETERS"] = str(self.save_parameters.absolute())
        return variables


@dataclass(frozen=True)
class RehearsalResult:
    """What a finished rehearsal reported.

    Args:
        steps: verl's own metrics of each step, with the step's number as ``step``.
        seconds: From the start to the first step's report, and on to the end.
        save_parameters: Folder of the saved parameters.
    """

    steps: tuple[Step, ...]
    seconds: tuple[float, float]
    save_parameters: Path | None

    def parameters(self, step: int) -> dict[str, np.ndarray]:
        """Return the parameters after `step`; step 0 is the start."""
        if self.save_parameters is None:
            raise DfsimError("this rehearsal saved no parameters; give it save_parameters")
        with np.load(self.save_parameters / f"step_{step}.npz") as arrays:
            return dict(arrays)


def run_rehearsal(rehearsal: Rehearsal, *, on_step: OnStep | None = None) -> RehearsalResult:
    """Run a rehearsal to its end.

    Args:
        rehearsal: What to run.
        on_step: Called with number and metrics as soon as verl reports a step.

    Raises:
        DfsimError: The run failed; the message has the log's most telling line and names the log.
    """
    with _folders(rehearsal.folder) as (scratch, ray), _stopped_by_sigterm():
        _write_inputs(scratch, rehearsal.seed)
        folders = {
            RUN_VARIABLE: scratch,
            RAY_VARIABLE: ray,
            MODEL_VARIABLE: model.prepared_model(),
            "VERL_FILE_LOGGER_PATH": scratch / "metrics.jsonl",
            FORKS_VARIABLE: ray.with_name("forks"),
            "RAY_AUTH_MODE": "token",  # Ray reads both when imported, before the driver sets them
            "RAY_AUTH_TOKEN": secrets.token_hex(32),
            "HF_DATASETS_CACHE": scratch / "datasets",
        }
        log = scratch / "log.txt"
        started = time.monotonic()
        with log.open("wb") as output:
            process = subprocess.Popen(
                rehearsal.command(),
                env=rehearsal.environment() | {k: str(v) for k, v in folders.items()},
                cwd=scratch,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
            try:
                steps: list[Step] = []
                first = started
                for step in _follow(scratch / "metrics.jsonl", process):
                    first = time.monotonic() if not steps else first
                    steps.append(step)
                    if on_step is not None:
                        on_step(int(step["step"]), step)
            finally:
                _end(ray, process)
        if process.returncode != 0:
            kept = log
            if rehearsal.folder is None:
                kept = Path(tempfile.mkstemp(prefix="dfsim-rehearsal-", suffix=".log")[1])
                shutil.copy(log, kept)
            raise DfsimError(f"rehearsal failed: {_telling_line(log)} (log: {kept})")
        if not steps:
            raise DfsimError("the rehearsal reported no step; trainer.logger must hold file")
        seconds = (first - started, time.monotonic() - started)
    return RehearsalResult(tuple(steps), seconds, rehearsal.save_parameters)


@contextlib.contextmanager
def _folders(folder: Path | None) -> Iterator[tuple[Path, Path]]:
    """Give the scratch folder and Ray's, whose sockets need a short path."""
    with tempfile.TemporaryDirectory(
        prefix="dfs-", dir="/tmp" if os.path.isdir("/tmp") else None, ignore_cleanup_errors=True
    ) as short:
        scratch = Path(short, "run") if folder is None else folder.absolute()
        scratch.mkdir(parents=True, exist_ok=True)
        yield scratch, Path(short, "r")


@contextlib.contextmanager
def _stopped_by_sigterm() -> Iterator[None]:
    """Turn SIGTERM into an exception, so that a stopped rehearsal cleans up."""

    def stop(number: int, frame: FrameType | None) -> None:
        raise SystemExit(128 + number)

    try:
        before = signal.signal(signal.SIGTERM, stop)
    except ValueError:  # not the main thread, which alone gets signals
        yield
        return
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def _write_inputs(scratch: Path, seed: int) -> None:
    import polars as pl

    pl.DataFrame(task.dataset_rows(ROWS, seed)).write_parquet(scratch / "train.parquet")
    pl.DataFrame(task.dataset_rows(24, seed + 1)).write_parquet(scratch / "val.parquet")
    agents = [{"name": k, "_target_": f"{__package__}.agent.{v}"} for k, v in AGENTS.items()]
    (scratch / "agents.yaml").write_text(json.dumps(agents))  # JSON is YAML
    (scratch / "metrics.jsonl").unlink(missing_ok=True)


def _follow(path: Path, process: subprocess.Popen[bytes]) -> Iterator[Step]:
    """Yield steps from verl's file logger until the process ends."""
    read = 0
    ended = False
    while not ended:
        ended = process.poll() is not None
        if path.exists():
            with path.open("rb") as file:
                file.seek(read)
                for line in file:
                    if not line.endswith(b"\n"):
                        break
                    read += len(line)
                    record = json.loads(line)
                    if "training/global_step" in record["data"]:  # not a validation before step 1
                        yield {"step": record["step"], **record["data"]}
        if not ended:
            time.sleep(0.05)


def _end(ray: Path, process: subprocess.Popen[bytes]) -> None:
    """Kill every process of the run that is left, Ray's included."""
    mark = f"{RAY_VARIABLE}={ray}".encode()
    alive = True
    while alive:
        alive = False
        for entry in Path("/proc").iterdir():
            if entry.name.isdigit():
                with contextlib.suppress(OSError):
                    if mark in (entry / "environ").read_bytes().split(b"\0"):
                        os.kill(int(entry.name), signal.SIGKILL)
                        alive = True
        process.poll()
        time.sleep(0.05 * alive)
    process.wait()


def _telling_line(log: Path) -> str:
    """Return the last line of `log` that names an error, or else its last line."""
    text = re.sub(
        r"\x1b\[[0-9;]*m|^\(.*? pid=.*?\) ", "", log.read_text(errors="replace"), flags=re.M
    )
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    named = [line for line in lines if re.match(r"[\w.]*(Error|Exception)\b.*: ", line)]
    telling = [line for line in named if "RayTaskError" not in line] or named or lines or ["no log"]
    return re.sub(r"^dfsim[\w.]*Error: ", "", telling[-1])[:400]
