#!/usr/bin/env python3
"""Table (e): share of nanoseconds on the right span, a row a way to run code, a column a tracer.

Needs an interpreter with tests/python/requirements.txt, tailspan's extension built for it, and nothing else: each cell
of the table is a fresh process started as `tailspan run` starts one (PYTHONPATH only). Exit status 1 if a row is below
the bar.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import rows
import tracers

HERE = Path(__file__).resolve().parent
PYTHON_ROOT = HERE.parents[2] / "python"
BAR = 0.99
TIMEOUT_S = 300


def environment(tracer: str) -> dict[str, str]:
    env = {name: value for name, value in os.environ.items() if not name.startswith(("LANGSMITH", "LANGCHAIN", "OTEL"))}
    root = Path(os.environ.get("TAILSPAN_PYTHON_ROOT", PYTHON_ROOT))
    env["PYTHONPATH"] = os.pathsep.join((str(root / "sitecustomize"), str(root)))
    if tracer == "langsmith":
        env |= {"LANGSMITH_TRACING": "true", "LANGSMITH_API_KEY": "x", "LANGSMITH_ENDPOINT": "http://127.0.0.1:9"}
    return env


def measure(row: str, tracer: str, steps: int, python: str = sys.executable) -> dict[str, Any]:
    done = subprocess.run(
        [python, str(HERE / "worker.py"), row, tracer, str(steps)],
        env=environment(tracer),
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
    )
    if done.returncode != 0:
        return {"share": 0.0, "steps": 0, "wrong": [done.stderr[-1500:]], "status": {}}
    return json.loads(done.stdout.splitlines()[-1])


def cells(only_row: str | None, only_tracer: str | None) -> list[tuple[str, str]]:
    return [
        (row, tracer)
        for row, (_, _, fitting) in rows.ROWS.items()
        for tracer in tracers.NAMES
        if (not fitting or tracer in fitting) and only_row in (None, row) and only_tracer in (None, tracer)
    ]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--steps", type=int, default=1000, help="steps a row (default 1000)")
    parser.add_argument("--row", choices=rows.ROWS)
    parser.add_argument("--tracer", choices=tracers.NAMES)
    parser.add_argument("--python", default=sys.executable, help="interpreter of the application (default: this one)")
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args()
    below = 0
    for row, tracer in cells(args.row, args.tracer):
        result = measure(row, tracer, args.steps, args.python)
        below += result["share"] < BAR
        if args.json:
            print(json.dumps({"row": row, "tracer": tracer} | result), flush=True)
            continue
        after = f"  after their span's end: {result['after_end']}" if result.get("after_end") else ""
        print(f"{row:24} {tracer:14} {result['share'] * 100:7.3f} %  n={result['steps']}{after}", flush=True)
        if result["share"] < 1:
            print("    " + "; ".join(result["wrong"]), flush=True)
    return 1 if below else 0


if __name__ == "__main__":
    sys.exit(main())
