"""Whose a hit is: looked up again on what came back, whatever was asked for.

Tables and indexes are asked for one owner's rows, by filters and by layout. Neither is trusted: a filter that a
library ignores, or an index that lags behind, must not show anyone what is another's. Every path out of a table goes
through `rows_of`, every path out of an index through `live_of`; what a table gives as a turn is checked against
the owner's own index of living turns, too (`Block.holds`).
"""

from __future__ import annotations

import logging
from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

_log = logging.getLogger(__name__)

OWNER = "owner"


def rows_of(found: pa.Table, *owners: str) -> pa.Table:
    """The rows that say themselves, in the column `owner`, that they are of one of these owners."""
    mine = pc.is_in(found[OWNER], value_set=pa.array(owners, pa.string()))
    if pc.all(mine, min_count=0).as_py():
        return found
    _log.error("a table gave %d rows that are another owner's; they are left out", pc.sum(pc.invert(mine)).as_py())
    return found.filter(mine)


def live_of(seqs: Sequence[int], wanted: NDArray[np.int64]) -> tuple[NDArray[np.intp], NDArray[np.bool_] | None]:
    """Where each of `wanted` stands in the owner's own ascending `seqs`; and, if not all do, which are there at all."""
    own = np.array(seqs, np.int64)
    places = np.searchsorted(own, wanted)
    if not len(own):
        return places, np.zeros(len(wanted), np.bool_)
    there = own[np.minimum(places, len(own) - 1)] == wanted
    if there.all():
        return places, None
    _log.error("an index gave %d rows that are not its owner's; they are left out", int((~there).sum()))
    return places, there
