"""Builds tailspan._context for the interpreter that runs this file, with nothing but a C compiler.

    PYTHON python/native/build.py FOLDER

FOLDER holds (or gets) libtailspan_context.so and becomes the place of _context.<abi>.so, so it is the `tailspan`
package's own folder. For interpreters that the main build was not told about.
"""
from __future__ import annotations

import os
import pathlib
import subprocess
import sys
import sysconfig

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
FLAGS = ["-std=gnu11", "-O2", "-g", "-fPIC", "-shared", "-fvisibility=hidden", "-fno-omit-frame-pointer"]


def run(command: list[str]) -> None:
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        sys.exit(f"{' '.join(command)}\n{done.stderr}")


def main() -> None:
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    if sysconfig.get_config_var("Py_GIL_DISABLED"):
        sys.exit("free-threaded builds of Python are not supported")
    out = pathlib.Path(sys.argv[1]).resolve()
    out.mkdir(parents=True, exist_ok=True)
    compiler = os.environ.get("CC", "cc")
    library = out / "libtailspan_context.so"
    if not library.exists():
        sources = sorted(str(p) for p in (ROOT / "src/context").glob("*.c"))
        run([compiler, *FLAGS, f"-I{ROOT}/src", *sources, "-o", str(library), "-pthread", "-Wl,-z,nodelete"])
    include = sysconfig.get_path("include")
    if not os.path.exists(os.path.join(include, "Python.h")):
        sys.exit(f"no Python.h in {include}: install this interpreter's headers (Debian: python3-dev)")
    target = out / f"_context{sysconfig.get_config_var('EXT_SUFFIX')}"
    sources = sorted(str(p) for p in (ROOT / "python/native").glob("*.c"))
    run([compiler, *FLAGS, f"-I{ROOT}/src", "-isystem", include, *sources, "-o", str(target),
         f"-L{out}", "-ltailspan_context", "-lm", "-Wl,-rpath,$ORIGIN"])
    print(target)


if __name__ == "__main__":
    main()
