"""The job where something is amiss: an encoder that fails at some texts, or Ray Data's own checkpoints.

python -m tests.jobs.odd_reembed failing|checkpointed|slow ARGUMENTS
"""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence
from typing import Any

from jobs import reembed
from serve_app.models.embed import EncoderOptions
from serve_app.models.stub import HashEmbedder
from serve_app.ports import Embedder, Encodings

BAD = "unspeakable"
SLOW_S = 0.15


class Failing(HashEmbedder):
    def encode(self, texts: Sequence[str], *, tokens: bool = False) -> Encodings:
        if any(BAD in text for text in texts):
            raise ValueError(texts)
        return super().encode(texts, tokens=tokens)


class Slow(HashEmbedder):
    def encode(self, texts: Sequence[str], *, tokens: bool = False) -> Encodings:
        time.sleep(SLOW_S)
        return super().encode(texts, tokens=tokens)


def open_failing(options: EncoderOptions) -> Embedder:
    return Failing(32, options.turns)


def open_slow(options: EncoderOptions) -> Embedder:
    return Slow(32, options.turns)


def main(arguments: Sequence[str], *, session: Any = None) -> int:
    if arguments[0] == "checkpointed":
        from ray.data import DataContext

        context = DataContext.get_current()
        context.checkpoint_config = {"id_column": "seq", "checkpoint_path": "/tmp"}
        try:
            return reembed.main(arguments[1:], session=session)
        finally:
            context.checkpoint_config = None
    open_one = {"failing": open_failing, "slow": open_slow}[arguments[0]]
    return reembed.main(arguments[1:], session=session, open_one=open_one)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
