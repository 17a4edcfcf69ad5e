"""A real sentence embedding model on the CPU."""

from __future__ import annotations

import numpy as np
import onnxruntime
from tokenizers import Tokenizer

import models

DIMENSIONS = 384
MAX_TOKENS = 128


class Embedder:
    """Texts in, unit vectors out. One compute thread, no spinning: the machine
    is small and the load generator lives on it. Safe to call from any thread;
    the GIL is released while the model runs."""

    def __init__(self) -> None:
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = 1
        options.inter_op_num_threads = 1
        options.add_session_config_entry("session.intra_op.allow_spinning", "0")
        self._session = onnxruntime.InferenceSession(
            str(models.embedding_model()), options, providers=["CPUExecutionProvider"]
        )
        self._tokenizer = Tokenizer.from_file(str(models.embedding_tokenizer()))
        self._tokenizer.enable_truncation(MAX_TOKENS)
        self._tokenizer.enable_padding()

    def embed(self, texts: list[str]) -> np.ndarray:
        """Mean-pooled, normalised vectors, shape (len(texts), DIMENSIONS)."""
        encoded = self._tokenizer.encode_batch(texts)
        ids = np.array([e.ids for e in encoded], dtype=np.int64)
        mask = np.array([e.attention_mask for e in encoded], dtype=np.int64)
        (hidden,) = self._session.run(
            None,
            {"input_ids": ids, "attention_mask": mask, "token_type_ids": np.zeros_like(ids)},
        )
        weights = mask[:, :, None].astype(np.float32)
        pooled = (hidden * weights).sum(axis=1) / weights.sum(axis=1)
        return (pooled / np.linalg.norm(pooled, axis=1, keepdims=True)).astype(np.float32)
