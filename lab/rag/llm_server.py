"""A small real language model behind an OpenAI-compatible endpoint.

One compute thread: llama.cpp's threads spin at barriers, and more of them than
there are free cores drown everything else on a small machine. LAB_READY names
the file that gets our URL.
"""

from __future__ import annotations

import os
import signal
from pathlib import Path

import xllamacpp

import models

CONTEXT_TOKENS = 2048
NICE = 5


def main() -> None:
    """Serves until SIGTERM or SIGINT."""
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM, signal.SIGINT})
    os.nice(NICE)
    parameters = xllamacpp.CommonParams()
    parameters.model.path = str(models.language_model())
    parameters.n_ctx = CONTEXT_TOKENS
    parameters.n_parallel = 1
    parameters.cpuparams.n_threads = 1
    parameters.cpuparams_batch.n_threads = 1
    parameters.n_threads_http = 2
    parameters.port = 0
    server = xllamacpp.Server(parameters)
    Path(os.environ["LAB_READY"]).write_text(server.listening_address)
    signal.sigwait({signal.SIGTERM, signal.SIGINT})
    del server


if __name__ == "__main__":
    main()
