"""OpenLLMetry attaches the spans of its runs, but a detach in another context is lost: tie span and run to one cell."""

from __future__ import annotations

from functools import wraps
from types import ModuleType
from typing import Any

from tailspan import runs
from tailspan._context import current_cell, enter, leave
from tailspan.hooks.guard import Guard, attribute, takes
from tailspan.hooks.otel_context import bind, making

_guard = Guard("openllmetry")


def apply(module: ModuleType) -> None:
    handler_class = attribute(module, "TraceloopCallbackHandler")
    stock_init = attribute(handler_class, "__init__")
    stock_create = attribute(handler_class, "_create_span")
    stock_llm = attribute(handler_class, "_create_llm_span")
    stock_end = attribute(handler_class, "_end_span")
    takes(stock_create, "self", "run_id", "parent_run_id")
    takes(stock_llm, "self", "run_id", "parent_run_id")
    takes(stock_end, "self", "span", "run_id")

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

    @wraps(stock_llm)
    def _create_llm_span(self: Any, run_id: Any, *args: Any, **kwargs: Any) -> Any:
        """A model's span is detached again at once, for a context that suppresses other instrumentations."""
        span = stock_llm(self, run_id, *args, **kwargs)
        try:
            cell = runs.by_id(run_id)
            if cell is not None and cell is not current_cell():
                enter(cell)
        except Exception as error:
            _guard.failed(error)
        return span

    @wraps(stock_end)
    def _end_span(self: Any, span: Any, run_id: Any) -> None:
        try:
            stock_end(self, span, run_id)
        finally:
            try:
                cell = runs.forget(run_id)
                if cell is not None:
                    leave(cell)
            except Exception as error:
                _guard.failed(error)

    handler_class.__init__ = __init__
    handler_class._create_llm_span = _create_llm_span
    handler_class._end_span = _end_span
    handler_class._create_span = _create_span
