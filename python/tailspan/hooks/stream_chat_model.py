"""Chat models keep their run while they stream."""

from __future__ import annotations

from types import ModuleType

from tailspan.hooks.guard import Guard, attribute
from tailspan.hooks.relay import relay_methods

_guard = Guard("stream_chat_model")


def apply(module: ModuleType) -> None:
    relay_methods(attribute(module, "BaseChatModel"), ("stream", "astream"), _guard)
