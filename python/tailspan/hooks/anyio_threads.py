"""anyio's worker threads (FastAPI's and Starlette's sync endpoints): each call is a job, submitted when `run_sync` is
called and begun by the worker, so that waiting for one of the limiter's tokens (40 by default) is seen as queueing.

anyio runs the function in a copy of the caller's context, so the context is right; only the thread has to be told.
"""

from __future__ import annotations

from functools import wraps
from types import ModuleType
from typing import Any, Callable

from tailspan._context import begin, end, skip_site, submit
from tailspan.hooks.guard import Guard, attribute, takes

_guard = Guard("anyio_threads")


class _Work:
    """The function anyio was asked to run. One attribute lookup away from the real one, so its name is still shown."""

    __slots__ = ("_function", "_job")

    def __init__(self, function: Callable[..., Any]) -> None:
        self._function = function
        self._job = submit()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._function, name)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        try:
            begin(self._job)
        except Exception as error:
            _guard.failed(error)
            return self._function(*args, **kwargs)
        try:
            return self._function(*args, **kwargs)
        finally:
            try:
                end(self._job)
            except Exception as error:
                _guard.failed(error)


def apply(to_thread: ModuleType) -> None:
    stock = attribute(to_thread, "run_sync")
    takes(stock, "func")

    @wraps(stock)
    async def run_sync(func: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        if _guard.on:
            try:
                func = _Work(func)
            except Exception as error:
                _guard.failed(error)
        return await stock(func, *args, **kwargs)

    skip_site(run_sync)
    skip_site(_Work.__init__)
    to_thread.run_sync = run_sync  # type: ignore[attr-defined]
