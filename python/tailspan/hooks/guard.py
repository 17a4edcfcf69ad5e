"""Keeps our errors away from the application, and hooks away from libraries they do not know."""

from __future__ import annotations

from tailspan import status

TYPE_CHECKING = False  # typing's own would load it at every start of Python
if TYPE_CHECKING:
    from typing import Any

MAX_ERRORS = 20  # a hook that fails this often turns itself off


class Unfit(Exception):
    """The library's insides are not what the hook was written for; the text says what differs."""


class Guard:
    """One a hook: `on` tells the wrappers whether to act, `failed()` counts their errors and ends them in time."""

    __slots__ = ("name", "on", "errors")

    def __init__(self, name: str) -> None:
        self.name = name
        self.on = True
        self.errors = 0

    def failed(self, error: Exception) -> None:
        self.errors += 1
        self.on = self.errors < MAX_ERRORS
        if self.errors == 1 or not self.on:
            what = f"{type(error).__name__}: {error}"
            status.hook(self.name, self.on, what if self.on else f"off after {self.errors} errors: {what}", self.errors)


def attribute(owner: Any, name: str) -> Any:
    """`owner.name`, or Unfit."""
    try:
        return getattr(owner, name)
    except AttributeError:
        raise Unfit(f"{getattr(owner, '__name__', owner)} has no {name}") from None


def takes(function: Any, *names: str) -> None:
    """Unfit unless the function's parameters begin with these names."""
    import inspect  # not at every start of Python: it brings a dozen modules with it

    found = tuple(inspect.signature(function).parameters)
    if found[: len(names)] != names:
        raise Unfit(f"{function.__qualname__} takes {found}, known is {names}")
