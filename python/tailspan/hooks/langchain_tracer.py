"""LangChain runs that LangSmith traces: its tracer runs inline, so it tells where each run starts and ends.

Runs that an OpenTelemetry instrumentation traces as well keep OpenTelemetry's ids.
"""

from __future__ import annotations

from functools import wraps
from types import ModuleType
from typing import Any

from tailspan import runs
from tailspan._context import current_cell, enter, leave
from tailspan.hooks.guard import Guard, attribute, takes

_guard = Guard("langchain_tracer")


def apply(module: ModuleType) -> None:
    tracer_class = attribute(module, "LangChainTracer")
    stock = attribute(tracer_class, "_start_trace")
    stock_end = attribute(tracer_class, "_end_trace")
    takes(stock, "self", "run")
    takes(stock_end, "self", "run")

    @wraps(stock)
    def _start_trace(self: Any, run: Any) -> None:
        stock(self, run)
        if not _guard.on:
            return
        try:
            if runs.otel_traces():
                return
            cell = runs.obtain_langsmith(run.id, run.parent_run_id, run.trace_id)
            if cell is not current_cell():
                enter(cell)
        except Exception as error:
            _guard.failed(error)

    @wraps(stock_end)
    def _end_trace(self: Any, run: Any) -> None:
        try:
            stock_end(self, run)
        finally:
            try:
                cell = runs.forget(run.id)
                if cell is not None:
                    leave(cell)
            except Exception as error:
                _guard.failed(error)

    tracer_class._start_trace = _start_trace
    tracer_class._end_trace = _end_trace
