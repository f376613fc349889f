"""What one pass of a backfill is to do, and with what: goes to every process that works on it."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple

from jobs.reading import Stretch
from serve_app.models.embed import EncoderOptions
from serve_app.ports import Embedder

if TYPE_CHECKING:
    from serve_app.backup.layout import Layout

Open = Callable[[EncoderOptions], Embedder]


class Work(NamedTuple):
    layout: Layout
    stretches: list[Stretch]
    through: dict[int, int]
    """Of each shard the seq up to which turns are to be embedded."""
    options: EncoderOptions
    version: str
    actors: int
    open_one: Open
