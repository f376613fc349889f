"""An encoder of whatever architecture transformers can load. Importing transformers takes a second: only where needed.

Promises what `bert.Bert` promises, at the cost of padding: texts of one pass are as long as the longest.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import torch
from torch import Tensor
from transformers import AutoModel
from transformers.utils import logging as transformers_logging

from serve_app.errors import EncoderUnavailable
from serve_app.models.pooling import compress, pool

__all__ = ["AnyEncoder"]

CPU_PADDING_TOKENS, GPU_PADDING_TOKENS = 40, 65536
"""Padding at which a pass of its own is cheaper: on one core a pass costs about as much as 40 tokens."""

LENGTH_MULTIPLE = 8
"""Lengths are rounded up to it, for the same reason as `bert.HALF_MULTIPLE`."""

_no_progress_bar: Callable[[], None] = transformers_logging.disable_progress_bar


class AnyEncoder:
    """One encoder on one device."""

    def __init__(self, folder: Path, *, cls: bool, number_format: torch.dtype, device: torch.device) -> None:
        """Raises EncoderUnavailable where the folder holds no encoder that can be loaded."""
        _no_progress_bar()
        try:
            model = AutoModel.from_pretrained(folder, dtype=number_format, local_files_only=True)
        except (OSError, ValueError, RuntimeError) as error:
            raise EncoderUnavailable(f"the encoder in {folder} cannot be loaded: {error}") from error
        self._model, self._cls, self._device = model.to(device).eval(), cls, device
        self._pad_id = model.config.pad_token_id or 0
        self.padding_tokens = CPU_PADDING_TOKENS if device.type == "cpu" else GPU_PADDING_TOKENS

    @property
    def dimension(self) -> int:
        return int(self._model.config.hidden_size)

    def pooled(
        self, token_ids: Sequence[Sequence[int]], projection: Tensor | None = None
    ) -> tuple[Tensor, Tensor | None]:
        """As `forward.Encoder` has it."""
        lengths = np.array([len(ids) for ids in token_ids])
        real = np.arange(self._padded(int(lengths.max()))) < lengths[:, None]
        ids = np.full(real.shape, self._pad_id)
        ids[real] = np.concatenate(token_ids)
        mask = torch.from_numpy(real).to(self._device)
        read = torch.from_numpy(ids).to(self._device)
        hidden = self._model(input_ids=read, attention_mask=mask.long()).last_hidden_state
        return pool(hidden, mask, self._cls), None if projection is None else compress(hidden[mask], projection)

    def _padded(self, length: int) -> int:
        """The next multiple, within what the model can read."""
        return max(length, min(length + -length % LENGTH_MULTIPLE, int(self._model.config.max_position_embeddings)))
