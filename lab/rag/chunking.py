"""Splits an upload into chunks of so many model tokens, in Python throughout.

The tokens are counted by a plain greedy WordPiece over the embedding model's
own vocabulary, as services do that must not overrun a model's window. It holds
the GIL from end to end, which is what the lab wants of it.
"""

from __future__ import annotations

import json
import re

from langchain_text_splitters import RecursiveCharacterTextSplitter

import models

CHUNK_TOKENS = 120
OVERLAP_TOKENS = 24
_WORDS = re.compile(r"\w+|[^\w\s]")


class Chunker:
    """Safe to use from any thread; keeps nothing between calls."""

    def __init__(self) -> None:
        tokenizer = json.loads(models.embedding_tokenizer().read_text())
        self._vocabulary = frozenset(tokenizer["model"]["vocab"])
        self._splitter = RecursiveCharacterTextSplitter(
            chunk_size=CHUNK_TOKENS, chunk_overlap=OVERLAP_TOKENS, length_function=self._count
        )

    def split(self, text: str) -> list[str]:
        """Chunks of at most CHUNK_TOKENS tokens, where the text allows it."""
        return self._splitter.split_text(text)

    def _count(self, text: str) -> int:
        return sum(self._pieces(word) for word in _WORDS.findall(text.lower()))

    def _pieces(self, word: str) -> int:
        """Longest match first, as WordPiece does it; an unknown word is one token."""
        pieces, start = 0, 0
        while start < len(word):
            prefix = "##" if start else ""
            end = len(word)
            while end > start and prefix + word[start:end] not in self._vocabulary:
                end -= 1
            if end == start:
                return 1
            pieces, start = pieces + 1, end
        return pieces
