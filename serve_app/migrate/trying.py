"""Whether an encoder that is new here does what is asked of every encoder. Loads it."""

from __future__ import annotations

import numpy as np

from serve_app.core import EmbeddingVersion
from serve_app.errors import EncoderUnavailable, InvalidRequest, MemstrataError
from serve_app.models.encoders import Encoders

LOAD_S = 300.0
"""An encoder may take so long to load and to read the first texts."""

TEXTS = ("Caroline (8 May 2023): we sail on Tuesday", "a second text, longer than the first: 船は火曜日に出る")
LENGTH_TOLERANCE = 1e-2
"""Of vectors that are to be of length 1; they are kept in half precision anyway."""

AGREEMENT = 1e-3
"""Between two vectors of one text, in each component."""


def tried(encoders: Encoders, version: EmbeddingVersion) -> None:
    """Raises InvalidRequest for vectors that cannot be used, EncoderUnavailable where there are none."""
    try:
        once, again = (encoders.passages(version.name, TEXTS).result(LOAD_S).vectors for _ in range(2))
    except MemstrataError:
        raise
    except Exception as error:
        raise EncoderUnavailable(f"the encoder gives no vectors: {str(error) or type(error).__name__}") from error
    if once.shape != (len(TEXTS), version.dimension):
        raise InvalidRequest(f"the encoder's vectors are of {once.shape[-1]} dimensions, not {version.dimension}")
    if not np.isfinite(once).all():
        raise InvalidRequest("the encoder's vectors are no numbers")
    lengths = np.linalg.norm(once, axis=1)
    if np.abs(lengths - 1.0).max() > LENGTH_TOLERANCE:
        raise InvalidRequest(f"the encoder's vectors are of length {lengths.max():.3g}, not 1: set normalise")
    if np.abs(once - again).max() > AGREEMENT:
        raise InvalidRequest("the encoder gives another vector for the same text each time")
