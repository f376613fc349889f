"""One vector a text from the hidden states of its tokens. Compiled by TorchScript as well as called as it is."""

from __future__ import annotations

from torch import Tensor

__all__ = ["pool"]


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
