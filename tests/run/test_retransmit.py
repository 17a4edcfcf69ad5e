"""How long a retransmission was, by the ledger and by the client's own clock."""

from __future__ import annotations

import json
import pathlib
import shutil
import socket
import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Iterator

import pytest
from program import TAILSPAN, needs_root, tailspan

HERE = pathlib.Path(__file__).parent
EXCHANGES, DROP_ONE_IN, SERVER_S = 250, 25, 0.004
TIMEOUT_MS = 200  # TCP's least; what else delays an exchange here is shorter
COMMENT = "tailspan-test"


@pytest.fixture()
def server() -> Iterator[int]:
    """Answers each 400 bytes by 400 after a while; not followed by tailspan."""
    listener = socket.create_server(("127.0.0.1", 0))

    def serve() -> None:
        connection, _ = listener.accept()
        with connection:
            while True:
                need = 400
                while need:
                    got = connection.recv(need)
                    if not got:
                        return
                    need -= len(got)
                time.sleep(SERVER_S)
                connection.sendall(b"a" * 400)

    thread = threading.Thread(target=serve, daemon=True)
    thread.start()
    yield listener.getsockname()[1]
    listener.close()


@pytest.fixture(params=[pytest.param("--dport", marks=pytest.mark.long), "--sport"], ids=["questions", "answers"])
def lossy(request: pytest.FixtureRequest, server: int) -> Iterator[int]:
    """Drops one in so many of the packets with data at their receiver, in one direction."""
    rule = ["INPUT", "-i", "lo", "-p", "tcp", request.param, str(server), "-m", "length", "--length", "400:65535",
            "-m", "statistic", "--mode", "nth", "--every", str(DROP_ONE_IN), "--packet", "0", "-m", "comment", "--comment", COMMENT,
            "-j", "DROP"]
    subprocess.run(["iptables", "-I", *rule], check=True)
    try:
        yield server
    finally:
        subprocess.run(["iptables", "-D", *rule], check=True)


@needs_root
@pytest.mark.skipif(shutil.which("iptables") is None, reason="iptables is not installed")
def test_a_retransmission_is_as_long_as_the_client_waited_for_it(lossy: int, tmp_path: pathlib.Path) -> None:
    recording, log = tmp_path / "r.duckdb", tmp_path / "log"
    command = [TAILSPAN, "run", "--out", recording, "--no-explain", "--", sys.executable, HERE / "lossy_client.py",
               lossy, EXCHANGES, log]
    subprocess.run([str(word) for word in command], check=True, timeout=120)
    told = [json.loads(line) for line in log.read_text().splitlines()]
    typical_ms = statistics.median(row["ms"] for row in told)
    struck = [row for row in told if row["ms"] > typical_ms + TIMEOUT_MS / 2]
    assert len(struck) >= EXCHANGES // DROP_ONE_IN // 2
    errors = []
    for row in struck:
        result = tailspan("explain", recording, "--trace", row["trace"], "--format", "json")
        ledger = json.loads(result.stdout)
        lost_ns = sum(p["end_ns"] - p["start_ns"] for p in ledger["ledger"] if p["cause"] == "retransmit")
        errors.append(1e-6 * lost_ns - (row["ms"] - typical_ms))
    lost_ms = sum(row["ms"] - typical_ms for row in struck)
    print(f"{len(struck)} losses, {lost_ms:.0f} ms; ledger differs by {sum(errors):+.1f} ms, "
          f"each by {min(errors):+.2f} to {max(errors):+.2f} ms")
    assert abs(sum(errors)) <= 0.05 * lost_ms
