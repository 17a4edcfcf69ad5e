"""Runs one row under one tracer in a process of its own and prints its score as JSON."""

from __future__ import annotations

import json
import sys
import threading
from typing import Any

import rows
import steps
import tracers


def score(span_ids: dict[str, set[bytes]]) -> dict[str, Any]:
    """Share of the steps' nanoseconds during which the thread published the span the step worked for."""
    total = right = 0
    wrong: list[str] = []
    names = {span_id: label for label, ids in span_ids.items() for span_id in ids}
    for taken in steps.log:
        length = taken.end_mono_ns - taken.start_mono_ns
        hits = sum(seen in span_ids.get(taken.label, ()) for seen in (taken.at_start, taken.at_end))
        total += length
        right += length * hits // 2
        if hits < 2 and len(wrong) < 8:
            seen = [names.get(one, one.hex()) if one else "none" for one in (taken.at_start, taken.at_end)]
            wrong.append(f"{taken.label} as {'/'.join(seen)}")
    ambiguous = sum(len(ids) > 1 for ids in span_ids.values())
    return {"share": right / max(total, 1), "steps": len(steps.log), "ambiguous": ambiguous, "wrong": wrong}


def main() -> None:
    row, tracer_name, want = sys.argv[1], sys.argv[2], int(sys.argv[3])
    tracer = tracers.make(tracer_name)
    rows.run(row, tracer, want)
    from tailspan import status

    result = score(tracer.span_ids()) | {"threads": threading.active_count(), "status": status.snapshot()}
    print(json.dumps(result))


if __name__ == "__main__":
    main()
