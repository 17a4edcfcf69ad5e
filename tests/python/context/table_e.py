#!/usr/bin/env python3
"""Table (e): share of nanoseconds on the right span, for each tracer and each way to run code.

Needs an interpreter with tests/python/requirements.txt, tailspan's extension built for it, and nothing else: each
tracer's rows run in a fresh process started as `tailspan run` starts one (PYTHONPATH only). The first share is what the
threads' own TLS records say. With TAILSPAN_RING_DUMP naming the built loop_ring_dump there is a second: what the loop
ring tells another process. Exit status 1 if a row is below the bar or a hook had an error.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any, Iterator

import rows
import tracers

HERE = Path(__file__).resolve().parent
BAR = 0.99
# LangChain and LangSmith have no release for Python 3.10 any more: there these rows are left, of the one tracer `otel`.
WITHOUT_LANGCHAIN = (
    "plain",
    "asyncio",
    "uvloop",
    "to_thread",
    "run_in_executor",
    "run_in_executor-uvloop",
    "ThreadPoolExecutor",
    "anyio",
    "anyio-uvloop",
)
HAS_LANGCHAIN = importlib.util.find_spec("langchain_core") is not None
TRACERS = tracers.NAMES if HAS_LANGCHAIN else ("otel",)


def python_root() -> Path:
    """The folder that `tailspan run` would use: package, extension and sitecustomize."""
    return Path(os.environ.get("TAILSPAN_PYTHON_ROOT", HERE.parents[2] / "python"))


def environment(tracer: str) -> dict[str, str]:
    env = {name: value for name, value in os.environ.items() if not name.startswith(("LANGSMITH", "LANGCHAIN", "OTEL"))}
    env["PYTHONPATH"] = str(python_root() / "sitecustomize")
    if "langsmith" in tracer:
        env |= {"LANGSMITH_TRACING": "true", "LANGSMITH_API_KEY": "x", "LANGSMITH_ENDPOINT": "http://127.0.0.1:9"}
    if tracer == "langsmith-otel":  # LangSmith's runs leave as OpenTelemetry spans, and their contexts are attached
        env |= {"LANGSMITH_OTEL_ENABLED": "true", "OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:9"}
    return env


def fitting(tracer: str) -> list[str]:
    """The rows that make sense under a tracer."""
    wanted = rows.ROWS if HAS_LANGCHAIN else WITHOUT_LANGCHAIN
    return [row for row in wanted if not rows.ROWS[row][2] or tracer in rows.ROWS[row][2]]


def measure(tracer: str, wanted: list[str], steps: int, python: str = sys.executable) -> Iterator[dict[str, Any]]:
    """One result a row, as they come; a last one with `hook_errors`: what went wrong inside the hooks."""
    with subprocess.Popen(
        [python, str(HERE / "worker.py"), tracer, str(steps), *wanted],
        env=environment(tracer),
        stdout=subprocess.PIPE,
        text=True,
    ) as worker:
        assert worker.stdout is not None
        for line in worker.stdout:
            yield json.loads(line)
    if worker.returncode:
        raise SystemExit(f"{tracer}: the worker ended with status {worker.returncode}")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--steps", type=int, default=1000, help="steps a row (default 1000)")
    parser.add_argument("--row", choices=rows.ROWS)
    parser.add_argument("--tracer", choices=tracers.NAMES)
    parser.add_argument("--python", default=sys.executable, help="interpreter of the application (default: this one)")
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args()
    below = 0
    for tracer in [args.tracer] if args.tracer else TRACERS:
        wanted = [row for row in fitting(tracer) if args.row in (None, row)]
        for result in measure(tracer, wanted, args.steps, args.python) if wanted else ():
            below += report(tracer, result, args.json)
    return 1 if below else 0


def report(tracer: str, result: dict[str, Any], as_json: bool) -> bool:
    """Prints a result; whether it is bad."""
    bad = bool(result.get("hook_errors")) or min(result.get("share", 1), result.get("ring_share", 1)) < BAR
    if as_json:
        print(json.dumps({"tracer": tracer} | result), flush=True)
    elif "hook_errors" in result:
        if bad:
            print(f"{tracer}: errors in hooks: {result['hook_errors']}", flush=True)
    else:
        after = f"  after their span's end: {result['after_end']}" if result.get("after_end") else ""
        ring = f"  ring {result['ring_share'] * 100:7.3f} %" if "ring_share" in result else ""
        share = f"{result['share'] * 100:7.3f} %{ring}"
        print(f"{tracer:24} {result['row']:24} {share}  n={result['steps']}{after}", flush=True)
        if result["share"] < 1:
            print("    " + "; ".join(result["wrong"]), flush=True)
    return bad


if __name__ == "__main__":
    sys.exit(main())
