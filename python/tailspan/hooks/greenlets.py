"""greenlets (gevent, SQLAlchemy's asyncio): a switch changes the context and tells nobody but the tracer that greenlet
itself offers, one for each thread. It is set in the thread that imports greenlet, which for gevent runs them all.
"""

from __future__ import annotations

from types import ModuleType
from typing import Any, Callable

from tailspan._context import refresh
from tailspan.hooks.guard import Unfit, attribute


def apply(greenlet: ModuleType) -> None:
    settrace = attribute(greenlet, "settrace")
    if not getattr(greenlet, "GREENLET_USE_CONTEXT_VARS", False):
        raise Unfit("this greenlet gives greenlets no contexts of their own")
    before = attribute(greenlet, "gettrace")()
    settrace(_switched if before is None else _after(before))


# An exception would reach the application, also where the interpreter is ending and names are gone already.
def _switched(event: str, between: Any, _refresh: Callable[[], None] = refresh) -> None:
    _refresh()


def _after(before: Callable[..., Any]) -> Callable[..., Any]:
    def switched(event: str, between: Any, _refresh: Callable[[], None] = refresh) -> None:
        _refresh()
        before(event, between)

    return switched
