"""A LangChain callback handler for tracers that do not run inline: enters and leaves each run's cell where its code runs.

`run_inline` keeps the start on the right thread and in the task's own context; OpenInference's own tracer runs in an
executor in asynchronous code. An asynchronous `on_*_end` is shielded by LangChain: it runs in a copied context, where
setting the ContextVar is lost. The cell is marked ended, and whoever still has it current publishes its nearest live
ancestor. Costs about 20 us a run in LangChain's own bookkeeping, so it is registered only where such a tracer is.
"""

from __future__ import annotations

from contextvars import ContextVar
from typing import Any
from uuid import UUID

from tailspan import runs
from tailspan._context import current_cell, enter, leave
from tailspan.hooks.guard import Guard, attribute, takes

_guard = Guard("openinference")

_STARTS = ("on_chain_start", "on_llm_start", "on_chat_model_start", "on_tool_start", "on_retriever_start")
_ENDS = tuple(f"on_{kind}_{how}" for kind in ("chain", "llm", "tool", "retriever") for how in ("end", "error"))


_registered = False


def register() -> None:
    """Makes every run from now on inherit the handler. Idempotent."""
    global _registered
    if _registered:
        return
    from langchain_core.callbacks.base import BaseCallbackHandler
    from langchain_core.tracers.context import register_configure_hook

    takes(register_configure_hook, "context_var", "inheritable")
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
    register_configure_hook(ContextVar("tailspan_handler", default=handler_class()), True)
    _registered = True


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
