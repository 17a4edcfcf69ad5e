"""Start-up entry points: called by our sitecustomize and by `opentelemetry-instrument`."""

from __future__ import annotations


def install() -> None:
    """Registers the hooks. Safe to call more than once; never raises."""
    try:
        from tailspan import hooks

        hooks.install()
    except Exception as error:
        _report(error)


def _report(error: Exception) -> None:
    """Start-up must stay silent in the application; the reason goes where `tailspan run` looks."""
    try:
        from tailspan import status

        status.context_off(f"start failed: {type(error).__name__}: {error}")
    except Exception:
        pass
