"""The matrices by which encoders shorten the vectors of their tokens, one file for each encoder that has one.

A matrix belongs to the weights of one model and revision. `python -m jobs.token_projection` makes the file.
"""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from serve_app.ports import Tokens

__all__ = ["compressed", "projection_file", "token_projection"]

FOLDER = Path(__file__).parent / "projections"


def projection_file(model: str, revision: str) -> Path:
    return FOLDER / f"{re.sub(r'[^A-Za-z0-9]+', '_', f'{model}_{revision}')}.npy"


def token_projection(model: str, revision: str) -> NDArray[np.float32] | None:
    """Shape (width, TOKEN_DIMENSION); None for an encoder for which none was fitted."""
    path = projection_file(model, revision)
    if not path.is_file():
        return None
    matrix: NDArray[np.float16] = np.load(path, allow_pickle=False)
    return matrix.astype(np.float32)


def compressed(rows: NDArray[np.float32]) -> Tokens:
    """`ports.Tokens` from vectors of any length, shape (tokens, TOKEN_DIMENSION)."""
    length = np.maximum(np.linalg.norm(rows, axis=1, keepdims=True), 1e-6)
    rounded: Tokens = np.rint(127 * rows / length).astype(np.int8)
    return rounded
