"""What context and ring cost per asyncio step, in CPU time: alternating rounds of three arms in one process.

    PYTHONPATH=<build>/python python3 bench/loop_step_cost.py [ROUNDS]

Arms: `off` stock asyncio; `on` hooks installed, no span; `span` hooks installed and each task in a span. Each round
runs every arm once, in an order that changes; the difference to `off` of the same round is what is reported, as median
with a 95 % interval of the median (order statistics). A bare step is a task's `sleep(0)`: the most expensive case, for
nothing else happens in it. Results are checked before anything is timed.
"""
from __future__ import annotations

import asyncio
import contextlib
import gc
import math
import random
import socket
import statistics
import sys
import time
from typing import Awaitable, Callable, Iterator

from tailspan import _context as ctx

ARMS = ("off", "on", "span")
GOAL_NS = 300


@contextlib.contextmanager
def spanned(on: bool) -> Iterator[None]:
    if not on:
        yield
        return
    cell = ctx.Cell(b"t" * 16, b"s" * 8, None, ctx.current_cell())
    ctx.enter(cell)
    try:
        yield
    finally:
        ctx.leave(cell)


async def bare_steps(on: bool, count: int = 6000) -> int:
    async def task() -> None:
        with spanned(on):
            for _ in range(count):
                await asyncio.sleep(0)

    await asyncio.gather(task(), task())
    return 2 * count


async def echoes(on: bool, count: int = 300) -> int:
    a, b = socket.socketpair()

    async def serve() -> None:
        reader, writer = await asyncio.open_connection(sock=a)
        for _ in range(count):
            writer.write(await reader.readexactly(64))
        writer.close()

    task = asyncio.create_task(serve())
    with spanned(on):
        reader, writer = await asyncio.open_connection(sock=b)
        for _ in range(count):
            writer.write(b"x" * 64)
            await reader.readexactly(64)
        writer.close()
    await task
    return count


async def tasks(on: bool, count: int = 1500) -> int:
    async def child() -> None:
        with spanned(on):
            await asyncio.sleep(0)

    for _ in range(count):
        await asyncio.create_task(child())
    return count


async def jobs(on: bool, count: int = 300) -> int:
    with spanned(on):
        for _ in range(count):
            await asyncio.to_thread(abs, 1)
    return count


def cpu_ns(arm: str, work: Callable[[bool], Awaitable[int]]) -> float:
    if arm != "off":
        report = ctx.install_loop()
        assert report["ring"] is True, report
    try:
        gc.collect()
        start = time.process_time_ns()
        units = asyncio.run(work(arm == "span"))
        return (time.process_time_ns() - start) / units
    finally:
        ctx.uninstall_loop()


def interval(values: list[float]) -> tuple[float, float, float]:
    ordered, n = sorted(values), len(values)
    low = max(0, math.floor(n / 2 - 0.98 * math.sqrt(n)) - 1)
    return statistics.median(ordered), ordered[low], ordered[n - 1 - low]


def check() -> None:
    """The arms do the same work, and `span` publishes."""
    async def probe(on: bool) -> int:
        with spanned(on):
            await asyncio.sleep(0)
            assert (ctx.published() == b"s" * 8) is on
        return 1

    for arm in ARMS:
        cpu_ns(arm, probe)


def main() -> int:
    rounds = int(sys.argv[1]) if len(sys.argv) > 1 else 21
    check()
    print(f"CPython {sys.version.split()[0]}, {rounds} rounds; CPU ns a unit, difference to off [95 % of the median]")
    within = True
    for name, work in (("bare step", bare_steps), ("echo", echoes), ("task", tasks), ("to_thread", jobs)):
        seen: dict[str, list[float]] = {arm: [] for arm in ARMS}
        for arm in ARMS:
            cpu_ns(arm, work)
        for _ in range(rounds):
            for arm in random.sample(ARMS, len(ARMS)):
                seen[arm].append(cpu_ns(arm, work))
        line = f"{name:10s} off {statistics.median(seen['off']):8.0f}"
        for arm in ARMS[1:]:
            median, low, high = interval([x - y for x, y in zip(seen[arm], seen["off"])])
            line += f"   {arm} {median:+7.0f} [{low:+.0f}, {high:+.0f}]"
            if name == "bare step":
                within &= high <= GOAL_NS
        print(line, flush=True)
    print(f"bare step within +{GOAL_NS} ns by the upper end: {'yes' if within else 'NO'}")
    return 0 if within else 1


if __name__ == "__main__":
    sys.exit(main())
