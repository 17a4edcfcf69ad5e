#!/usr/bin/env python3
"""Checks that includes below src/ go one way: a module includes only what stands to its left, plus base and model."""
import pathlib
import re
import sys

ORDER = ["base", "model", "context", "probe", "collect", "store", "analyze", "report", "serve", "cli"]
# Third-party headers that may appear in one module (or file) only.
PENNED = {
    "duckdb.h": "store/duckdb/",
    "bpf/libbpf.h": "probe/",
    "boost/beast": "collect/http/",
    "protozero/": "collect/otlp/",
    "simdjson.h": "collect/",
    "CLI/": "cli/",
}
INCLUDE = re.compile(r'^\s*#\s*include\s*(["<])([^">]+)[">]', re.M)


def main() -> int:
    root = pathlib.Path(__file__).resolve().parent.parent / "src"
    bad = []
    for path in sorted(root.rglob("*")):
        if path.suffix not in {".h", ".cc", ".c"}:
            continue
        inside = path.relative_to(root).as_posix()
        module = inside.split("/")[0]
        for _, name in INCLUDE.findall(path.read_text()):
            target = name.split("/")[0]
            if target in ORDER and "/" in name and ORDER.index(target) > ORDER.index(module):
                bad.append(f"src/{inside}: includes {name}, but {module} stands left of {target}")
            for prefix, home in PENNED.items():
                if name.startswith(prefix) and not inside.startswith(home):
                    bad.append(f"src/{inside}: includes {name}, which belongs to src/{home} alone")
        if module not in ORDER:
            bad.append(f"src/{inside}: module {module} is not in the order {ORDER}")
    print("\n".join(bad) if bad else "includes go one way")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
