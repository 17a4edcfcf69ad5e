"""The loads of the rag service, shared by its cases."""

from __future__ import annotations

import random

from rag import corpus
from runner.case import Request, Workload

PASSAGES = 1600
# One request in so many asks the language model too; an operation of its own.
ANSWER_ONE_IN = 150
# Names under which the request's steps appear, whatever traces them.
SPANS = ("POST /ask", "retrieve", "embed", "RunnableParallel<recent,archive>", "chroma_query",
         "index_search", "merge")


def asks(
    distinct_questions: int = 400,
    like: int = 0,
    upload_one_in: int = 0,
    upload_bytes: int = 0,
) -> Workload:
    """`requests` times POST /ask, and a few POST /answer between them. With
    `like`, each asks for the neighbours of so many passages too, which makes the
    query of the vector store large."""

    def build(rng: random.Random, requests: int) -> list[Request]:
        questions = corpus.questions(distinct_questions)
        upload_at = set(_spread(rng, requests, upload_one_in))
        plan: list[Request] = []
        for n in range(requests):
            body = {"question": rng.choice(questions), "like": rng.sample(range(PASSAGES), like)}
            plan.append(Request("/ask", body))
            if n in upload_at:
                plan.append(Request("/upload", {"question": "", "document": corpus.document(upload_bytes, seed=n)}))
            if rng.random() < 1 / ANSWER_ONE_IN:
                plan.append(Request("/answer", {"question": rng.choice(questions)}))
        return plan

    return build


def _spread(rng: random.Random, requests: int, one_in: int) -> list[int]:
    """One place in each stretch of `one_in` requests, none in the first stretch's half."""
    if one_in == 0:
        return []
    return [s + rng.randrange(one_in // 2, one_in) for s in range(0, requests - one_in + 1, one_in)]


# The party at the other end of a Chroma query, by address, process or device.
CHROMA = (("peer", ":8000"), ("peer", "chroma"), ("process", "chroma"))
