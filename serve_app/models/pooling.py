"""One vector a text from the hidden states of its tokens, and a short one of each token. Compiled by TorchScript as
well as called as it is.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional

__all__ = ["compress", "pool"]


def pool(hidden: Tensor, real: Tensor | None, cls: bool) -> Tensor:
    """Shape (texts, width) from (texts, length, width), in float32.

    `real`, shape (texts, length), marks tokens that are no padding; None where all of them are real.
    """
    if cls:
        return hidden[:, 0].float()
    if real is None:
        return hidden.float().mean(1)
    weights = real.unsqueeze(2).float()
    return (hidden.float() * weights).sum(1) / weights.sum(1)


def compress(hidden: Tensor, projection: Tensor) -> Tensor:
    """`ports.Tokens`, shape (tokens, projection.size(1)), from (tokens, width): projected, length 127, int8."""
    short = hidden.float().mm(projection)
    return (functional.normalize(short, dim=1) * 127.0).round().to(torch.int8)
