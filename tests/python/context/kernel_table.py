#!/usr/bin/env python3
"""Table (e) as the kernel sees it: the span in each wait that the probes record against what the application did.

Runs the workloads of `table_e.py` under `dump_intervals` (built with the tests; needs root) and lays the waits it
recorded over the application's own log of steps: half of the steps sleep, the others wait for the GIL or the CPU now
and then. (What a thread did on the CPU between two waits is the ring's to tell: see `table_e.py`.) Exit status 1 if a
row's share of nanoseconds on the right span is below the bar.
"""

from __future__ import annotations

import argparse
import bisect
import json
import re
import subprocess
import sys
import tempfile
from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path

import table_e
import tracers

# "   12.345 ms PID/TID #SEQUENCE window US us cpu ... [span HEX] | CAUSE US+US us ..."
_WAIT = re.compile(
    r"\s*(?P<at>-?[\d.]+) ms \d+/(?P<tid>\d+) #\d+ window (?P<window>-?[\d.]+) us"
    r"[^|]*?(?: span (?P<span>[0-9a-f]{16}))?\s*\| \w+ (?P<asleep>-?[\d.]+)\+(?P<ready>-?[\d.]+) us"
)
_ORIGIN = re.compile(r"origin (\d+) ns")

Wait = tuple[float, float, str]  # start, end, span id


def waits_of(output: str) -> dict[int, list[Wait]]:
    """Each thread's recorded waits in order of time."""
    origin = 0
    threads: dict[int, list[Wait]] = defaultdict(list)
    for line in output.splitlines():
        found = _ORIGIN.match(line)
        if found:
            origin = int(found.group(1))
            continue
        wait = _WAIT.match(line)
        if wait:
            start = origin + float(wait["at"]) * 1e6 + float(wait["window"]) * 1e3
            end = start + (float(wait["asleep"]) + float(wait["ready"])) * 1e3
            threads[int(wait["tid"])].append((start, end, wait["span"] or ""))
    for waits in threads.values():
        waits.sort()
    return threads


@dataclass
class Sums:
    steps: int = 0
    waits: float = 0
    right: float = 0

    def add(self, waits: list[Wait], start: float, end: float, right: list[str]) -> None:
        self.steps += 1
        for at in range(max(0, bisect.bisect(waits, (start,)) - 1), len(waits)):
            if waits[at][0] >= end:
                break
            shared = max(0.0, min(end, waits[at][1]) - max(start, waits[at][0]))
            self.waits += shared
            self.right += shared if waits[at][2] in right else 0


def record(dump: str, tracer: str, steps: int, wanted: list[str]) -> tuple[str, str]:
    with tempfile.TemporaryDirectory() as folder:
        log = Path(folder) / "log"
        out = Path(folder) / "out"
        command = [sys.executable, str(table_e.HERE / "worker.py"), tracer, str(steps), *wanted]
        with open(out, "w") as sink:
            done = subprocess.run(
                [dump, *command], env=table_e.environment(tracer) | {"TABLE_E_LOG": str(log)}, stdout=sink
            )
        if done.returncode or not log.exists():
            raise SystemExit(f"{dump} ended with status {done.returncode}")
        return out.read_text(), log.read_text()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--dump", required=True, help="the dump_intervals program")
    parser.add_argument("--steps", type=int, default=1000)
    parser.add_argument("--row")
    parser.add_argument("--tracer", choices=tracers.NAMES)
    args = parser.parse_args()
    below = 0
    for tracer in [args.tracer] if args.tracer else tracers.NAMES:
        wanted = [row for row in table_e.fitting(tracer) if args.row in (None, row)]
        output, log = record(args.dump, tracer, args.steps, wanted)
        threads = waits_of(output)
        rows: dict[str, Sums] = defaultdict(Sums)
        for line in log.splitlines():
            row, thread, start, end, _, right = json.loads(line)
            rows[row].add(threads.get(thread, []), start, end, right)
        for row, sums in rows.items():
            share = sums.right / max(sums.waits, 1)
            below += share < table_e.BAR
            print(
                f"{tracer:24} {row:24} {share * 100:7.3f} % of {sums.waits / 1e6:8.1f} ms waited  n={sums.steps}",
                flush=True,
            )
    return 1 if below else 0


if __name__ == "__main__":
    sys.exit(main())
