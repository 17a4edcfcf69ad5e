"""OpenLLMetry attaches a span around LangGraph's stream and leaves it attached while the consumer works."""

from __future__ import annotations

from functools import wraps
from types import ModuleType
from typing import Any

from tailspan.hooks.guard import Guard, attribute, takes
from tailspan.hooks.relay import relayed_function

_guard = Guard("openllmetry_graph")


def apply(module: ModuleType) -> None:
    stock = attribute(module, "create_graph_invocation_wrapper")
    takes(stock, "tracer", "is_async")

    @wraps(stock)
    def create_graph_invocation_wrapper(*args: Any, **kwargs: Any) -> Any:
        return relayed_function(stock(*args, **kwargs), _guard)

    module.create_graph_invocation_wrapper = create_graph_invocation_wrapper  # type: ignore[attr-defined]
