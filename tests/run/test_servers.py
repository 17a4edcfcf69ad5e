"""Servers with several workers, as users run them: each worker has its own ring and its requests are explained."""

from __future__ import annotations

import json
import os
import pathlib
import shutil
import subprocess
import sys
from collections import defaultdict
from typing import Any

import pytest

TAILSPAN = os.environ.get("TAILSPAN", "build/release/bin/tailspan")
HERE = pathlib.Path(__file__).parent
REQUESTS = 24  # for each path
EACH = 3  # requests looked at, for each worker and path
EXPLAINED = 0.95
pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="needs root for kernel probes")

UVICORN = ["uvicorn", "web:app", "--port", "{port}", "--log-level", "warning", "--loop", "asyncio"]
GUNICORN = ["gunicorn", "web:app", "-b", "127.0.0.1:{port}", "-w", "2", "--log-level", "warning"]
ON_ASYNCIO = ["-k", "asyncio_worker.AsyncioWorker"]
# The spans that sleep: FastAPI has one of its own around the endpoint, multiprocessing's workers have not.
SLEEPERS = {"/async": ("fastapi.endpoint", "request /async"), "/thread": ("work",), "/sync": ("work",)}
# How it is started, and how many worker processes answer at least.
SERVERS: dict[str, tuple[list[str], int]] = {
    "uvicorn": (UVICORN, 1),
    "uvicorn-workers": ([*UVICORN, "--workers", "2"], 2),
    "gunicorn": ([*GUNICORN, *ON_ASYNCIO], 2),
    "gunicorn-preload": ([*GUNICORN, *ON_ASYNCIO, "--preload"], 2),
    "gunicorn-restarts": ([*GUNICORN, *ON_ASYNCIO, "--max-requests", "15"], 4),
    "instrumented": (["opentelemetry-instrument", *UVICORN], 1),
    "instrumented-gunicorn": (["opentelemetry-instrument", *GUNICORN, *ON_ASYNCIO], 2),
}
EVERY_TIME = ("uvicorn-workers", "instrumented-gunicorn")


def record(tmp_path: pathlib.Path, *command: object) -> tuple[pathlib.Path, list[dict[str, Any]]]:
    file, out = tmp_path / "r.duckdb", tmp_path / "answers"
    # A span that waits long for its batch would not be there when a worker is replaced.
    environment = dict(os.environ, PYTHONPATH=str(HERE), OTEL_BSP_SCHEDULE_DELAY="200")
    arguments = [TAILSPAN, "run", "--out", file, "--no-explain", "--", sys.executable, *command]
    done = subprocess.run([str(a).replace("OUT", str(out)) for a in arguments], capture_output=True, text=True,
                          timeout=240, env=environment)
    assert done.returncode == 0, done.stderr
    return file, [json.loads(line) for line in out.read_text().splitlines()]


def explain(file: pathlib.Path, *arguments: str) -> dict[str, Any]:
    result = subprocess.run([TAILSPAN, "explain", file, "--format", "json", *arguments], capture_output=True, text=True,
                            timeout=60)
    assert result.returncode in (0, 3), result.stderr
    return json.loads(result.stdout)


class Ledger:
    def __init__(self, file: pathlib.Path, trace: str) -> None:
        told = explain(file, "--trace", trace)
        self.pieces = told["ledger"]
        self.duration_ns = told["duration_ns"]

    def ns(self, cause: str, span: str = "") -> int:
        return sum(p["end_ns"] - p["start_ns"] for p in self.pieces
                   if p["cause"] == cause and (not span or p["span"] == span))

    def __repr__(self) -> str:
        return "\n".join(f"{p['start_ns'] / 1e6:8.2f}-{p['end_ns'] / 1e6:8.2f} {p['span']:24} {p['cause']:14} "
                         f"{p.get('blame', '')}" for p in self.pieces)


def check(file: pathlib.Path, answers: list[dict[str, Any]], workers: int) -> None:
    by_worker: dict[int, dict[str, list[dict[str, Any]]]] = defaultdict(lambda: defaultdict(list))
    for answer in answers:
        by_worker[answer["pid"]][answer["path"]].append(answer)
    assert len(by_worker) >= workers, sorted(by_worker)
    for paths in by_worker.values():
        total_ns = unexplained_ns = 0
        for path, asked in paths.items():
            for answer in asked[-EACH:]:
                ledger = Ledger(file, answer["trace"])
                total_ns += ledger.duration_ns
                unexplained_ns += ledger.ns("unexplained")
                # Only the worker's own ring tells in which span its loop's timer was waited for, and only its threads'
                # records that `work` slept. Not all of the 20 ms: it may be late for its own sleep.
                slept_ns = sum(ledger.ns("sleep", span) for span in SLEEPERS[path])
                assert slept_ns > 10_000_000, ledger
        assert unexplained_ns < (1 - EXPLAINED) * total_ns, (unexplained_ns, total_ns, dict(paths))


@pytest.mark.parametrize("name", [pytest.param(name, marks=[] if name in EVERY_TIME else pytest.mark.long)
                                  for name in SERVERS])
def test_each_worker_is_explained(name: str, tmp_path: pathlib.Path) -> None:
    command, workers = SERVERS[name]
    if shutil.which(command[0]) is None:
        pytest.skip(f"{command[0]} is not installed")
    # A worker looks ten times a second whether it has served its number: this lasts until some have been replaced.
    requests = REQUESTS * (4 if "--max-requests" in command else 1)
    file, answers = record(tmp_path, HERE / "serve.py", requests, "OUT", *command)
    check(file, answers, workers)


@pytest.mark.parametrize("how", ["fork", pytest.param("spawn", marks=pytest.mark.long)])
def test_multiprocessing(how: str, tmp_path: pathlib.Path) -> None:
    file, answers = record(tmp_path, HERE / "workers.py", how, REQUESTS, "OUT")
    check(file, answers, 2)


def test_waiting_for_a_worker_thread_is_queueing(tmp_path: pathlib.Path) -> None:
    """Six sync endpoints at a time on two worker threads: what the application says it waited is in `queue`."""
    file, answers = record(tmp_path, HERE / "serve.py", REQUESTS, "OUT", *UVICORN)
    waited = [a for a in answers if a["path"] == "/sync" and a["waited_ns"] > 15_000_000]
    assert len(waited) >= 6
    blamed = 0
    for answer in waited[-6:]:
        ledger = Ledger(file, answer["trace"])
        assert abs(ledger.ns("queue") - answer["waited_ns"]) < 3_000_000 + 0.15 * answer["waited_ns"], (answer, ledger)
        blamed += any(p["cause"] == "queue" and p["blame"]["kind"] == "span" for p in ledger.pieces)
    assert blamed >= 4  # on the request that had the worker
