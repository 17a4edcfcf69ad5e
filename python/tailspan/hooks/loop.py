"""asyncio: the extension's own Handle, which publishes each step's context and records the loop's scheduling."""

from __future__ import annotations

from types import ModuleType

from tailspan import _context, status


def apply(asyncio: ModuleType) -> None:
    status.loop(_context.install_loop())
