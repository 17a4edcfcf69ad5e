"""Starts a server, asks it REQUESTS times for each path, six at a time, stops it: serve.py REQUESTS OUT SERVER ARG...

`{port}` in the arguments is a free port. OUT gets one answer a line, as JSON with the path it is for.
"""

from __future__ import annotations

import http.client
import json
import pathlib
import signal
import socket
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any

PATHS = ("/async", "/thread", "/sync")
AT_ONCE = 6


def free_port() -> int:
    with socket.socket() as held:
        held.bind(("127.0.0.1", 0))
        return int(held.getsockname()[1])


def ask(port: int, path: str) -> dict[str, Any]:
    """Tries again while the server starts and while a worker is replaced."""
    deadline = time.monotonic() + 40
    while True:
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=10)
        try:
            connection.request("GET", path, headers={"Connection": "close"})
            return json.load(connection.getresponse()) | {"path": path}
        except (OSError, http.client.HTTPException, ValueError):
            if time.monotonic() > deadline:
                raise
            time.sleep(0.1)
        finally:
            connection.close()


def main() -> None:
    requests, out = int(sys.argv[1]), sys.argv[2]
    port = free_port()
    command = [argument.replace("{port}", str(port)) for argument in sys.argv[3:]]
    server = subprocess.Popen(command, cwd=pathlib.Path(__file__).parent, start_new_session=True)
    try:
        for _ in range(4):
            ask(port, "/async")
        time.sleep(1)  # until all workers have been found from outside
        answers = []
        with ThreadPoolExecutor(AT_ONCE) as clients:
            for path in PATHS:
                answers += clients.map(lambda path: ask(port, path), [path] * requests)
        time.sleep(0.5)
    finally:
        server.send_signal(signal.SIGTERM)
        try:
            server.wait(20)
        except subprocess.TimeoutExpired:
            server.kill()
            server.wait()
    with open(out, "w") as file:
        file.writelines(json.dumps(answer) + "\n" for answer in answers)


main()
