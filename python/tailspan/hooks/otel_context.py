"""OpenTelemetry's attach and detach: the attached span becomes current, the detached one gives way to what was.

The runtime context that the application chose is wrapped, not replaced, so `OTEL_PYTHON_CONTEXT` stays the user's.
"""

from __future__ import annotations

import threading
from types import ModuleType
from typing import Any

from tailspan import runs
from tailspan._context import Cell, current_cell, enter
from tailspan.hooks.guard import Guard, Unfit, attribute

_guard = Guard("otel_context")
_CELL = "_tailspan_cell"  # where a span keeps its cell

# The span that an instrumentation on this thread is just making for a run, see `making()`.
_made_for = threading.local()


class making:
    """`with making(cell):` the first unknown span attached inside is that run's span: it fills the cell."""

    __slots__ = ("_cell",)

    def __init__(self, cell: Cell) -> None:
        self._cell = cell

    def __enter__(self) -> None:
        _made_for.cell = self._cell

    def __exit__(self, *_: Any) -> None:
        _made_for.cell = None


class Attached:
    """A token for an attach that changed the current cell: what to go back to."""

    __slots__ = ("token", "cell", "before")

    def __init__(self, token: Any, cell: Cell | None, before: Cell | None) -> None:
        self.token = token
        self.cell = cell
        self.before = before

    @property
    def var(self) -> Any:
        return self.token.var

    @property
    def old_value(self) -> Any:
        return self.token.old_value


def apply(context: ModuleType) -> None:
    stock = attribute(context, "_RUNTIME_CONTEXT")
    for name in ("attach", "detach", "get_current"):
        attribute(stock, name)
    suppress_keys = _suppress_keys(context)
    span_key = _span_key()
    get_current = stock.get_current

    class PublishingContext(type(stock)):  # type: ignore[misc]
        """Wraps the stock runtime context; same class family, because some code asks."""

        def __init__(self) -> None:
            self.get_current = get_current

        def attach(self, context: Any) -> Any:
            before = get_current().get(span_key) if _guard.on else None
            token = stock.attach(context)
            if not _guard.on:
                return token
            try:
                span = context.get(span_key)
                return token if span is before else _attached(token, span)
            except Exception as error:
                _guard.failed(error)
                return token

        def detach(self, token: Any) -> None:
            if type(token) is not Attached:
                stock.detach(token)
                return
            stock.detach(token.token)
            try:
                _detached(token)
            except Exception as error:
                _guard.failed(error)

        def __getattr__(self, name: str) -> Any:
            return getattr(stock, name)

    def span_id() -> int:
        span = get_current().get(span_key)
        return span.get_span_context().span_id if span is not None else 0

    def suppressed() -> bool:
        now = get_current()
        return any(now.get(key) for key in suppress_keys)

    context._RUNTIME_CONTEXT = PublishingContext()  # type: ignore[attr-defined]
    runs.otel_span_id = span_id
    runs.otel_suppressed = suppressed


def cell_of(span: Any, create: bool = True) -> Cell | None:
    """The span's cell, made at first sight below what is current."""
    cell = getattr(span, _CELL, None)
    if cell is None and create:
        ids = span.get_span_context()
        cell = getattr(_made_for, "cell", None)
        if cell is not None and not cell.filled:
            runs.fill(cell, ids)
            _made_for.cell = None
        else:
            cell = Cell(ids.trace_id.to_bytes(16, "big"), ids.span_id.to_bytes(8, "big"), None, current_cell())
        cell.base = ids.span_id
        bind(span, cell)
    return cell


def bind(span: Any, cell: Cell) -> None:
    try:
        setattr(span, _CELL, cell)
    except AttributeError:
        pass  # a foreign span with slots: it gets a new cell, with the same ids, at each attach


def _attached(token: Any, span: Any) -> Any:
    before = current_cell()
    if span is None:
        cell = None
    else:
        ids = span.get_span_context()
        if not ids.is_valid or ids.is_remote or (before is not None and _same(before, ids)):
            return token
        cell = cell_of(span)
    if cell is before:
        return token
    enter(cell)
    return Attached(token, cell, before)


def _same(cell: Cell, ids: Any) -> bool:
    """Whether `cell` stands for this span already, or refines it: for LangSmith's OpenTelemetry mode, which attaches
    the first 8 bytes of the run's UUID, and for runs whose instrumentation does not attach (see runs.Cell.base)."""
    if cell.base == ids.span_id:
        return True
    uuid = cell.uuid
    return uuid is not None and int.from_bytes(uuid[:8], "big") == ids.span_id


def _detached(attached: Attached) -> None:
    now = current_cell()
    if now is attached.cell or runs.is_below(now, attached.cell):
        enter(attached.before)
    elif attached.cell is not None and attached.cell.ended:
        enter(now)


def _span_key() -> str:
    try:
        from opentelemetry.trace.propagation import _SPAN_KEY
    except ImportError:
        raise Unfit("opentelemetry.trace.propagation has no _SPAN_KEY") from None
    return _SPAN_KEY


def _suppress_keys(context: ModuleType) -> tuple[str, ...]:
    key = getattr(context, "_SUPPRESS_INSTRUMENTATION_KEY", None)
    return ("suppress_instrumentation",) if key is None else ("suppress_instrumentation", key)
