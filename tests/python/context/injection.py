"""Starts Python processes as `tailspan run` starts them: PYTHONPATH only, and a folder for their status."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import table_e

HERE = Path(__file__).resolve().parent


def environment(status_dir: Path, root: Path | None = None, **extra: str) -> dict[str, str]:
    env = table_e.environment("otel")
    if root is not None:
        env["PYTHONPATH"] = str(root / "sitecustomize")
    env["PYTHONPATH"] += os.pathsep + str(HERE)
    env["TAILSPAN_STATUS_DIR"] = str(status_dir)
    env["PATH"] = os.path.dirname(sys.executable) + os.pathsep + env.get("PATH", "")
    return env | extra


def run(code: str, env: dict[str, str], *command: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*(command or (sys.executable,)), "-c", code], env=env, capture_output=True, text=True, timeout=60
    )


def statuses(status_dir: Path) -> dict[int, dict[str, Any]]:
    return {int(file.stem): json.loads(file.read_text()) for file in status_dir.glob("*.json")}
