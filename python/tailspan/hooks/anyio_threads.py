"""anyio's worker threads (FastAPI's and Starlette's sync endpoints): published for the time of the call.

anyio runs the function in a copy of the caller's context, so the context is right; only the thread has to be told.
"""

from __future__ import annotations

from functools import wraps
from types import ModuleType
from typing import Any, Callable

from tailspan._context import publish, refresh
from tailspan.hooks.guard import Guard, attribute, takes

_guard = Guard("anyio_threads")


class _Publishing:
    """The function anyio was asked to run. One attribute lookup away from the real one, so its name is still shown."""

    __slots__ = ("_function",)

    def __init__(self, function: Callable[..., Any]) -> None:
        self._function = function

    def __getattr__(self, name: str) -> Any:
        return getattr(self._function, name)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        try:
            refresh()
        except Exception as error:
            _guard.failed(error)
        try:
            return self._function(*args, **kwargs)
        finally:
            try:
                publish(None)
            except Exception as error:
                _guard.failed(error)


def apply(to_thread: ModuleType) -> None:
    stock = attribute(to_thread, "run_sync")
    takes(stock, "func")

    @wraps(stock)
    async def run_sync(func: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        return await stock(_Publishing(func) if _guard.on else func, *args, **kwargs)

    to_thread.run_sync = run_sync  # type: ignore[attr-defined]
