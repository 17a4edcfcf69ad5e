"""uvloop never runs `asyncio.Handle`: each task's coroutine is wrapped to publish its context at every step."""

from __future__ import annotations

import asyncio
from types import ModuleType
from typing import Any

from tailspan._context import StepCoroutine
from tailspan.hooks.guard import Guard, attribute

_guard = Guard("uvloop")


def apply(uvloop: ModuleType) -> None:
    loop_class = attribute(uvloop, "Loop")
    stock = attribute(loop_class, "create_task")

    def create_task(self: Any, coro: Any, *args: Any, **kwargs: Any) -> Any:
        if _guard.on and asyncio.iscoroutine(coro):
            try:
                coro = StepCoroutine(coro)
            except Exception as error:
                _guard.failed(error)
        return stock(self, coro, *args, **kwargs)

    loop_class.create_task = create_task
