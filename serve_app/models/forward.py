"""The forward pass of an encoder: token ids in, one vector each out. Torch is imported here and in the modules below.

Owns the weights on their device and the number format. Promises that a text's vector does not
depend, beyond rounding, on what is computed beside it, and that the same texts give the same bytes again.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Protocol

import numpy as np
import torch

from serve_app.errors import EncoderUnavailable
from serve_app.models.bert import open_bert
from serve_app.ports import Vectors

__all__ = ["Forward"]

CPU_BATCH_TOKENS, GPU_BATCH_TOKENS = 1024, 65536
"""Padded tokens of one forward pass; above it throughput no longer grows and memory and waiting do."""

NO_TOKENS = [0]
"""Stands for a text without any, as some tokenizers have it: even that has a vector."""


class Encoder(Protocol):
    @property
    def dimension(self) -> int: ...

    @property
    def padding_tokens(self) -> int | None:
        """Padding at which a pass of its own is cheaper; None where texts of different lengths need none."""
        ...

    def pooled(self, token_ids: Sequence[Sequence[int]]) -> torch.Tensor:
        """Shape (n, dimension), float32, of at least one text, shortest first, none of them empty."""
        ...


class Forward:
    """One encoder on one device. Not thread-safe."""

    def __init__(self, folder: Path, *, pooling: str, normalise: bool, device: str) -> None:
        """Raises EncoderUnavailable where the folder holds no encoder that can be loaded."""
        torch.set_num_threads(1)  # two threads beside a busy core are many times slower than one
        on = torch.device(_device(device))
        self._encoder = _open_encoder(folder, cls=pooling == "cls", device=on)
        self._normalise = normalise
        self._batch_tokens = CPU_BATCH_TOKENS if on.type == "cpu" else GPU_BATCH_TOKENS

    @property
    def dimension(self) -> int:
        return self._encoder.dimension

    def vectors(self, token_ids: Sequence[Sequence[int]]) -> Vectors:
        """Shape (n, dimension), in order. Raises EncoderUnavailable where the device fails, out of memory say."""
        out = np.empty((len(token_ids), self.dimension), np.float32)
        try:
            for batch in self._batches([len(ids) for ids in token_ids]):
                out[batch] = self._pass([token_ids[at] or NO_TOKENS for at in batch])
        except RuntimeError as error:
            raise EncoderUnavailable(f"the encoder failed: {error}") from error
        return out

    def _batches(self, lengths: list[int]) -> Iterator[list[int]]:
        """Positions of texts, shortest first, cut where a batch or its padding would grow too large."""
        padding_max = self._encoder.padding_tokens
        batch: list[int] = []
        held = 0
        for at in sorted(range(len(lengths)), key=lengths.__getitem__):
            padding = 0 if padding_max is None else lengths[at] * len(batch) - held
            if batch and (held + padding + lengths[at] > self._batch_tokens or padding > (padding_max or 0)):
                yield batch
                batch, held = [], 0
            batch.append(at)
            held += lengths[at]
        if batch:
            yield batch

    @torch.inference_mode()
    def _pass(self, token_ids: Sequence[Sequence[int]]) -> Vectors:
        pooled = self._encoder.pooled(token_ids)
        if self._normalise:
            pooled = torch.nn.functional.normalize(pooled, dim=1)
        vectors: Vectors = pooled.cpu().numpy()
        return vectors


def _open_encoder(folder: Path, *, cls: bool, device: torch.device) -> Encoder:
    number_format = _number_format(device)
    lean = open_bert(folder, cls=cls, number_format=number_format, device=device)
    if lean is not None:
        return lean
    from serve_app.models.any_encoder import AnyEncoder  # imports transformers

    return AnyEncoder(folder, cls=cls, number_format=number_format, device=device)


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
