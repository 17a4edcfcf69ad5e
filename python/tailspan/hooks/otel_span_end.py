"""A span that ended is never published again, also where it was never detached (lost contexts, background tasks)."""

from __future__ import annotations

from functools import wraps
from types import ModuleType
from typing import Any

from tailspan.hooks.guard import Guard, attribute, takes
from tailspan.hooks.otel_context import cell_of

_guard = Guard("otel_span_end")


def apply(trace: ModuleType) -> None:
    span_class = attribute(trace, "Span")
    stock = attribute(span_class, "end")
    takes(stock, "self")

    @wraps(stock)
    def end(self: Any, *args: Any, **kwargs: Any) -> None:
        stock(self, *args, **kwargs)
        try:
            cell = cell_of(self, create=False)
            if cell is not None:
                cell.end()
        except Exception as error:
            _guard.failed(error)

    span_class.end = end
