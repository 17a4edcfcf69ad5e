"""Builds the service's data once: the Chroma collection and the mapped index.

Usage: build_data.py FOLDER. Runs in the service's virtual environment, about
a minute on one core. The archive index holds noisy copies of the passages'
real embeddings: searching it costs what a real one of its size costs.
"""

from __future__ import annotations

import sys
from pathlib import Path

import chromadb
import faiss
import numpy as np
from chromadb.config import Settings

import corpus
from embedding import DIMENSIONS, Embedder

PASSAGES = 1600
ARCHIVE_COPIES = 40
ARCHIVE_LISTS = 256
COLLECTION = "handbook"


def _embed_all(texts: list[str]) -> np.ndarray:
    embedder = Embedder()
    return np.concatenate([embedder.embed(texts[i : i + 16]) for i in range(0, len(texts), 16)])


def _build_chroma(folder: Path, texts: list[str], vectors: np.ndarray) -> None:
    client = chromadb.PersistentClient(str(folder), settings=Settings(anonymized_telemetry=False))
    collection = client.create_collection(COLLECTION, embedding_function=None)
    for i in range(0, len(texts), 400):
        collection.add(
            ids=[str(n) for n in range(i, min(i + 400, len(texts)))],
            embeddings=vectors[i : i + 400],
            documents=texts[i : i + 400],
        )


def _build_archive(path: Path, vectors: np.ndarray) -> None:
    rng = np.random.default_rng(7)
    copies = np.repeat(vectors, ARCHIVE_COPIES, axis=0)
    copies += rng.normal(0, 0.02, copies.shape).astype(np.float32)
    faiss.normalize_L2(copies)
    index = faiss.IndexIVFFlat(
        faiss.IndexFlatIP(DIMENSIONS), DIMENSIONS, ARCHIVE_LISTS, faiss.METRIC_INNER_PRODUCT
    )
    index.cp.niter = 8
    index.train(copies[:: ARCHIVE_COPIES // 8])
    index.add(copies)
    faiss.write_index(index, str(path))


def main() -> None:
    folder = Path(sys.argv[1])
    folder.mkdir(parents=True)
    texts = corpus.passages(PASSAGES)
    vectors = _embed_all(texts)
    np.save(folder / "passages.npy", vectors)
    _build_chroma(folder / "chroma", texts, vectors)
    _build_archive(folder / "archive.ivf", vectors)


if __name__ == "__main__":
    main()
