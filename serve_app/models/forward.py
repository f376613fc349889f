"""The forward pass of an encoder: token ids in, one vector each out. The only module here that imports torch.

Owns the weights on their device and the number format. Promises that a text's vector does not
depend, beyond rounding, on what is computed beside it, and that the same texts give the same bytes again.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import numpy as np
import torch
from transformers import AutoModel
from transformers.utils import logging as transformers_logging

from serve_app.errors import EncoderUnavailable
from serve_app.ports import Vectors

__all__ = ["Forward"]

CPU_BATCH_TOKENS, GPU_BATCH_TOKENS = 1024, 65536
"""Padded tokens of one forward pass; above it throughput no longer grows and memory and waiting do."""

CPU_PADDING_TOKENS, GPU_PADDING_TOKENS = 40, 65536
"""Padding at which a pass of its own is cheaper: on one core a pass costs about as much as 40 tokens."""

LENGTH_MULTIPLE = 8
"""Lengths are rounded up to it. oneDNN keeps compiled kernels for each shape that it has met: with every length of
its own that was 480 MB after 300 mixed batches, with these 90 MB, at the same speed."""

_no_progress_bar: Callable[[], None] = transformers_logging.disable_progress_bar


class Forward:
    """One encoder on one device. Not thread-safe."""

    def __init__(self, folder: Path, *, pooling: str, normalise: bool, device: str) -> None:
        """Raises EncoderUnavailable where the folder holds no encoder that can be loaded."""
        torch.set_num_threads(1)  # two threads beside a busy core are many times slower than one
        _no_progress_bar()
        self._device = torch.device(_device(device))
        try:
            model = AutoModel.from_pretrained(folder, dtype=_number_format(self._device), local_files_only=True)
        except (OSError, ValueError, RuntimeError) as error:
            raise EncoderUnavailable(f"the encoder in {folder} cannot be loaded: {error}") from error
        self._model = model.to(self._device).eval()
        self._pooling, self._normalise = pooling, normalise
        self._pad_id = model.config.pad_token_id or 0
        on_cpu = self._device.type == "cpu"
        self._batch_tokens = CPU_BATCH_TOKENS if on_cpu else GPU_BATCH_TOKENS
        self._padding_tokens = CPU_PADDING_TOKENS if on_cpu else GPU_PADDING_TOKENS

    @property
    def dimension(self) -> int:
        return int(self._model.config.hidden_size)

    def vectors(self, token_ids: Sequence[Sequence[int]]) -> Vectors:
        """Shape (n, dimension), in order. Raises EncoderUnavailable where the device fails, out of memory say."""
        out = np.empty((len(token_ids), self.dimension), np.float32)
        try:
            for batch in self._batches([len(ids) for ids in token_ids]):
                out[batch] = self._pass([token_ids[at] for at in batch])
        except RuntimeError as error:
            raise EncoderUnavailable(f"the encoder failed: {error}") from error
        return out

    def _batches(self, lengths: list[int]) -> Iterator[list[int]]:
        """Positions of texts, shortest first, cut where a batch or its padding would grow too large."""
        batch: list[int] = []
        held = 0
        for at in sorted(range(len(lengths)), key=lengths.__getitem__):
            padded = lengths[at] * (len(batch) + 1)
            padding = padded - held - lengths[at]
            if batch and (padded > self._batch_tokens or padding > self._padding_tokens):
                yield batch
                batch, held = [], 0
            batch.append(at)
            held += lengths[at]
        if batch:
            yield batch

    @torch.inference_mode()
    def _pass(self, token_ids: Sequence[Sequence[int]]) -> Vectors:
        columns = list(itertools.zip_longest(*token_ids, fillvalue=-1))
        columns += [(-1,) * len(token_ids)] * self._padding(len(columns))
        ids = torch.tensor(columns, device=self._device).T.contiguous()
        mask = ids >= 0
        hidden = self._model(input_ids=ids.where(mask, self._pad_id), attention_mask=mask.long()).last_hidden_state
        pooled = self._pool(hidden.float(), mask)
        if self._normalise:
            pooled = torch.nn.functional.normalize(pooled, dim=1)
        vectors: Vectors = pooled.cpu().numpy()
        return vectors

    def _padding(self, length: int) -> int:
        """Columns that bring a length to the next multiple, within what the model can read."""
        return max(0, min(-length % LENGTH_MULTIPLE, int(self._model.config.max_position_embeddings) - length))

    def _pool(self, hidden: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        if self._pooling == "cls":
            return hidden[:, 0]
        weights = mask.unsqueeze(2).float()
        return (hidden * weights).sum(1) / weights.sum(1)


def _device(wanted: str) -> str:
    if wanted != "auto":
        return wanted
    return "cuda" if torch.cuda.is_available() else "cpu"


def _number_format(device: torch.device) -> torch.dtype:
    """Half precision where the device computes in it; elsewhere it would be slower than float32."""
    if device.type == "cuda":
        return torch.bfloat16 if torch.cuda.is_bf16_supported(including_emulation=False) else torch.float16
    capabilities = torch.cpu.get_capabilities()
    return torch.bfloat16 if capabilities.get("avx512_bf16") or capabilities.get("amx_bf16") else torch.float32
