"""The files of one table: small fragments merged, indexes brought up to date, deleted rows rewritten, versions dropped.

Goes through pylance, whose version is that of LanceDB's own engine: LanceDB's `optimize` cannot be told how large a
fragment may grow, nor to rewrite every fragment that holds a deleted row. Fragments of a bounded size keep each
rewrite bounded, whatever the size of the table: routine upkeep touches the small ones only, and a purge those that
hold deleted rows. One thread calls this, the one that merges; the commits it makes are the table's own, so a merge
of the same thread never meets one half done. The reader's handle has to look for the newest version after each.
"""

from __future__ import annotations

import datetime
from collections.abc import Mapping, Sequence
from itertools import takewhile
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import lance

FRAGMENT_ROWS = 32_768
"""Rows at which a fragment is full: some 40 MB of turns with their vectors, rewritten in about half a second."""

SMALL_FRAGMENTS_MAX = 24
"""Fragments that are not full which may gather before they are merged."""

COMPACTED_ROWS_MAX = 8 * FRAGMENT_ROWS
"""Rows that one round of upkeep rewrites at most; what is left waits for the next fold."""

ANY_SHARE = -1.0
"""Of deleted rows: a fragment that has none is rewritten, too."""

BATCH_ROWS = 1_024
"""Rows in memory at once while fragments are rewritten."""

LAG_ROWS = 512
"""Rows of which the indexes of owner, row and seq may not know yet: a user's first touch reads all of them."""

INDEX_CACHE_BYTES, METADATA_CACHE_BYTES = 16 << 20, 8 << 20


class TableFiles:
    """`uri` names the table's own folder."""

    def __init__(self, uri: str, options: Mapping[str, str]) -> None:
        self._uri = uri
        self._options = dict(options)

    def compact(self) -> bool:
        """Merge fragments that are not full, once enough have gathered, and rewrite some that hold dropped columns.

        Gives whether anything was rewritten.
        """
        gathered = _gathered(self._opened()) >= SMALL_FRAGMENTS_MAX
        if gathered:
            _rewrite(self._opened(), rows_max=COMPACTED_ROWS_MAX)
        return _rewrite_dropped(self._opened()) or gathered

    def index(self, names: Sequence[str]) -> None:
        """Let these indexes know of all rows."""
        self._opened().optimize.optimize_indices(index_names=list(names))

    def rewrite_deleted(self) -> None:
        """Write every fragment that holds a deleted row anew, without it, however few they are."""
        _rewrite(self._opened(), deleted_share=0.0)

    def drop_versions(self, kept_for: datetime.timedelta, *, unverified: bool = False) -> None:
        """Remove versions that are older, with the files that only they name.

        With `unverified` also files that no version names, and a version that somebody has tagged is an error: it
        would keep what has to go.
        """
        self._opened().cleanup_old_versions(
            kept_for, delete_unverified=unverified, error_if_tagged_old_versions=unverified
        )

    def _opened(self) -> lance.LanceDataset:
        """The newest version. Imported here: a service that only reads has no use for a second copy of the engine."""
        import lance

        return lance.dataset(
            self._uri,
            storage_options=self._options or None,
            index_cache_size_bytes=INDEX_CACHE_BYTES,
            metadata_cache_size_bytes=METADATA_CACHE_BYTES,
        )


def _gathered(dataset: lance.LanceDataset) -> int:
    """Newest fragments that are not full. An older one that its neighbours outgrew stays as it is."""
    newest_first = reversed(dataset.get_fragments())
    return sum(1 for _ in takewhile(lambda one: one.physical_rows < FRAGMENT_ROWS, newest_first))


def _rewrite_dropped(dataset: lance.LanceDataset) -> bool:
    """Rewrite fragments whose files hold columns that the table has no more, some of them at a time."""
    fields = {field.id() for field in dataset.lance_schema.fields()}
    clean = [one.fragment_id for one in dataset.get_fragments() if _fields(one) <= fields]
    if len(clean) == len(dataset.get_fragments()):
        return False
    _rewrite(dataset, rows_max=COMPACTED_ROWS_MAX, deleted_share=ANY_SHARE, without=clean)
    return True


def _fields(fragment: lance.LanceFragment) -> set[int]:
    return {field for file in fragment.metadata.files for field in file.fields}


def _rewrite(
    dataset: lance.LanceDataset,
    *,
    rows_max: int | None = None,
    deleted_share: float | None = None,
    without: Sequence[int] = (),
) -> None:
    """At most `rows_max` rows; fragments of which more than `deleted_share` is deleted, too, else more than a tenth.

    One thread and small batches: memory is bounded, and searches keep a core. Fragments of these ids stay as they are.
    """
    dataset.optimize.compact_files(
        target_rows_per_fragment=FRAGMENT_ROWS,
        materialize_deletions_threshold=deleted_share,
        max_source_rows=rows_max,
        num_threads=1,
        batch_size=BATCH_ROWS,
        excluded_fragment_ids=list(without),
    )
