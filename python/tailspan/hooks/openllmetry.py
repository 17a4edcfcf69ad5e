"""OpenLLMetry attaches the spans of its runs, but a detach in another context is lost: tie span and run to one cell."""

from __future__ import annotations

from functools import wraps
from types import ModuleType
from typing import Any

from tailspan import runs
from tailspan.hooks.guard import Guard, attribute, takes
from tailspan.hooks.otel_context import bind, making

_guard = Guard("openllmetry")


def apply(module: ModuleType) -> None:
    handler_class = attribute(module, "TraceloopCallbackHandler")
    stock_init = attribute(handler_class, "__init__")
    stock_create = attribute(handler_class, "_create_span")
    takes(stock_create, "self", "run_id", "parent_run_id")

    @wraps(stock_init)
    def __init__(self: Any, *args: Any, **kwargs: Any) -> None:
        stock_init(self, *args, **kwargs)
        runs.otel_tracers.add(self)

    @wraps(stock_create)
    def _create_span(self: Any, run_id: Any, parent_run_id: Any, *args: Any, **kwargs: Any) -> Any:
        cell = None
        if _guard.on:
            try:
                cell = runs.obtain_otel(run_id, parent_run_id)
            except Exception as error:
                _guard.failed(error)
        if cell is None:
            return stock_create(self, run_id, parent_run_id, *args, **kwargs)
        with making(cell):
            span = stock_create(self, run_id, parent_run_id, *args, **kwargs)
        try:
            runs.fill(cell, span.get_span_context())
            bind(span, cell)
        except Exception as error:
            _guard.failed(error)
        return span

    handler_class.__init__ = __init__
    handler_class._create_span = _create_span
