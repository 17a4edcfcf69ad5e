"""LangGraph keeps the graph's run while it streams."""

from __future__ import annotations

from types import ModuleType

from tailspan.hooks.guard import Guard, attribute
from tailspan.hooks.relay import relay_methods

_guard = Guard("stream_graph")


def apply(module: ModuleType) -> None:
    relay_methods(attribute(module, "Pregel"), ("stream", "astream"), _guard)
