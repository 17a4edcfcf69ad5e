"""What works in this process and why the rest does not, for `tailspan run` and `tailspan doctor`.

Written to `$TAILSPAN_STATUS_DIR/<pid>.json` (atomically, by rename) each time something changes; nothing is written
when the variable is unset. Schema: `{"schema", "pid", "python", "executable", "context": {"on", "reason"},
"hooks": {name: {"on", "reason", "errors"}}, "loop": {...}}`; `loop` is what `install_loop()` reported.
"""

from __future__ import annotations

import os
import sys

TYPE_CHECKING = False  # typing's own would load it at every start of Python
if TYPE_CHECKING:
    from typing import Any

SCHEMA = "tailspan.python-status/1"

_context: dict[str, Any] = {"on": False, "reason": "not needed yet"}
_hooks: dict[str, dict[str, Any]] = {}
_loop: dict[str, Any] = {}
_written = False


def snapshot() -> dict[str, Any]:
    return {
        "schema": SCHEMA,
        "pid": os.getpid(),
        "python": ".".join(str(part) for part in sys.version_info[:3]),
        "executable": sys.executable,
        "context": dict(_context),
        "hooks": {name: dict(state) for name, state in _hooks.items()},
        "loop": dict(_loop),
    }


def write() -> None:
    """Best effort: a status that cannot be written must not disturb the application."""
    folder = os.environ.get("TAILSPAN_STATUS_DIR")
    if not folder:
        return
    import json  # every Python process starts with this module, few have something to say

    global _written
    _written = True
    target = os.path.join(folder, f"{os.getpid()}.json")
    try:
        with open(target + ".new", "w", encoding="utf-8") as out:
            json.dump(snapshot(), out, default=str)
        os.replace(target + ".new", target)
    except OSError:
        pass


def write_again() -> None:
    """In a forked child: it has its parent's hooks. Imports nothing: another thread may have been importing."""
    if _written:
        write()


def context_on() -> None:
    _context.update(on=True, reason="")
    write()


def context_off(reason: str) -> None:
    _context.update(on=False, reason=reason)
    write()


def hook(name: str, on: bool, reason: str = "", errors: int = 0) -> None:
    _hooks[name] = {"on": on, "reason": reason, "errors": errors}
    write()


def hook_states() -> dict[str, dict[str, Any]]:
    return {name: dict(state) for name, state in _hooks.items()}


def loop(report: dict[str, Any]) -> None:
    _loop.clear()
    _loop.update(report)
    write()
