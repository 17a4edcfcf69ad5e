"""ThreadPoolExecutor, `run_in_executor`, `to_thread`, LangChain's and LangGraph's pools: all make `_WorkItem`s.

A worker publishes the span that submitted the work: that span waits for it. Work that brings its own context
(`Context.run`, as `to_thread` and LangChain submit it) publishes that context's span. The worker's own context is put
back afterwards.
"""

from __future__ import annotations

from contextvars import Context
from functools import partial
from types import ModuleType
from typing import Any

from tailspan import _context
from tailspan.hooks.guard import Guard, attribute

_guard = Guard("thread_pool")
_enter = _context.enter
_current = _context.current
_current_cell = _context.current_cell


def apply(thread: ModuleType) -> None:
    stock = attribute(thread, "_WorkItem")
    attribute(stock, "run")
    thread._WorkItem = work_item(stock)  # type: ignore[attr-defined]


def work_item(stock: type) -> type:
    class WorkItem(stock):  # type: ignore[misc, valid-type]
        def __init__(self, *args: Any) -> None:
            super().__init__(*args)
            self.tailspan_cell = self.tailspan_job = None
            if _guard.on:
                try:
                    self.tailspan_job = _context.submit()
                    self.tailspan_cell = _current_cell()
                except Exception as error:
                    _guard.failed(error)

        def run(self, *args: Any) -> None:
            if not _guard.on:
                return super().run(*args)
            try:
                outer = _current.get(None)
                job = self.tailspan_job
                if job is not None:
                    _context.begin(job)
                _enter(_work_cell(self))
            except Exception as error:
                _guard.failed(error)
                return super().run(*args)
            try:
                super().run(*args)
            finally:
                try:
                    _enter(outer)
                    if job is not None:
                        _context.end(job)
                except Exception as error:
                    _guard.failed(error)

    WorkItem.__name__, WorkItem.__qualname__ = stock.__name__, stock.__qualname__
    return WorkItem


def _work_cell(item: Any) -> Any:
    """The cell to publish for a work item; since 3.14 its function is the first part of `task`."""
    function = item.fn if hasattr(item, "fn") else item.task[0]
    if type(function) is partial:
        function = function.func
    owner = getattr(function, "__self__", None)
    if type(owner) is Context:
        return owner.get(_current)
    return item.tailspan_cell
