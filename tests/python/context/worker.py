"""Runs one row under one tracer in a process of its own and prints its score as JSON."""

from __future__ import annotations

import json
import sys
import threading
from typing import Any

import rows
import steps
import tracers


def score(span_ids: dict[str, set[bytes]], end_unix_ns: dict[str, int]) -> dict[str, Any]:
    """Share of the steps' nanoseconds during which the thread published the span the step worked for.

    A step that began after its span's own end (by the tracer's clock: OpenLLMetry ends the children of a stream that
    is closed early before LangChain drains them) belongs to no open span; it is counted apart.
    """
    total = right = after_end = 0
    wrong: list[str] = []
    names = {span_id: label for label, ids in span_ids.items() for span_id in ids}
    for taken in steps.log:
        if taken.start_unix_ns > end_unix_ns.get(taken.label, taken.start_unix_ns):
            after_end += 1
            continue
        length = taken.end_mono_ns - taken.start_mono_ns
        hits = sum(seen in span_ids.get(taken.label, ()) for seen in (taken.at_start, taken.at_end))
        total += length
        right += length * hits // 2
        if hits < 2 and len(wrong) < 8:
            seen = [names.get(one, one.hex()) if one else "none" for one in (taken.at_start, taken.at_end)]
            wrong.append(f"{taken.label} as {'/'.join(seen)}")
    ambiguous = sum(len(ids) > 1 for ids in span_ids.values())
    return {"share": right / max(total, 1), "steps": len(steps.log) - after_end, "after_end": after_end, "ambiguous": ambiguous, "wrong": wrong}


def main() -> None:
    row, tracer_name, want = sys.argv[1], sys.argv[2], int(sys.argv[3])
    tracer = tracers.make(tracer_name)
    rows.run(row, tracer, want)
    from tailspan import status

    result = score(tracer.span_ids(), tracer.end_unix_ns()) | {"threads": threading.active_count(), "status": status.snapshot()}
    print(json.dumps(result))


if __name__ == "__main__":
    main()
