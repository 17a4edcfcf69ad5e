"""asyncio and thread pools, by the extension itself: its Handle publishes each step's context and records the loop's
scheduling; its work item publishes, on the worker, the span that submitted the work or that the work brings along.

Applied with whichever of the two modules comes first. Installing imports the other one, hence the guard.
"""

from __future__ import annotations

import sys
from types import ModuleType

from tailspan import _context, status

_installing = False


def apply(_: ModuleType) -> None:
    global _installing
    asyncio = sys.modules.get("asyncio")
    if _installing or (asyncio is not None and getattr(asyncio.__spec__, "_initializing", False)):
        return  # asyncio's own turn comes when it is complete
    _installing = True
    try:
        status.loop(_context.install_loop())
    finally:
        _installing = False
