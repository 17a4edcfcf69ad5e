"""The retrieval chain: (chunk) → embed → Chroma and the mapped archive → merge."""

from __future__ import annotations

import asyncio
import contextvars
import ctypes
import mmap
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, TypeVar

import faiss
import numpy as np
from langchain_core.callbacks import (
    AsyncCallbackManagerForRetrieverRun,
    CallbackManagerForRetrieverRun,
)
from langchain_core.documents import Document
from langchain_core.retrievers import BaseRetriever
from langchain_core.runnables import Runnable, RunnableConfig, RunnableLambda, RunnableParallel

import corpus
import truth_log
from chroma_client import ChromaSearch
from chunking import Chunker
from embedding import Embedder

PASSAGES = 1600
RESULTS = 3
ARCHIVE_PROBES = 2
EMBED_THREADS = 4
INDEX_THREADS = 48
CHUNK_THREADS = 2

T = TypeVar("T")


class Ask:
    """One question on its way through the chain. Tracers print it briefly:
    neither the upload nor the vectors belong into a span."""

    def __init__(self, question: str, like: list[int], document: str | None) -> None:
        self.question = question
        self.like = like
        self.document = document
        self.chunks: list[str] = []
        self.vectors = np.empty((0, 0), dtype=np.float32)

    def to_json(self) -> str:
        return self.question

    def __repr__(self) -> str:
        return f"Ask({self.question!r})"


async def _in_pool(pool: ThreadPoolExecutor, work: Callable[[], T]) -> T:
    context = contextvars.copy_context()
    return await asyncio.get_running_loop().run_in_executor(pool, context.run, work)


def _open_archive(path: Path) -> Any:
    """The IVF index, its lists mapped. As vector stores do, it tells the kernel
    that reads are random; the searching thread itself reads what it needs, not
    faiss's 32 helpers."""
    index = faiss.read_index(str(path), faiss.IO_FLAG_MMAP)
    index.nprobe = ARCHIVE_PROBES
    lists = faiss.downcast_InvertedLists(index.invlists)
    lists.prefetch_nthread = 0
    start = int(lists.ptr) & ~(mmap.PAGESIZE - 1)
    length = int(lists.ptr) + lists.totsize - start
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.madvise(ctypes.c_void_p(start), ctypes.c_size_t(length), mmap.MADV_RANDOM) != 0:
        raise OSError(ctypes.get_errno(), "madvise")
    return index


class _AskRetriever(BaseRetriever):
    """A retriever whose input is an Ask; its run carries the question only."""

    async def ainvoke(self, input: Any, config: RunnableConfig | None = None, **kwargs: Any) -> list[Document]:
        return await super().ainvoke(input.question, config, ask=input, **kwargs)

    def _get_relevant_documents(
        self, query: str, *, run_manager: CallbackManagerForRetrieverRun, **kwargs: Any
    ) -> list[Document]:
        raise NotImplementedError("this service retrieves asynchronously")


class ChromaRetriever(_AskRetriever):
    """Asks the Chroma server."""

    search: Any
    texts: Any

    async def _aget_relevant_documents(
        self, query: str, *, run_manager: AsyncCallbackManagerForRetrieverRun, ask: Ask
    ) -> list[Document]:
        with truth_log.step("chroma_query"):
            ids = await self.search.query(ask.vectors, RESULTS)
        return [Document(self.texts[int(i)], metadata={"id": i}) for i in ids[:RESULTS]]


class ArchiveRetriever(_AskRetriever):
    """Searches the memory-mapped index in a worker thread."""

    index: Any
    texts: Any
    pool: Any

    async def _aget_relevant_documents(
        self, query: str, *, run_manager: AsyncCallbackManagerForRetrieverRun, ask: Ask
    ) -> list[Document]:
        copies = self.index.ntotal // PASSAGES

        def work() -> np.ndarray:
            with truth_log.step("index_search"):
                _, found = self.index.search(ask.vectors[:1], RESULTS)
            return found[0]

        rows = await _in_pool(self.pool, work)
        return [Document(self.texts[int(r) // copies], metadata={"row": int(r)}) for r in rows if r >= 0]


class Retrieval:
    """Owns models, index and pools; `chain` is the LCEL runnable."""

    def __init__(self, data: Path, chroma: ChromaSearch) -> None:
        faiss.omp_set_num_threads(1)
        self._texts = corpus.passages(PASSAGES)
        self._vectors = np.load(data / "passages.npy")
        self._embedder = Embedder()
        index = _open_archive(data / "archive.ivf")
        self._embed_pool = ThreadPoolExecutor(EMBED_THREADS, thread_name_prefix="embed")
        self._index_pool = ThreadPoolExecutor(INDEX_THREADS, thread_name_prefix="index")
        self._chunk_pool = ThreadPoolExecutor(CHUNK_THREADS, thread_name_prefix="chunk")
        self._chunker = Chunker()
        self._chunk = RunnableLambda(self._chunk_upload, name="chunk")
        self.chain: Runnable[Ask, list[Document]] = (
            RunnableLambda(self._embed, name="embed")
            | RunnableParallel(
                recent=ChromaRetriever(name="chroma_query", search=chroma, texts=self._texts),
                archive=ArchiveRetriever(
                    name="index_search", index=index, texts=self._texts, pool=self._index_pool
                ),
            )
            | RunnableLambda(self._merge, name="merge")
        ).with_config(run_name="retrieve")

    async def chunk(self, ask: Ask) -> Ask:
        """Splits the upload, if there is one."""
        return await self._chunk.ainvoke(ask) if ask.document else ask

    async def _chunk_upload(self, ask: Ask) -> Ask:
        def work() -> list[str]:
            with truth_log.step("chunk"):
                return self._chunker.split(ask.document or "")

        ask.chunks = await _in_pool(self._chunk_pool, work)
        return ask

    async def _embed(self, ask: Ask) -> Ask:
        def work() -> np.ndarray:
            with truth_log.step("embed"):
                return self._embedder.embed([ask.question])

        question = await _in_pool(self._embed_pool, work)
        ask.vectors = np.concatenate([question, self._vectors[ask.like]])
        return ask

    @staticmethod
    async def _merge(found: dict[str, list[Document]]) -> list[Document]:
        """Interleaves both sources, each passage once."""
        merged: dict[str, Document] = {}
        for pair in zip(found["recent"], found["archive"]):
            for document in pair:
                merged.setdefault(document.page_content, document)
        return list(merged.values())[:RESULTS]
