"""A cross-encoder: query and text are read together, and one number says how well they fit. torch is imported here.

Owns the weights on their device. Promises scores of 0 to 1 that depend, beyond rounding, on nothing that is computed
beside them, and that nothing is begun after the deadline.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from transformers import AutoModelForSequenceClassification, AutoTokenizer
from transformers.utils import logging as transformers_logging

from serve_app.errors import RerankerUnavailable
from serve_app.models.device import number_format, usable_device

__all__ = ["CrossEncoder"]

CPU_BATCH_TOKENS, GPU_BATCH_TOKENS = 1024, 32768
"""Padded tokens of one pass; after each the clock is looked at."""

CHARACTERS_PER_TOKEN_MAX = 64
"""No more of a text than this many characters a token is tokenised: the rest would be cut off anyway."""

QUERY_SHARE = 0.5
"""Of the model's length, at most so much is the query; the rest is the text's, which is cut first."""

POSITIONS_MAX = 8192
"""Longer than any text here needs: some models state positions without end."""

_no_progress_bar: Callable[[], None] = transformers_logging.disable_progress_bar


class CrossEncoder:
    """One model on one device. Not thread-safe."""

    def __init__(self, folder: Path, *, max_tokens: int, device: str) -> None:
        """Raises RerankerUnavailable where the folder holds no cross-encoder that can be loaded."""
        torch.set_num_threads(1)  # two threads beside a busy core are many times slower than one
        _no_progress_bar()
        self._device = torch.device(usable_device(device))
        try:
            model = AutoModelForSequenceClassification.from_pretrained(
                folder, dtype=number_format(self._device), local_files_only=True
            )
            self._tokenizer = AutoTokenizer.from_pretrained(folder, local_files_only=True)
            self._model = model.to(self._device).eval()
        except (OSError, ValueError, RuntimeError, KeyError) as error:
            raise RerankerUnavailable(f"the reranker in {folder} cannot be loaded: {error}") from error
        if model.config.num_labels not in (1, 2):
            raise RerankerUnavailable(f"the model in {folder} tells {model.config.num_labels} classes: no reranker")
        self._most = min(max_tokens, _positions(model.config), int(self._tokenizer.model_max_length), POSITIONS_MAX)
        self._batch_tokens = CPU_BATCH_TOKENS if self._device.type == "cpu" else GPU_BATCH_TOKENS

    def scores(self, query: str, texts: Sequence[str], deadline: float) -> NDArray[np.float64]:
        """Shape (len(texts),), in order. Raises TimeoutError, RerankerUnavailable (out of memory, say)."""
        if not texts:
            return np.zeros(0)
        read = self._read(query, texts)
        out = np.zeros(len(texts))
        try:
            for batch in self._batches([len(ids) for ids in read["input_ids"]]):
                if time.monotonic() >= deadline:
                    raise TimeoutError("the deadline passed before all texts were read")
                out[batch] = self._pass({name: [values[at] for at in batch] for name, values in read.items()})
        except RuntimeError as error:
            raise RerankerUnavailable(f"the reranker failed: {type(error).__name__}") from error
        return out

    def _read(self, query: str, texts: Sequence[str]) -> dict[str, list[list[int]]]:
        """The token ids of each pair; of what is too long the end of the text goes first."""
        characters = self._most * CHARACTERS_PER_TOKEN_MAX
        query = self._cut(query[:characters])
        pairs = [query] * len(texts), [text[:characters] for text in texts]
        read: dict[str, list[list[int]]] = dict(
            self._tokenizer(*pairs, truncation="only_second", max_length=self._most, padding=False)
        )
        return read

    def _cut(self, query: str) -> str:
        most = max(1, int(self._most * QUERY_SHARE))
        read = self._tokenizer(query, add_special_tokens=False, return_offsets_mapping=True, verbose=False)
        offsets = read["offset_mapping"]
        return query if len(offsets) <= most else query[: offsets[most - 1][1]]

    def _batches(self, lengths: Sequence[int]) -> Iterator[list[int]]:
        """Places of pairs, shortest first, cut where the padded batch would grow too large."""
        batch: list[int] = []
        for at in sorted(range(len(lengths)), key=lengths.__getitem__):
            if batch and lengths[at] * (len(batch) + 1) > self._batch_tokens:
                yield batch
                batch = []
            batch.append(at)
        yield batch

    @torch.inference_mode()
    def _pass(self, read: dict[str, list[list[int]]]) -> NDArray[np.float64]:
        padded = self._tokenizer.pad(read, return_tensors="pt").to(self._device)
        logits = self._model(**padded).logits.float()
        fitting = torch.sigmoid(logits[:, 0]) if logits.shape[1] == 1 else torch.softmax(logits, dim=1)[:, 1]
        scores: NDArray[np.float64] = fitting.cpu().numpy().astype(np.float64)
        return scores


def _positions(config: Any) -> int:
    """Tokens that the architecture can read. RoBERTa's kin lose the positions up to that of the padding."""
    offset = (config.pad_token_id or 0) + 1 if "roberta" in str(config.model_type) else 0
    stated = getattr(config, "max_position_embeddings", None)
    return int(stated) - offset if isinstance(stated, int) and stated > offset else POSITIONS_MAX
