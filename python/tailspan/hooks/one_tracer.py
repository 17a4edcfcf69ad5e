"""An app with an OpenTelemetry instrumentation of LangChain has its tracer: the LangSmith tracing that `tailspan run`
switches on by default (TAILSPAN_LANGSMITH_DEFAULT) is switched off again, so that no run is traced twice.
"""

from __future__ import annotations

import os
import sys
from types import ModuleType


def apply(instrumentation: ModuleType) -> None:
    if os.environ.get("TAILSPAN_LANGSMITH_DEFAULT") != "1":
        return
    os.environ["LANGSMITH_TRACING"] = "false"
    # langsmith remembers what it read from the environment.
    utils = sys.modules.get("langsmith.utils")
    forget = getattr(getattr(utils, "get_env_var", None), "cache_clear", None)
    if forget is not None:
        forget()
