"""LangChain's callbacks, inherited by every run: each run's cell is entered and left where the run's code runs.

`run_inline` keeps the start on the right thread and in the task's own context. An asynchronous `on_*_end` is shielded
by LangChain: it runs in a copied context, where setting the ContextVar is lost. The cell is marked ended, and whoever
still has it current publishes its nearest live ancestor.
"""

from __future__ import annotations

from contextvars import ContextVar
from types import ModuleType
from typing import Any
from uuid import UUID

from tailspan import runs
from tailspan._context import current_cell, enter, leave
from tailspan.hooks.guard import Guard, attribute, takes

_guard = Guard("langchain_runs")

_STARTS = ("on_chain_start", "on_llm_start", "on_chat_model_start", "on_tool_start", "on_retriever_start")
_ENDS = tuple(f"on_{kind}_{how}" for kind in ("chain", "llm", "tool", "retriever") for how in ("end", "error"))


def apply(tracing: ModuleType) -> None:
    register = attribute(tracing, "register_configure_hook")
    takes(register, "context_var", "inheritable")
    from langchain_core.callbacks.base import BaseCallbackHandler

    for name in (*_STARTS, *_ENDS):
        attribute(BaseCallbackHandler, name)
    handler_class = type(
        "SpanPublisher",
        (BaseCallbackHandler,),
        {"run_inline": True, "__doc__": __doc__, "__copy__": _itself, "__deepcopy__": _itself}
        | {name: _on_start for name in _STARTS}
        | {name: _on_end for name in _ENDS},
    )
    # The default makes it current in every context there is and will be.
    register(ContextVar("tailspan_handler", default=handler_class()), True)


def _itself(self: Any, *_: Any) -> Any:
    return self


def _on_start(self: Any, *_: Any, run_id: UUID, parent_run_id: UUID | None = None, **__: Any) -> None:
    if not _guard.on:
        return
    try:
        cell = runs.by_id(run_id)
        if cell is None and runs.otel_traces():
            cell = runs.obtain_otel(run_id, parent_run_id)
        if cell is not None and cell is not current_cell():
            enter(cell)
    except Exception as error:
        _guard.failed(error)


def _on_end(self: Any, *_: Any, run_id: UUID, **__: Any) -> None:
    try:
        cell = runs.forget(run_id)
        if cell is not None:
            leave(cell)
    except Exception as error:
        _guard.failed(error)
