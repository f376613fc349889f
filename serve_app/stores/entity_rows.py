"""The entities of a turn as one text, for the table's column: the number of the rules, then a line for each.

No line for a name as it is written: that is read in the turn. What other rules recognised is not known here, and nor is
what a table of an earlier release lacks: whoever asks looks into the turn then.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from serve_app.entities.values import CLASSES, RULES, Entity, EntityClass

_HEAD: Final = str(RULES)
_SIGN_OF: Final[dict[EntityClass, str]] = {name: chr(ord("a") + place) for place, name in enumerate(CLASSES)}
_CLASS_OF: Final = {sign: name for name, sign in _SIGN_OF.items()}


def packed(entities: Iterable[Entity]) -> str:
    return "\n".join((_HEAD, *(_SIGN_OF[one.kind] + one.key for one in entities)))


def unpacked(text: str | None) -> list[Entity] | None:
    """With empty names; None where the turn has to be looked into."""
    if text is None:
        return None
    head, *lines = text.split("\n")
    return [Entity("", _CLASS_OF[line[0]], line[1:]) for line in lines] if head == _HEAD else None


class Named(NamedTuple):
    """One entity of one class in many rows: which seqs, in order."""

    key: str
    kind: EntityClass
    seqs: NDArray[np.int64]


def each_named(seqs: NDArray[np.int64], column: pa.ChunkedArray) -> Iterator[Named]:
    """What the rows name, of rows that are `known`. Column by column: a user may have hundreds of thousands."""
    lines = pc.split_pattern(column.combine_chunks(), "\n")
    at, said = np.asarray(pc.list_parent_indices(lines)), pc.list_flatten(lines).dictionary_encode()
    codes, of_row = np.asarray(said.indices), seqs[at]
    order = np.lexsort((of_row, codes))
    starts = np.searchsorted(codes[order], np.arange(len(said.dictionary) + 1))
    for line, start, end in zip(said.dictionary.to_pylist(), starts.tolist(), starts[1:].tolist(), strict=False):
        if line != _HEAD:
            yield Named(line[1:], _CLASS_OF[line[0]], of_row[order[start:end]])


def known(column: pa.ChunkedArray) -> NDArray[np.bool_]:
    """Of each row whether it says what its turn names, by these rules."""
    ours = pc.or_(pc.equal(column, _HEAD), pc.starts_with(column, f"{_HEAD}\n"))
    return np.asarray(np.asarray(pc.fill_null(ours, False)), np.bool_)


def surely_not(column: pa.ChunkedArray, keys: Iterable[str]) -> NDArray[np.bool_]:
    """Of each row whether its turn surely does not name all of these: what a substring tells, without a look at any."""
    lacking = np.zeros(len(column), np.bool_)
    for key in keys:
        lacking |= ~np.asarray(pc.fill_null(pc.match_substring(column, key), True))
    return lacking & known(column)
