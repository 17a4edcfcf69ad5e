"""The web service: POST /ask finds passages, POST /answer asks the model too, POST /upload takes a document in.

Environment: LAB_DATA (data folder), LAB_CHROMA (host:port), LAB_LLM (base URL),
LAB_READY (file that gets our URL), and what tracing.py, truth_log.py and
chroma_client.py name.
"""

from __future__ import annotations

import gc
import os
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import uvicorn
from fastapi import FastAPI, Header
from langchain_core.output_parsers import StrOutputParser
from langchain_core.prompts import ChatPromptTemplate
from langchain_openai import ChatOpenAI
from pydantic import BaseModel

import tracing
from chroma_client import ChromaSearch
from retrieval import Ask, Retrieval
from truth_log import TruthLog

ANSWER_TOKENS = 12
CONTEXT_CHARS = 160
KEEP_ALIVE_S = 120


class Question(BaseModel):
    """`like` names passages whose neighbours are wanted too; `document` is an upload."""

    question: str
    like: list[int] = []
    document: str | None = None


def _answer_chain() -> Any:
    prompt = ChatPromptTemplate.from_messages(
        [("system", "Answer in one short sentence."), ("user", "{context}\n\n{question}")]
    )
    model = ChatOpenAI(
        base_url=os.environ["LAB_LLM"] + "/v1",
        api_key="none",
        model="smollm2",
        temperature=0,
        timeout=120,
        max_retries=0,
        extra_body={"max_tokens": ANSWER_TOKENS},
    )
    return (prompt | model | StrOutputParser()).with_config(run_name="generate")


def create_app() -> FastAPI:
    """Everything is opened before the first request is taken."""
    host, port = os.environ["LAB_CHROMA"].rsplit(":", 1)
    chroma = ChromaSearch(host, int(port))
    retrieval = Retrieval(Path(os.environ["LAB_DATA"]), chroma)
    answer_chain = _answer_chain()
    truth = TruthLog()
    flush: Any = None

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        await chroma.connect()
        # Full collections over all that was imported stop the loop for 160 ms.
        gc.collect()
        gc.freeze()
        yield
        truth.close()
        flush()

    app = FastAPI(lifespan=lifespan)
    flush = tracing.start(app)

    @tracing.operation("POST /ask")
    async def ask_root(question: Question) -> list[str]:
        ask = Ask(question.question, question.like, None)
        return [d.page_content for d in await retrieval.chain.ainvoke(ask)]

    @tracing.operation("POST /upload")
    async def upload_root(question: Question) -> int:
        return len((await retrieval.chunk(Ask("", [], question.document))).chunks)

    @tracing.operation("POST /answer")
    async def answer_root(question: Question) -> str:
        found = await retrieval.chain.ainvoke(Ask(question.question, question.like, None))
        context = found[0].page_content[:CONTEXT_CHARS]
        return await answer_chain.ainvoke({"context": context, "question": question.question})

    @app.post("/ask")
    async def ask(question: Question, x_request_id: str | None = Header(None)) -> dict[str, Any]:
        with truth.request(x_request_id):
            return {"passages": await ask_root(question)}

    @app.post("/upload")
    async def upload(question: Question, x_request_id: str | None = Header(None)) -> dict[str, Any]:
        with truth.request(x_request_id):
            return {"chunks": await upload_root(question)}

    @app.post("/answer")
    async def answer(question: Question, x_request_id: str | None = Header(None)) -> dict[str, Any]:
        with truth.request(x_request_id):
            return {"answer": await answer_root(question)}

    @app.post("/warm-up")
    async def warm_up(question: Question) -> dict[str, Any]:
        ask = Ask(question.question, question.like, None)
        return {"passages": len(await retrieval.chain.ainvoke(ask))}

    return app


def main() -> None:
    """Serves on a free port of the loopback address and says which."""
    # asyncio sets TCP_NODELAY only on sockets that name their protocol.
    listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    listener.bind(("127.0.0.1", 0))
    url = f"http://127.0.0.1:{listener.getsockname()[1]}"
    config = uvicorn.Config(
        create_app(), loop="asyncio", http="httptools", access_log=False, log_level="warning",
        timeout_keep_alive=KEEP_ALIVE_S,
    )
    ready = Path(os.environ["LAB_READY"])
    ready.write_text(url)
    uvicorn.Server(config).run(sockets=[listener])


if __name__ == "__main__":
    main()
