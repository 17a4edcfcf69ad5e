"""Where the lab keeps what it makes; all of it below lab/.cache."""

from __future__ import annotations

from pathlib import Path

LAB = Path(__file__).resolve().parent.parent
CACHE = LAB / ".cache"
VENV_PYTHON = CACHE / "venv" / "bin" / "python"
RAG_DATA = CACHE / "rag-data"
RUNS = CACHE / "runs"
