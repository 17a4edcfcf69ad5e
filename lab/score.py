"""Compares tailspan's first finding with a case's accepted answers.

Run as a program: score.py CASE EXPLANATION.json scores an answer again.
"""

from __future__ import annotations

import json
import re
import sys
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from runner.case import Accept

_PREFIX = re.compile(r"^(execute_task|execute_tool|invoke_agent|vector_db_retrieve) ")
_SUFFIX = re.compile(r"\.(workflow|task|tool|agent|chain|retriever|langchain\.(workflow|task))$")


@dataclass(frozen=True)
class Score:
    """None where the case asks nothing."""

    verdict: bool
    cause: bool | None
    span: bool | None
    blame: bool | None
    answer: str

    @property
    def right(self) -> bool:
        """Everything that was asked is right."""
        return all(part is not False for part in (self.verdict, self.cause, self.span, self.blame))


def plain_span(name: str) -> str:
    """A span's name without what a tracer added to the step's own name."""
    return _SUFFIX.sub("", _PREFIX.sub("", name))


def score(accept: Accept, explanation: dict[str, Any]) -> Score:
    """By the finding of rank 1 alone."""
    verdict = str(explanation.get("verdict"))
    findings = sorted(explanation.get("findings") or [], key=lambda f: f.get("rank", 0))
    if not findings:
        wanted = False if accept.causes else None
        return Score(verdict == accept.verdict, wanted, wanted, wanted, verdict)
    first = findings[0]
    blame = first.get("blame") or {}
    answer = f"{verdict}: {first.get('cause')} in {first.get('span')} by {blame.get('kind')} {blame.get('name')}"
    if not accept.causes:
        return Score(verdict == accept.verdict, None, None, None, answer)
    words = f"{blame.get('name', '')} {blame.get('detail', '')}"
    return Score(
        verdict == accept.verdict,
        first.get("cause") in accept.causes,
        plain_span(str(first.get("span"))) in accept.spans,
        any(blame.get("kind") == kind and part in words for kind, part in accept.blames),
        answer,
    )


def main() -> int:
    from runner import case

    wanted, path = sys.argv[1:3]
    result = score(case.load(wanted).accept, json.loads(Path(path).read_text()))
    print(json.dumps({**asdict(result), "right": result.right}, indent=1))
    return 0 if result.right else 1


if __name__ == "__main__":
    sys.exit(main())
