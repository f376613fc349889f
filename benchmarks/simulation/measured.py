"""Service times of one machine, as `calibrate.py` measures them and the model takes them. Times in seconds."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

import msgspec
import numpy as np

from serve_app.errors import InvalidRequest

KINDS = ("search", "context", "append", "lexical")
"""Of requests: a search and a context ask a query that is new, an append holds one turn."""

SPREAD = 64
"""Quantiles that stand for how one service time differs from the mean."""

Spread = tuple[float, ...]
"""Factors of mean 1; each as likely as any other."""

EVEN: Spread = (1.0,)


class Line(msgspec.Struct, frozen=True):
    """What a batch of some weight takes: `base_s + each_s * weight`."""

    base_s: float
    each_s: float

    def __call__(self, weight: float) -> float:
        return self.base_s + self.each_s * weight


class Calibration(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One process of the service: an interpreter that does one thing at a time, an encoder, and its shards' commits."""

    taken_on: str
    cores: int
    load: tuple[float, float]
    """Of the machine, before and after: processes that ran or waited for a core."""

    engine: str
    shards: int
    wire_s: float
    """Of an answer's way, which keeps nobody else waiting."""

    gateway_s: dict[str, float]
    """By kind: time of the interpreter, without encoder and commit."""

    before_part: dict[str, float]
    """By kind: how much of it comes before the encoder, or the commit."""

    gateway_spread: dict[str, Spread]
    query_tokens: float
    turn_tokens: float
    encoder: Line
    """Of a batch of texts, by their tokens."""

    encoder_spread: Spread
    handoff_s: float
    """To the encoder's thread and back, which keeps nobody else waiting."""

    batch_tokens_max: float
    commit: Line
    """Of a group commit, by its records."""

    commit_spread: Spread
    follow_s: float
    """Of a gateway's processor, for each record that another process wrote."""


def fitted(points: Sequence[tuple[float, float]]) -> Line:
    """The line of no negative part with the least relative error through (weight, seconds). Raises InvalidRequest."""
    if len({weight for weight, _ in points}) < 2 or min(seconds for _, seconds in points) <= 0:
        raise InvalidRequest("a line needs two different weights, and times above 0")
    weights, seconds = np.array(points).T
    both, *_ = np.linalg.lstsq(np.stack([1 / seconds, weights / seconds], axis=1), np.ones_like(seconds))
    if both.min() >= 0:
        return Line(float(both[0]), float(both[1]))
    if both[1] < 0:
        return Line(float((1 / seconds).sum() / (1 / seconds**2).sum()), 0.0)
    ratio = weights / seconds
    return Line(0.0, float(ratio.sum() / (ratio**2).sum()))


def spread_of(times: Sequence[float]) -> Spread:
    """Raises InvalidRequest where there are none."""
    if not times or min(times) <= 0:
        raise InvalidRequest("a spread needs times above 0")
    at = np.quantile(np.array(times), (np.arange(SPREAD) + 0.5) / SPREAD)
    return tuple(float(f"{factor:.4g}") for factor in at / at.mean())


def sampler(spread: Spread, source: random.Random) -> Callable[[], float]:
    """Draws of factors."""
    draw, size = source.random, len(spread)
    return lambda: spread[int(draw() * size)]


def read_calibration(path: Path) -> Calibration:
    """Raises InvalidRequest."""
    try:
        return msgspec.json.decode(path.read_bytes(), type=Calibration)
    except (OSError, msgspec.MsgspecError) as error:
        raise InvalidRequest(f"{path}: {error}") from error


class Quantiles(NamedTuple):
    p50_ms: float
    p95_ms: float
    p99_ms: float


def quantiles(seconds: Sequence[float]) -> Quantiles:
    at = np.quantile(np.array(seconds), (0.5, 0.95, 0.99)) if len(seconds) else np.zeros(3)
    return Quantiles(*(round(1e3 * float(one), 3) for one in at))
