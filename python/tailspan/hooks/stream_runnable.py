"""Runnable.stream and transform all end in these two."""

from __future__ import annotations

from types import ModuleType

from tailspan.hooks.guard import Guard, attribute
from tailspan.hooks.relay import relay_methods

_guard = Guard("stream_runnable")


def apply(module: ModuleType) -> None:
    relay_methods(attribute(module, "Runnable"), ("_transform_stream_with_config", "_atransform_stream_with_config"), _guard)
