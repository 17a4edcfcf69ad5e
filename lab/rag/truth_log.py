"""The service's own account of what happened to each request.

It goes to a file in the folder that LAB_TRUTH names and nowhere else: the lab
scores an answer against it, so no tracer may see it. Times are CLOCK_MONOTONIC.
"""

from __future__ import annotations

import json
import os
import resource
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path
from typing import Any

_steps: ContextVar[list[dict[str, Any]] | None] = ContextVar("lab_truth_steps", default=None)


class TruthLog:
    """One JSON line a request, kept in memory until close(). A lost log voids
    the run, so nothing is dropped; a run is a few thousand lines."""

    def __init__(self) -> None:
        folder = os.environ.get("LAB_TRUTH")
        self._path = Path(folder) / "service.jsonl" if folder else None
        self._lines: list[dict[str, Any]] = []
        self._lock = threading.Lock()

    @contextmanager
    def request(self, request_id: str | None) -> Iterator[None]:
        """Collects the steps of one request."""
        steps: list[dict[str, Any]] = []
        token = _steps.set(steps)
        start = time.monotonic_ns()
        try:
            yield
        finally:
            _steps.reset(token)
            if request_id is not None and self._path is not None:
                line = {"id": request_id, "start_mono_ns": start, "end_mono_ns": time.monotonic_ns()}
                with self._lock:
                    self._lines.append({**line, "steps": steps})

    def close(self) -> None:
        """Writes the log."""
        if self._path is None:
            return
        with self._lock, self._path.open("w") as out:
            out.writelines(json.dumps(line) + "\n" for line in self._lines)


@contextmanager
def step(name: str) -> Iterator[None]:
    """Notes when a step ran, and what its thread's major faults were."""
    steps = _steps.get()
    if steps is None:
        yield
        return
    faults = resource.getrusage(resource.RUSAGE_THREAD).ru_majflt
    thread = threading.get_native_id()
    start = time.monotonic_ns()
    try:
        yield
    finally:
        entry: dict[str, Any] = {"name": name, "start_mono_ns": start, "end_mono_ns": time.monotonic_ns()}
        if thread == threading.get_native_id():
            entry["thread"] = thread
            entry["major_faults"] = resource.getrusage(resource.RUSAGE_THREAD).ru_majflt - faults
        steps.append(entry)
