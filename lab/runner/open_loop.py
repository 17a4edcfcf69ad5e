"""The load generator: requests go out when the plan says, whatever comes back.

Usage: open_loop.py PLAN.json OUT.json. A process of its own, standard library
only, outside the recording. Each request keeps its intended, actual and first
byte times (CLOCK_MONOTONIC), so that a late client cannot hide a wait. The
client watches itself; `bottleneck` in its output voids the run.
"""

from __future__ import annotations

import asyncio
import gc
import json
import resource
import sys
import time
import urllib.parse
from pathlib import Path
from typing import Any

REQUEST_TIMEOUT_S = 60.0
# The client counts as the bottleneck beyond these.
LATE_P99_MS_MAX = 20.0
CPU_SHARE_MAX = 0.5
LOOP_LAG_PERIOD_S = 0.05
LOOP_LAG_P99_MS_MAX = 25.0


class Connections:
    """Keep-alive connections, as many as are needed, last used first."""

    def __init__(self, host: str, port: int) -> None:
        self._where = (host, port)
        self._idle: list[tuple[asyncio.StreamReader, asyncio.StreamWriter]] = []

    async def _connection(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        while self._idle:
            reader, writer = self._idle.pop()
            if not reader.at_eof():
                return reader, writer
            writer.close()
        return await asyncio.open_connection(*self._where)

    async def exchange(self, head: bytes, body: bytes) -> tuple[int, int, bytes]:
        """(status, time of the first byte, body) of one request."""
        reader, writer = await self._connection()
        try:
            writer.write(head + body)
            status_line = await reader.readline()
            first_byte_ns = time.monotonic_ns()
            length = 0
            while (line := await reader.readline()) not in (b"\r\n", b""):
                name, _, value = line.partition(b":")
                if name.lower() == b"content-length":
                    length = int(value)
            answer = await reader.readexactly(length)
            status = int(status_line.split()[1])
        except BaseException:
            writer.close()
            raise
        self._idle.append((reader, writer))
        return status, first_byte_ns, answer


class OpenLoop:
    """Sends one plan and gathers one row a request."""

    def __init__(self, plan: dict[str, Any]) -> None:
        url = urllib.parse.urlsplit(plan["url"])
        self._host = f"{url.hostname}:{url.port}"
        self._connections = Connections(str(url.hostname), int(url.port or 80))
        self._requests = plan["requests"]
        self._start_ns = int(plan["start_mono_ns"])
        self.rows: list[dict[str, Any]] = []
        self.lags_ms: list[float] = []

    async def _one(self, request: dict[str, Any], head: bytes, body: bytes, intended_ns: int) -> None:
        row = {"id": request["id"], "path": request["path"],
               "intended_mono_ns": intended_ns, "sent_mono_ns": time.monotonic_ns()}
        try:
            exchange = self._connections.exchange(head, body)
            status, first_ns, answer = await asyncio.wait_for(exchange, REQUEST_TIMEOUT_S)
            row.update(status=status, first_byte_mono_ns=first_ns, bytes=len(answer))
        except (OSError, asyncio.TimeoutError, ValueError, IndexError, EOFError) as error:
            row.update(status=0, error=repr(error))
        row["end_mono_ns"] = time.monotonic_ns()
        self.rows.append(row)

    async def _watch_loop(self) -> None:
        while True:
            due = time.monotonic() + LOOP_LAG_PERIOD_S
            await asyncio.sleep(LOOP_LAG_PERIOD_S)
            self.lags_ms.append(1e3 * (time.monotonic() - due))

    def _encode(self, request: dict[str, Any]) -> tuple[bytes, bytes]:
        body = json.dumps(request["body"]).encode()
        head = (
            f"POST {request['path']} HTTP/1.1\r\nhost: {self._host}\r\n"
            f"content-type: application/json\r\ncontent-length: {len(body)}\r\n"
            f"x-request-id: {request['id']}\r\n\r\n"
        )
        return head.encode(), body

    async def run(self) -> None:
        """Returns when every answer is in."""
        encoded = [self._encode(r) for r in self._requests]
        watcher = asyncio.create_task(self._watch_loop())
        async with asyncio.TaskGroup() as tasks:
            for request, (head, body) in zip(self._requests, encoded):
                intended_ns = self._start_ns + int(request["at_s"] * 1e9)
                await asyncio.sleep(max(0.0, (intended_ns - time.monotonic_ns()) / 1e9))
                tasks.create_task(self._one(request, head, body, intended_ns))
        watcher.cancel()


def _p99(values: list[float]) -> float:
    return sorted(values)[int(0.99 * (len(values) - 1))] if values else 0.0


def _self_check(loop: OpenLoop, wall_s: float) -> dict[str, Any]:
    usage = resource.getrusage(resource.RUSAGE_SELF)
    late = _p99([1e-6 * (r["sent_mono_ns"] - r["intended_mono_ns"]) for r in loop.rows])
    lag, cpu = _p99(loop.lags_ms), (usage.ru_utime + usage.ru_stime) / wall_s
    reasons = []
    if late > LATE_P99_MS_MAX:
        reasons.append(f"requests left {late:.1f} ms late (p99, at most {LATE_P99_MS_MAX})")
    if lag > LOOP_LAG_P99_MS_MAX:
        reasons.append(f"its loop lagged {lag:.1f} ms (p99, at most {LOOP_LAG_P99_MS_MAX})")
    if cpu > CPU_SHARE_MAX:
        reasons.append(f"it used {cpu:.2f} of a core (at most {CPU_SHARE_MAX})")
    return {"late_p99_ms": late, "loop_lag_p99_ms": lag, "cpu_share": cpu, "bottleneck": reasons}


def main() -> None:
    plan = json.loads(Path(sys.argv[1]).read_text())
    loop = OpenLoop(plan)
    gc.disable()
    start = time.monotonic()
    asyncio.run(loop.run())
    check = _self_check(loop, time.monotonic() - start)
    Path(sys.argv[2]).write_text(json.dumps({"rows": loop.rows, "client": check}))


if __name__ == "__main__":
    main()
