"""What counts as right, by hand-made answers."""

from __future__ import annotations

import sys
import unittest
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import score  # noqa: E402
from runner import case  # noqa: E402
from runner.case import Accept  # noqa: E402

ACCEPT = Accept("fault", ("retransmit",), ("chroma_query",), (("peer", ":8000"), ("process", "chroma")))


def answer(**change: Any) -> dict[str, Any]:
    finding = {
        "rank": 1, "cause": "retransmit", "span": "vector_db_retrieve chroma_query",
        "blame": {"kind": "peer", "name": "10.0.0.2:8000", "detail": ""},
    }
    verdict = change.pop("verdict", "fault")
    return {"verdict": verdict, "findings": [{"rank": 2, "cause": "on_cpu"}, {**finding, **change}]}


class ScoreTest(unittest.TestCase):
    def test_right_answer(self) -> None:
        self.assertTrue(score.score(ACCEPT, answer()).right)

    def test_each_part_is_asked(self) -> None:
        for wrong in (
            {"verdict": "healthy"}, {"cause": "net_recv"}, {"span": "retrieve.workflow"},
            {"blame": {"kind": "peer", "name": "10.0.0.2:9000"}}, {"blame": None},
        ):
            self.assertFalse(score.score(ACCEPT, answer(**wrong)).right, wrong)

    def test_blame_by_detail(self) -> None:
        blame = {"kind": "process", "name": "pid 7", "detail": "chroma"}
        self.assertTrue(score.score(ACCEPT, answer(blame=blame)).right)

    def test_no_finding_is_wrong_for_a_fault(self) -> None:
        result = score.score(ACCEPT, {"verdict": "fault", "findings": []})
        self.assertEqual((result.cause, result.right), (False, False))

    def test_healthy_asks_for_the_verdict_only(self) -> None:
        accept = Accept("healthy")
        self.assertTrue(score.score(accept, {"verdict": "healthy", "findings": []}).right)
        self.assertTrue(score.score(accept, answer(verdict="healthy")).right)
        self.assertFalse(score.score(accept, answer()).right)
        self.assertFalse(score.score(accept, {"verdict": "insufficient"}).right)

    def test_span_names_without_the_tracers_words(self) -> None:
        for name in ("embed", "execute_task embed", "embed.task", "embed.workflow", "embed.langchain.task"):
            self.assertEqual(score.plain_span(name), "embed")
        self.assertEqual(score.plain_span("POST /ask"), "POST /ask")

    def test_all_cases_load_and_are_named_after_their_file(self) -> None:
        for name in case.names():
            one = case.load(name)
            self.assertEqual(one.name, name)
            self.assertGreaterEqual(one.requests, 2000)
            self.assertEqual(bool(one.accept.causes), one.hit_share is not None)


if __name__ == "__main__":
    unittest.main()
