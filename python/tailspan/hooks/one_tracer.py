"""An app with an OpenTelemetry instrumentation of LangChain has its tracer: the LangSmith tracing that `tailspan run`
switches on by default (TAILSPAN_LANGSMITH_DEFAULT) is off again in this process, so that no run is traced twice.

The environment stays as it is: programs that this one starts have tracers of their own, or LangSmith's alone.
"""

from __future__ import annotations

import os
from functools import wraps
from types import ModuleType
from typing import Any

from tailspan.hooks.guard import attribute, takes

_has_instrumentation = False


def apply(module: ModuleType) -> None:
    global _has_instrumentation
    if os.environ.get("TAILSPAN_LANGSMITH_DEFAULT") != "1":
        return
    if module.__name__ != "langsmith.utils":
        _has_instrumentation = True
        return
    stock = attribute(module, "get_env_var")
    takes(stock, "name", "default")

    @wraps(stock)
    def get_env_var(name: str, *arguments: Any, **keywords: Any) -> Any:
        # TRACING_V2 is never ours: who sets it wants LangSmith, too.
        if _has_instrumentation and name == "TRACING":
            return "false"
        return stock(name, *arguments, **keywords)

    for own in ("cache_clear", "cache_info", "cache_parameters"):
        if hasattr(stock, own):
            setattr(get_env_var, own, getattr(stock, own))
    module.get_env_var = get_env_var  # type: ignore[attr-defined]
