"""Running the system's own tools (ip, iptables, tc)."""

from __future__ import annotations

import subprocess


class CommandError(RuntimeError):
    """A tool said no; the message holds the command and its words."""


def run(*command: str) -> str:
    """Standard output of a command that must succeed."""
    done = subprocess.run(command, capture_output=True, text=True, stdin=subprocess.DEVNULL)
    if done.returncode != 0:
        raise CommandError(f"{' '.join(command)}: {done.stderr.strip() or done.returncode}")
    return done.stdout


def attempt(*command: str) -> bool:
    """For cleaning up: whether the command succeeded."""
    try:
        run(*command)
    except (CommandError, OSError):
        return False
    return True
