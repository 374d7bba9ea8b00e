"""Imports verl once and forks the driver and Ray's workers, each of which saves six seconds.

``python -m dfsim.live.rehearsal.fork_server <overrides>`` runs verl's ``main_ppo`` with the
overrides, and ends with its exit status. Ray starts its workers through `fork_client`.
"""

from __future__ import annotations

import atexit
import importlib
import json
import os
import runpy
import socket
import sys
import traceback
from collections.abc import Callable
from typing import Any, NoReturn

SOCKET_VARIABLE = "DFSIM_REHEARSAL_FORKS"
PRELOADED = (
    "verl.trainer.main_ppo",
    "verl.trainer.ppo.v1",
    "verl.workers.engine.fsdp.transformer_impl",
    "verl.experimental.reward_loop",
    "transformers.models.llama.modeling_llama",
    "ray._private.workers.default_worker",
    "dfsim.live.rehearsal.agent",
    "dfsim.live.rehearsal.buffer",
    "dfsim.live.rehearsal.rollout",
)


def main() -> int:
    """Serve forks until the driver ends."""
    # Ray's core reads these once, when imported; Ray sets them for each worker. A cluster of its
    # own has one job, and a worker ends when the process of that number does.
    os.environ.update(RAY_JOB_ID="01000000", RAY_RAYLET_PID=str(os.getpid()))
    server = socket.socket(socket.AF_UNIX)
    server.bind(os.environ[SOCKET_VARIABLE])
    server.listen(64)
    for name in PRELOADED:
        importlib.import_module(name)
    del os.environ["RAY_JOB_ID"], os.environ["RAY_RAYLET_PID"]
    driver = os.fork()
    if driver == 0:
        server.close()
        sys.argv = ["main_ppo", *sys.argv[1:]]
        _run(lambda: runpy.run_module("verl.trainer.main_ppo", run_name="__main__"))
    server.settimeout(0.2)
    while True:
        ended, status = os.waitpid(-1, os.WNOHANG)
        if ended == driver:
            return os.waitstatus_to_exitcode(status)
        if ended:
            continue
        try:
            client, _ = server.accept()
        except TimeoutError:
            continue
        if os.fork() == 0:
            server.close()
            _become_worker(client)
        client.close()


def _become_worker(client: socket.socket) -> NoReturn:
    head, streams, _, _ = socket.recv_fds(client, 8, 3)
    request = json.loads(client.makefile("rb").read(int.from_bytes(head, "big")))
    for number, stream in enumerate(streams):
        os.dup2(stream, number)
        os.close(stream)
    os.environ.clear()
    os.environ.update(request["environ"])
    os.chdir(request["cwd"])
    sys.argv = request["argv"]
    _run(lambda: runpy.run_path(sys.argv[0], run_name="__main__"))


def _run(entry: Callable[[], Any]) -> NoReturn:
    """Run `entry` as a process of its own would, and end the process."""
    status = 1
    try:
        entry()
        status = 0
    except SystemExit as end:
        status = end.code if isinstance(end.code, int) else int(end.code is not None)
    except BaseException:
        traceback.print_exc()
    finally:
        atexit._run_exitfuncs()
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(status)


if __name__ == "__main__":
    sys.exit(main())
