"""Runs in place of a Ray worker's interpreter: has `fork_server` fork the worker, and waits.

Started with Python's ``-I -S``, so it imports nothing but the standard library.
"""

import json
import os
import signal
import socket
import sys


def main() -> int:
    """Hand arguments, environment, and standard streams to the server; return the exit status."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    server = socket.socket(socket.AF_UNIX)
    server.connect(os.environ["DFSIM_REHEARSAL_FORKS"])
    request = {"argv": sys.argv[1:], "environ": dict(os.environ), "cwd": os.getcwd()}
    data = json.dumps(request).encode()
    socket.send_fds(server, [len(data).to_bytes(8, "big")], [0, 1, 2])
    server.sendall(data)
    answer = server.recv(1)  # ends when the worker's process ends
    return answer[0] if answer else 0


if __name__ == "__main__":
    sys.exit(main())
