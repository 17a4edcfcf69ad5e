"""trio runs each step of a task in the task's context, as asyncio does, but tells nobody except its instruments."""

from __future__ import annotations

from functools import wraps
from types import ModuleType
from typing import Any, Callable

from tailspan._context import current, publish, refresh
from tailspan.hooks.guard import Guard, Unfit, attribute

_guard = Guard("trio")


def apply(trio: ModuleType) -> None:
    import inspect

    lowlevel = attribute(trio, "lowlevel")
    starters = [(trio, "run"), (lowlevel, "start_guest_run")]
    for owner, name in starters:
        if "instruments" not in inspect.signature(attribute(owner, name)).parameters:
            raise Unfit(f"trio's {name} takes no instruments")

    class Steps(attribute(attribute(trio, "abc"), "Instrument")):  # type: ignore[misc]
        """Called outside of the task's context, before and after."""

        def before_task_step(self, task: Any) -> None:
            if _guard.on:
                try:
                    publish(task.context.get(current))
                except Exception as error:
                    _guard.failed(error)

        def after_task_step(self, task: Any) -> None:
            try:
                refresh()
            except Exception as error:
                _guard.failed(error)

    for owner, name in starters:
        setattr(owner, name, _instrumented(getattr(owner, name), Steps()))


def _instrumented(stock: Callable[..., Any], steps: Any) -> Callable[..., Any]:
    @wraps(stock)
    def run(*args: Any, **kwargs: Any) -> Any:
        return stock(*args, **(kwargs | {"instruments": [*kwargs.get("instruments", ()), steps]}))

    return run
