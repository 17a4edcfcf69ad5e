"""RunnableBranch keeps its own run while it streams."""

from __future__ import annotations

from types import ModuleType

from tailspan.hooks.guard import Guard, attribute
from tailspan.hooks.relay import relay_methods

_guard = Guard("stream_branch")


def apply(module: ModuleType) -> None:
    relay_methods(attribute(module, "RunnableBranch"), ("stream", "astream"), _guard)
