#!/usr/bin/env python3
"""What the hooks cost: CPU of all threads per LangChain step, with and without tailspan, in alternating processes.

A step is one RunnableLambda run. `--rounds` pairs of processes an arm; prints the median of each arm and of the paired
differences, in microseconds.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
from pathlib import Path

import table_e

STEPS = 2000
WARM_UP = 200
HERE = Path(__file__).resolve().parent

WORK = f"""
import asyncio, sys, time
sys.path.insert(0, {str(HERE)!r})
kind, tracer = sys.argv[1:]
if tracer != "none":
    import tracers
    tracers.make(tracer)
from langchain_core.runnables import RunnableLambda
def work(x): return x
async def awork(x): return x
chain = RunnableLambda(work, awork)
def sync(n):
    for _ in range(n): chain.invoke(1)
async def loop(n):
    for _ in range(n): await chain.ainvoke(1)
def go(n): sync(n) if kind == "sync" else asyncio.run(loop(n))
go({WARM_UP})
start = time.process_time_ns()
go({STEPS})
print((time.process_time_ns() - start) / {STEPS} / 1000)
"""


def arm(kind: str, tracer: str, hooked: bool) -> float:
    env = table_e.environment(tracer)
    if not hooked:
        del env["PYTHONPATH"]
    command = [sys.executable, "-c", WORK, kind, tracer]
    return float(subprocess.run(command, env=env, stdout=subprocess.PIPE, check=True, text=True).stdout)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--tracer", action="append", help="default: none, otel, openinference, openllmetry, langsmith")
    args = parser.parse_args()
    print(f"load {os.getloadavg()[0]:.1f}; us CPU per step, median of {args.rounds} pairs of {STEPS} steps")
    for tracer in args.tracer or ("none", "otel", "openinference", "openllmetry", "langsmith"):
        for kind in ("sync", "async"):
            pairs = [(arm(kind, tracer, False), arm(kind, tracer, True)) for _ in range(args.rounds)]
            plain, hooked = (statistics.median(side) for side in zip(*pairs))
            difference = statistics.median(b - a for a, b in pairs)
            print(f"{tracer:14} {kind:6} without {plain:7.1f}  with {hooked:7.1f}  difference {difference:+6.1f}", flush=True)


if __name__ == "__main__":
    main()
