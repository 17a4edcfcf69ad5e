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
from dataclasses import dataclass
from pathlib import Path

import table_e
import tracers

# "   12.345 ms PID/TID #SEQUENCE window US us cpu ... [span HEX since US[ moved]] [| CAUSE US+US us ...]"
_RECORD = re.compile(
    r"\s*(?P<at>-?[\d.]+) ms \d+/(?P<tid>\d+) #\d+ window (?P<window>-?[\d.]+) us"
    r"[^|]*?(?: span (?P<span>[0-9a-f]{16}) since (?P<since>-?[\d.]+)(?P<moved> moved)?)?\s*(?:\| \w+ (?P<asleep>-?[\d.]+)\+(?P<ready>-?[\d.]+) us.*)?$"
)
_ORIGIN = re.compile(r"origin (\d+) ns")

Piece = tuple[float, float, str, bool]  # start, end, span id, whether a wait


def pieces_of(output: str) -> dict[int, list[Piece]]:
    """Each thread's records as pieces, in order of time."""
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
            asleep = start + float(record["window"]) * 1e3
            awake = asleep + (float(record["asleep"] or 0) + float(record["ready"] or 0)) * 1e3
            known = asleep if record["moved"] else start + max(0.0, float(record["since"] or 0) * 1e3)
            thread = threads[int(record["tid"])]
            if known < asleep:
                thread.append((known, asleep, record["span"] or "", False))
            if asleep < awake:
                thread.append((asleep, awake, record["span"] or "", True))
    for pieces in threads.values():
        pieces.sort()
    return threads


def overlaps(pieces: list[Piece], start: float, end: float) -> list[tuple[float, str, bool]]:
    found = []
    at = max(0, bisect.bisect(pieces, (start,)) - 1)
    while at < len(pieces) and pieces[at][0] < end:
        shared = min(end, pieces[at][1]) - max(start, pieces[at][0])
        if shared > 0:
            found.append((shared, pieces[at][2], pieces[at][3]))
        at += 1
    return found


@dataclass
class Sums:
    steps: int = 0
    total: float = 0
    told: float = 0
    right: float = 0
    waits: float = 0
    right_waits: float = 0

    def add(self, pieces: list[Piece], start: float, end: float, right: list[str]) -> None:
        self.steps += 1
        self.total += end - start
        for shared, span, wait in overlaps(pieces, start, end):
            hit = shared if span in right else 0
            self.told += shared
            self.right += hit
            self.waits += shared if wait else 0
            self.right_waits += hit if wait else 0


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
        rows: dict[str, Sums] = defaultdict(Sums)
        for line in log.splitlines():
            row, thread, start, end, _, right = json.loads(line)
            rows[row].add(threads.get(thread, []), start, end, right)
        for row, sums in rows.items():
            share, of_waits = sums.right / max(sums.told, 1), sums.right_waits / max(sums.waits, 1)
            below += min(share, of_waits) < table_e.BAR
            print(
                f"{tracer:24} {row:24} right {share * 100:7.3f} % of {sums.told / sums.total * 100:5.1f} % told;"
                f" waits {of_waits * 100:7.3f} % of {sums.waits / 1e6:7.1f} ms  n={sums.steps}",
                flush=True,
            )
    return 1 if below else 0


if __name__ == "__main__":
    sys.exit(main())
