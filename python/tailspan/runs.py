"""Run id → cell: one cell for each LangChain or LangSmith run, whoever sees the run first.

A run that an OpenTelemetry instrumentation traces has that span's ids; they are known only when the instrumentation
made its span, so its cell starts without ids (it publishes as its parent until then) and is filled. A run that only
LangSmith traces has the ids of the LangSmith record: trace = root run's UUID, span = last 8 bytes of the run's UUID.
A run's ids never change once it has some. Thread safe by the GIL: every step is one dict operation.

`Cell.base` holds OpenTelemetry's own current span id at the time the cell was made. Attaching that span again says
nothing new about the cell: an instrumentation that never attaches its spans leaves OpenTelemetry's context at an outer
one, and whoever carries that context to another thread attaches the outer span there.
"""

from __future__ import annotations

import weakref
from typing import Any, Callable
from uuid import UUID

from tailspan._context import Cell, current_cell

MAX_RUNS = 16384  # LangChain never ends a run that is cancelled while it starts: beyond this the oldest is forgotten
MAX_DEPTH = 256

otel_tracers: weakref.WeakSet[Any] = weakref.WeakSet()  # live OpenInference tracers and OpenLLMetry handlers
otel_suppressed: Callable[[], bool] = lambda: False  # set by the OpenTelemetry hook
otel_span_id: Callable[[], int] = lambda: 0  # OpenTelemetry's own current span, 0 if none; set by the same hook

_cells: dict[UUID, Cell] = {}


def is_below(cell: Any, ancestor: Any) -> bool:
    """Whether `cell` is `ancestor` or one of its descendants."""
    for _ in range(MAX_DEPTH):
        if cell is None:
            return False
        if cell is ancestor:
            return True
        cell = cell.parent
    return False


def by_id(run_id: UUID) -> Cell | None:
    return _cells.get(run_id)


def otel_traces() -> bool:
    """Whether an OpenTelemetry instrumentation will make a span for a run that starts here and now."""
    return len(otel_tracers) > 0 and not otel_suppressed()


def obtain_otel(run_id: UUID, parent_run_id: UUID | None) -> Cell:
    """The run's cell, made without ids if it is new."""
    cell = _cells.get(run_id)
    if cell is None:
        cell = _remember(run_id, Cell(None, None, run_id.bytes, _parent(parent_run_id)))
    return cell


def obtain_langsmith(run_id: UUID, parent_run_id: UUID | None, trace_id: UUID) -> Cell:
    """The run's cell, made with LangSmith's ids if it is new."""
    cell = _cells.get(run_id)
    if cell is None:
        uuid = run_id.bytes
        cell = _remember(run_id, Cell(trace_id.bytes, uuid[8:], uuid, _parent(parent_run_id)))
    return cell


def fill(cell: Cell, span_context: Any) -> None:
    """Gives a cell its OpenTelemetry ids, unless it has ids already."""
    if not cell.filled and span_context.is_valid:
        cell.fill(span_context.trace_id.to_bytes(16, "big"), span_context.span_id.to_bytes(8, "big"))


def forget(run_id: UUID) -> Cell | None:
    return _cells.pop(run_id, None)


def _parent(parent_run_id: UUID | None) -> Any:
    """What is current, if it is the parent run or lies below it (a user's own span); else the parent run."""
    here = current_cell()
    parent = _cells.get(parent_run_id) if parent_run_id is not None else None
    if parent is None or parent.ended or is_below(here, parent):
        return here
    return parent


def _remember(run_id: UUID, cell: Cell) -> Cell:
    cell.base = otel_span_id()
    if len(_cells) >= MAX_RUNS:
        _cells.pop(next(iter(_cells)), None)
    _cells[run_id] = cell
    return cell
