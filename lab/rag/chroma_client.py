"""Three ways in which services talk to Chroma, chosen by LAB_CHROMA_CLIENT:
`async`, `blocking` (the library's default: no timeout), and `timeout` (a
blocking client with one, so its socket waits in poll)."""

from __future__ import annotations

import asyncio
import contextvars
import os
import socket
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import chromadb
import httpx
import numpy as np
from chromadb.config import Settings

COLLECTION = "handbook"
TIMEOUT_S = 60.0
POOL_THREADS = 64


def _socket_options() -> list[tuple[int, int, int]]:
    """Keep-alive pools pin the send buffer where memory is counted."""
    size_bytes = int(os.environ.get("LAB_CHROMA_SNDBUF_BYTES", "0"))
    return [(socket.SOL_SOCKET, socket.SO_SNDBUF, size_bytes)] if size_bytes else []


class ChromaSearch:
    """Nearest passages from the Chroma server, for one or many vectors."""

    def __init__(self, host: str, port: int) -> None:
        self._host, self._port = host, port
        self._mode = os.environ.get("LAB_CHROMA_CLIENT", "async")
        self._settings = Settings(anonymized_telemetry=False)
        self._pool = ThreadPoolExecutor(POOL_THREADS, thread_name_prefix="chroma")
        self._collection: Any = None

    async def connect(self) -> None:
        """Opens the client and the collection."""
        if self._mode == "async":
            client = await chromadb.AsyncHttpClient(self._host, self._port, settings=self._settings)
            session = client._server._get_client()
            session._transport = httpx.AsyncHTTPTransport(
                limits=httpx.Limits(), socket_options=_socket_options()
            )
            self._collection = await client.get_collection(COLLECTION, embedding_function=None)
        elif self._mode in ("blocking", "timeout"):
            client = chromadb.HttpClient(self._host, self._port, settings=self._settings)
            session = client._server._session
            session._transport = httpx.HTTPTransport(
                limits=httpx.Limits(), socket_options=_socket_options()
            )
            if self._mode == "timeout":
                session.timeout = httpx.Timeout(TIMEOUT_S)
            self._collection = client.get_collection(COLLECTION, embedding_function=None)
        else:
            raise SystemExit(f"LAB_CHROMA_CLIENT={self._mode}: must be async, blocking or timeout")

    async def query(self, vectors: np.ndarray, results: int) -> list[str]:
        """Ids of the nearest passages, each once, best first within a vector."""
        arguments = {"query_embeddings": vectors, "n_results": results, "include": ["distances"]}
        if self._mode == "async":
            answer = await self._collection.query(**arguments)
        else:
            context = contextvars.copy_context()
            answer = await asyncio.get_running_loop().run_in_executor(
                self._pool, lambda: context.run(self._collection.query, **arguments)
            )
        return list(dict.fromkeys(one for ids in answer["ids"] for one in ids))
