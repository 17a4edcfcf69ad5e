"""OpenInference never attaches the spans of its runs, and in async code makes them in an executor: fill the cells."""

from __future__ import annotations

from functools import wraps
from types import ModuleType
from typing import Any

from tailspan import runs
from tailspan.hooks import inline_handler
from tailspan.hooks.guard import Guard, attribute, takes
from tailspan.hooks.otel_context import bind

_guard = Guard("openinference")


def apply(module: ModuleType) -> None:
    tracer_class = attribute(module, "OpenInferenceTracer")
    stock_init = attribute(tracer_class, "__init__")
    stock_start = attribute(tracer_class, "_start_trace")
    attribute(tracer_class, "get_span")
    takes(stock_start, "self", "run")

    @wraps(stock_init)
    def __init__(self: Any, *args: Any, **kwargs: Any) -> None:
        stock_init(self, *args, **kwargs)
        try:
            inline_handler.register()
            runs.otel_tracers.add(self)
        except Exception as error:
            _guard.failed(error)

    @wraps(stock_start)
    def _start_trace(self: Any, run: Any) -> None:
        stock_start(self, run)
        if not _guard.on:
            return
        try:
            span = self.get_span(run.id)
            if span is not None:
                cell = runs.obtain_otel(run.id, run.parent_run_id)
                runs.fill(cell, span.get_span_context())
                bind(span, cell)
        except Exception as error:
            _guard.failed(error)

    tracer_class.__init__ = __init__
    tracer_class._start_trace = _start_trace
