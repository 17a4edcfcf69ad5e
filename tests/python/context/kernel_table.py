#!/usr/bin/env python3
"""Table (e) as the kernel sees it: the span in each record of the probes against what the application did.

Runs the workloads of `table_e.py` under `dump_intervals` (built with the tests; needs root) and lays its records over
the application's own log of steps. A record covers its thread from its window's start to its wait's end. Prints for
each row the share of the steps' nanoseconds that records cover, and the share of those on the right span. Exit status
1 if a row's right share is below the bar.
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
from pathlib import Path

import table_e
import tracers

# "   12.345 ms PID/TID #SEQUENCE window US us cpu ... [span HEX] [| CAUSE US+US us ...]"
_RECORD = re.compile(
    r"\s*(?P<at>-?[\d.]+) ms \d+/(?P<tid>\d+) #\d+ window (?P<window>-?[\d.]+) us"
    r"[^|]*?(?: span (?P<span>[0-9a-f]{16}))?\s*(?:\| \w+ (?P<asleep>-?[\d.]+)\+(?P<ready>-?[\d.]+) us.*)?$"
)
_ORIGIN = re.compile(r"origin (\d+) ns")

Piece = tuple[float, float, str]


def pieces_of(output: str) -> dict[int, list[Piece]]:
    """Each thread's records as (start, end, span id), in order of time."""
    origin = 0
    threads: dict[int, list[Piece]] = defaultdict(list)
    for line in output.splitlines():
        found = _ORIGIN.match(line)
        if found:
            origin = int(found.group(1))
            continue
        record = _RECORD.match(line)
        if record:
            start = origin + float(record["at"]) * 1e6
            long = float(record["window"]) + float(record["asleep"] or 0) + float(record["ready"] or 0)
            threads[int(record["tid"])].append((start, start + long * 1e3, record["span"] or ""))
    for pieces in threads.values():
        pieces.sort()
    return threads


def overlaps(pieces: list[Piece], start: float, end: float) -> list[tuple[float, str]]:
    found = []
    at = max(0, bisect.bisect(pieces, (start,)) - 1)
    while at < len(pieces) and pieces[at][0] < end:
        shared = min(end, pieces[at][1]) - max(start, pieces[at][0])
        if shared > 0:
            found.append((shared, pieces[at][2]))
        at += 1
    return found


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
        threads = pieces_of(output)
        rows: dict[str, list[float]] = defaultdict(lambda: [0, 0.0, 0.0, 0.0])
        for line in log.splitlines():
            row, thread, start, end, _, right = json.loads(line)
            sums = rows[row]
            sums[0] += 1
            sums[1] += end - start
            for shared, span in overlaps(threads.get(thread, []), start, end):
                sums[2] += shared
                sums[3] += shared if span in right else 0
        for row, (count, total, covered, hit) in rows.items():
            share = hit / covered if covered else 0.0
            below += share < table_e.BAR
            print(
                f"{tracer:24} {row:24} right {share * 100:7.3f} %  covered {covered / total * 100:7.3f} %"
                f"  n={count:.0f}",
                flush=True,
            )
    return 1 if below else 0


if __name__ == "__main__":
    sys.exit(main())
