"""The forward pass of an encoder: token ids in, one vector each out, and short ones of the tokens where asked for.
Torch is imported here and in the modules below.

Owns the weights on their device and the number format. Promises that a text's vector does not
depend, beyond rounding, on what is computed beside it, and that the same texts give the same bytes again.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Protocol

import numpy as np
import torch
from numpy.typing import NDArray

from serve_app.errors import EncoderUnavailable
from serve_app.models.bert import open_bert
from serve_app.models.device import number_format, usable_device
from serve_app.ports import TOKEN_DIMENSION, Tokens, Vectors

__all__ = ["Forward"]

CPU_BATCH_TOKENS, GPU_BATCH_TOKENS = 1024, 65536
"""Padded tokens of one forward pass; above it throughput no longer grows and memory and waiting do."""

NO_TOKENS = [0]
"""Stands for a text without any, as some tokenizers have it: even that has a vector."""

NONE: Tokens = np.empty((0, TOKEN_DIMENSION), np.int8)


class Encoder(Protocol):
    @property
    def dimension(self) -> int: ...

    @property
    def padding_tokens(self) -> int | None:
        """Padding at which a pass of its own is cheaper; None where texts of different lengths need none."""
        ...

    def pooled(
        self, token_ids: Sequence[Sequence[int]], projection: torch.Tensor | None = None
    ) -> tuple[torch.Tensor, torch.Tensor | None]:
        """Of at least one text, shortest first, none of them empty: vectors, shape (n, dimension), float32, and by a
        projection, shape (dimension, TOKEN_DIMENSION), those of all tokens, one text's behind the other's, int8.
        """
        ...


class Forward:
    """One encoder on one device. Not thread-safe."""

    def __init__(
        self,
        folder: Path,
        *,
        pooling: str,
        normalise: bool,
        device: str,
        wanted_format: str = "auto",
        projection: NDArray[np.float32] | None = None,
    ) -> None:
        """Raises EncoderUnavailable where the folder holds no encoder that can be loaded."""
        torch.set_num_threads(1)  # two threads beside a busy core are many times slower than one
        on = torch.device(usable_device(device))
        self._encoder = _open_encoder(folder, pooling == "cls", number_format(on, wanted_format), on)
        self._normalise = normalise
        self._projection = None if projection is None else torch.from_numpy(projection).to(on)
        self._batch_tokens = CPU_BATCH_TOKENS if on.type == "cpu" else GPU_BATCH_TOKENS

    @property
    def dimension(self) -> int:
        return self._encoder.dimension

    def vectors(self, token_ids: Sequence[Sequence[int]]) -> Vectors:
        """Shape (n, dimension), in order. Raises EncoderUnavailable where the device fails, out of memory say."""
        return self.encoded(token_ids, tokens=False)[0]

    def encoded(self, token_ids: Sequence[Sequence[int]], *, tokens: bool) -> tuple[Vectors, list[Tokens] | None]:
        """`vectors`, and of each text a vector of each of its ids; None where nobody asked or there is no projection.

        Raises EncoderUnavailable.
        """
        out = np.empty((len(token_ids), self.dimension), np.float32)
        projection = self._projection if tokens else None
        compressed: list[Tokens] | None = None if projection is None else [NONE] * len(token_ids)
        try:
            for batch in self._batches([len(ids) for ids in token_ids]):
                read = [token_ids[at] or NO_TOKENS for at in batch]
                out[batch], together = self._pass(read, projection)
                if compressed is not None and together is not None:
                    for at, own in zip(batch, np.split(together, np.cumsum([len(ids) for ids in read])), strict=False):
                        compressed[at] = own[: len(token_ids[at])]
        except RuntimeError as error:
            raise EncoderUnavailable(f"the encoder failed: {error}") from error
        return out, compressed

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
    def _pass(
        self, token_ids: Sequence[Sequence[int]], projection: torch.Tensor | None
    ) -> tuple[Vectors, Tokens | None]:
        pooled, compressed = self._encoder.pooled(token_ids, projection)
        if self._normalise:
            pooled = torch.nn.functional.normalize(pooled, dim=1)
        vectors: Vectors = pooled.cpu().numpy()
        return vectors, None if compressed is None else compressed.cpu().numpy()


def _open_encoder(folder: Path, cls: bool, format_: torch.dtype, device: torch.device) -> Encoder:
    lean = open_bert(folder, cls=cls, number_format=format_, device=device)
    if lean is not None:
        return lean
    from serve_app.models.any_encoder import AnyEncoder  # imports transformers

    return AnyEncoder(folder, cls=cls, number_format=format_, device=device)
