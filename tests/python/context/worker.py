"""Runs rows under one tracer, in a process of their own, and prints a JSON line with each score."""

from __future__ import annotations

import bisect
import contextlib
import json
import os
import sys
import traceback
from pathlib import Path
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


def ring_recording() -> Any:
    """The loop ring as another process reads it, with tailspan's own reader, if $TAILSPAN_RING_DUMP names it."""
    if "TAILSPAN_RING_DUMP" not in os.environ:
        return contextlib.nullcontext()
    sys.path.append(str(Path(__file__).resolve().parent.parent / "loop"))
    import ring

    return ring.Recording()


def ring_share(recording: Any, tracer: Any) -> float:
    """Share of the steps' nanoseconds at which the ring's records, and nothing else, name the right span."""
    span_ids, ends = tracer.span_ids(), tracer.end_unix_ns()
    lines = recording._timelines()
    total = hit = 0
    for taken in steps.log:
        if taken.start_unix_ns > ends.get(taken.label, taken.start_unix_ns):
            continue
        right = {one.hex() for one in span_ids.get(taken.label, ())}
        total += taken.end_mono_ns - taken.start_mono_ns
        line = lines.get(taken.thread, [])
        first = max(0, bisect.bisect(line, (taken.start_mono_ns, 9)) - 1)
        for n in range(first, len(line)):
            if line[n][0] >= taken.end_mono_ns:
                break
            until = line[n + 1][0] if n + 1 < len(line) else taken.end_mono_ns
            if line[n][2] in right:
                hit += max(0, min(until, taken.end_mono_ns) - max(line[n][0], taken.start_mono_ns))
    return hit / max(total, 1)


def write_log(row: str, span_ids: dict[str, set[bytes]], end_unix_ns: dict[str, int]) -> None:
    """For the kernel's side of the table: when which thread worked for which span, to $TABLE_E_LOG."""
    target = os.environ.get("TABLE_E_LOG")
    if not target:
        return
    with open(target, "a", encoding="utf-8") as out:
        for taken in steps.log:
            if taken.start_unix_ns <= end_unix_ns.get(taken.label, taken.start_unix_ns):
                right = sorted(one.hex() for one in span_ids.get(taken.label, ()))
                fields = (row, taken.thread, taken.start_mono_ns, taken.end_mono_ns, taken.kind, right)
                out.write(json.dumps(fields) + "\n")


def main() -> None:
    tracer = tracers.make(sys.argv[1])
    from tailspan import status

    for row in sys.argv[3:]:
        steps.log.clear()
        try:
            with ring_recording() as recording:
                rows.run(row, tracer, int(sys.argv[2]))
            result = score(tracer.span_ids(), tracer.end_unix_ns())
            if recording is not None:
                result["ring_share"], result["ring_loss"] = ring_share(recording, tracer), recording.loss
            write_log(row, tracer.span_ids(), tracer.end_unix_ns())
        except Exception:
            result = {"share": 0.0, "steps": len(steps.log), "wrong": [traceback.format_exc()]}
        print(json.dumps({"row": row} | result), flush=True)
    errors = {name: state for name, state in status.hook_states().items() if state["errors"]}
    print(json.dumps({"hook_errors": errors}), flush=True)


if __name__ == "__main__":
    main()
