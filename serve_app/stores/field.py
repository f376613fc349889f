"""All turns of one large user as a single range of ordinals: those of the volumes, then those of the block after them.

Owns which of them name what, and BM25 over that range: the statistics are those of all turns, as in `LexicalIndex`,
whatever part a turn lies in.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence, Set
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from serve_app.core import Turn
from serve_app.entities.recognise import in_turn, speaker_key
from serve_app.stores.bm25 import Floats, norms_of, worth_of
from serve_app.stores.columns import NO_SPEAKER, Columns
from serve_app.stores.lexical import NO_TURN, QUERY_TERMS_MAX
from serve_app.stores.packing import turn_text
from serve_app.stores.postings import hashed
from serve_app.stores.terms import index_terms
from serve_app.stores.volume import Volume

POSTINGS_A_QUERY: Final = 2_000_000
"""Of a query whose words stand in more turns than that together, the rarest words count: some 30 ms of adding up."""

FEW: Final = 20
"""Windows of a term that fewer than one turn in so many holds are sorted out, not looked for everywhere."""

Ordinals = NDArray[np.int64]


class Base(NamedTuple):
    """The turns of the volumes, in order of seq. Shape (n,) each."""

    volumes: tuple[Volume, ...]
    starts: tuple[int, ...]
    """The first ordinal of each volume."""
    seqs: NDArray[np.int64]
    alive: NDArray[np.bool_]
    muted: NDArray[np.bool_] | None
    """Turns whose words and vectors in the volumes do not count: they have gone, or were edited since."""
    edited: Mapping[str, tuple[Ordinals, Floats]]
    """The words of edited turns: ordinals and occurrences."""
    lengths: Floats
    previous: Ordinals
    following: Ordinals
    edited_names: Mapping[str, Ordinals]
    """What edited turns name."""
    times: NDArray[np.int64]
    days: NDArray[np.int32]
    speakers: NDArray[np.int32]
    names: tuple[str, ...]
    """Of their speakers."""
    speaker_keys: tuple[str, ...]
    """Of these by the name of an entity; empty where a speaker is no name."""

    def naming(self, key: str) -> list[Ordinals]:
        """The turns that name this entity, in no order."""
        found: list[Ordinals] = []
        wanted = hashed(key)
        for start, volume in zip(self.starts, self.volumes, strict=True):
            places, _ = volume.named.at(wanted)
            if len(places):
                found.append(places.astype(np.int64) + start)
        if self.muted is not None:
            found = [part[~self.muted[part]] for part in found]
        if key in self.edited_names:
            found.append(self.edited_names[key])
        return found


class NamedInAll:
    """What all turns name, as `EntityIndex` says it of those in memory."""

    def __init__(self, field: Field) -> None:
        self._field = field

    def known(self, keys: Iterable[str], n: int) -> Set[str]:
        """Those of these that any turn names, of the archived ones whenever it came; all are looked up at once, as most
        are no names.
        """
        wanted = list(keys)
        hashes = np.fromiter(map(hashed, wanted), np.uint64, len(wanted))
        columns = self._field.columns
        found = set(columns.entities.known(wanted, columns.until(None)))
        for volume in self._field.base.volumes:
            found.update(wanted[at] for at in np.flatnonzero(volume.named.known(hashes)).tolist())
        found.update(self._field.base.edited_names.keys() & set(wanted))
        return found if self._field.base.muted is None else {key for key in found if len(self.ordinals(key))}

    def ordinals(self, key: str, n: int | None = None) -> Ordinals:
        """The turns before ordinal n, or all, that name this."""
        field = self._field
        held = field.columns.entities.ordinals(key, len(field.columns.seqs))
        newest = np.array([one for one in held if one >= field.first], np.int64) - field.first + field.start
        found = np.concatenate((*field.base.naming(key), newest))
        return found if n is None else found[found < n]


class Field(NamedTuple):
    """Shape (n,) each. `start` is the ordinal of the first turn of the block after the volumes, `first` its own there.

    `previous` and `following` give n for no neighbour.
    """

    base: Base
    columns: Columns
    start: int
    first: int
    seqs: NDArray[np.int64]
    alive: NDArray[np.bool_]
    alive_count: int
    previous: Ordinals
    following: Ordinals
    norms: Floats
    window_norms: Floats

    @property
    def size(self) -> int:
        return len(self.seqs)

    @property
    def entities(self) -> NamedInAll:
        return NamedInAll(self)

    def speaker_keys_until(self, n: int) -> frozenset[str]:
        """Of all who speak: whether one spoke among the first n turns only is not known of the archived ones."""
        return self.columns.speaker_keys_until(self.columns.until(None)).union(self.base.speaker_keys)

    def holders(self, term: str) -> tuple[Ordinals, Floats]:
        """The turns that hold a term, each once, and how often."""
        ordinals: list[Ordinals] = []
        counts: list[Floats] = []
        for start, volume in zip(self.base.starts, self.base.volumes, strict=True):
            places, times = volume.postings.of(term)
            if len(places):
                ordinals.append(places.astype(np.int64) + start)
                counts.append(times.astype(np.float32))
        if self.base.muted is not None and ordinals:
            kept = [~self.base.muted[part] for part in ordinals]
            ordinals = [part[keep] for part, keep in zip(ordinals, kept, strict=True)]
            counts = [part[keep] for part, keep in zip(counts, kept, strict=True)]
        if term in self.base.edited:
            ordinals.append(self.base.edited[term][0])
            counts.append(self.base.edited[term][1])
        newest, often = self.columns.lexical.holders(term, self.first)
        ordinals.append(newest - self.first + self.start)
        counts.append(often)
        return np.concatenate(ordinals), np.concatenate(counts)

    def scores(self, terms: Iterable[str]) -> tuple[Floats, Floats]:
        """As `LexicalIndex.scores`: of each turn's own words, and of those of its window."""
        own, window = np.zeros(self.size, np.float32), np.zeros(self.size, np.float32)
        for times, ordinals, counts in self._counting(Counter(terms)):
            worth = np.float32(times * self._worth(len(ordinals)))
            own[ordinals] += worth * counts / (counts + self.norms[ordinals])
            self._add_windows(window, times, ordinals, counts)
        return own, window

    def _add_windows(self, window: Floats, times: int, ordinals: Ordinals, counts: Floats) -> None:
        """What stands in a turn stands in its neighbours' windows, too; the last cell is that of no neighbour."""
        cells = np.zeros(self.size + 1, np.float32)
        cells[ordinals] = counts
        before, after = self.previous[ordinals], self.following[ordinals]
        for beside in (before, after):
            cells[beside] += counts  # a turn is before, or after, one other at most
        if len(ordinals) * FEW < self.size:
            at = distinct(np.concatenate((ordinals, before, after)))
            at = at[at < self.size]
        else:
            at = np.flatnonzero(cells[: self.size] > 0)
        worth = np.float32(times * self._worth(len(at)))
        held = cells[at]
        window[at] += worth * held / (held + self.window_norms[at])

    def _worth(self, holding: int) -> float:
        return float(worth_of(self.alive_count, np.array([holding]))[0])

    def _counting(self, terms: Counter[str]) -> list[tuple[int, Ordinals, Floats]]:
        """Of the terms that are held the rarest, as many as are read: how often each is asked for, and its holders."""
        held = {term: self.holders(term) for term in terms}
        rarest = sorted((term for term in held if len(held[term][0])), key=lambda term: (len(held[term][0]), term))
        counted: list[tuple[int, Ordinals, Floats]] = []
        read = 0
        for term in rarest[:QUERY_TERMS_MAX]:
            read += len(held[term][0])
            if read > POSTINGS_A_QUERY and counted:
                break
            counted.append((terms[term], *held[term]))
        return counted

    def coverage(self, terms: Iterable[str]) -> Floats:
        """Share of the distinct terms that each turn holds, 0 to 1."""
        found, wanted = np.zeros(self.size, np.float32), dict.fromkeys(terms)
        for term in wanted:
            found[self.holders(term)[0]] += np.float32(1 / len(wanted))
        return found

    def rarities(self, terms: Sequence[str], limit: int | None = None) -> Floats:
        """As `LexicalIndex.rarities`, among all turns whatever the limit."""
        held = np.array([len(self.holders(term)[0]) for term in terms], np.float64)
        return np.asarray(np.log1p((self.alive_count - held + 0.5) / (held + 0.5)), np.float32)

    def times(self) -> NDArray[np.int64]:
        newest = self.columns.times(len(self.columns.seqs))[self.first :]
        return np.concatenate((self.base.times, newest))

    def days(self) -> NDArray[np.int32]:
        newest = np.asarray(self.columns.days(len(self.columns.seqs)))[self.first :]
        return np.concatenate((self.base.days, newest))

    def speakers(self, terms: set[str]) -> Floats | None:
        """1 where the speaker's name has one of the terms; None where no name has."""
        before = [not terms.isdisjoint(index_terms(name)) for name in self.base.names]
        after = [not terms.isdisjoint(name) for name in self.columns.speaker_terms]
        if not any(before) and not any(after):
            return None
        newest = self.columns.speaker_of(len(self.columns.seqs))[self.first :]
        parts = [np.array([*named, False], np.float32) for named in (before, after)]
        return np.concatenate((parts[0][self.base.speakers], parts[1][newest]))


def distinct(ordinals: Ordinals) -> Ordinals:
    """Ascending, each once; NumPy's own hashes them first, which takes longer."""
    ordered = np.sort(ordinals)
    return ordered[np.append(True, ordered[1:] != ordered[:-1])] if len(ordered) else ordered


def base_of(volumes: Sequence[Volume], living: NDArray[np.int64], revised: Mapping[int, Turn]) -> Base:
    """`living`: seqs of the turns that are there; `revised` those in a later state than the volumes'."""
    seqs = np.concatenate([volume.seqs for volume in volumes])
    starts = np.cumsum([0, *(len(volume.seqs) for volume in volumes)]).tolist()
    alive = np.isin(seqs, living, assume_unique=True)
    lengths = np.concatenate([volume.postings.lengths for volume in volumes])
    later = np.isin(seqs, np.fromiter(revised, np.int64, len(revised)))
    muted = ~alive | later
    edited = _edited(seqs, revised, lengths)
    lengths = np.where(alive, lengths, np.float32(0))
    sessions = np.concatenate([volume.sessions for volume in volumes])
    previous, following = _links(sessions, alive)
    names, speakers = _speakers(volumes)
    return Base(
        volumes=tuple(volumes),
        starts=tuple(starts[:-1]),
        seqs=seqs,
        alive=alive,
        muted=muted if muted.any() else None,
        edited=edited,
        edited_names=_edited_names(seqs, revised),
        lengths=lengths,
        previous=previous,
        following=following,
        times=np.concatenate([volume.times for volume in volumes]),
        days=np.concatenate([volume.days for volume in volumes]),
        speakers=speakers,
        names=names,
        speaker_keys=tuple(map(speaker_key, names)),
    )


def _edited(
    seqs: NDArray[np.int64], revised: Mapping[int, Turn], lengths: Floats
) -> Mapping[str, tuple[Ordinals, Floats]]:
    """The words of these turns where they are among the seqs. Sets their lengths."""
    gathered: dict[str, list[tuple[int, int]]] = {}
    for seq, turn in revised.items():
        at = int(np.searchsorted(seqs, seq))
        if at == len(seqs) or seqs[at] != seq:
            continue
        terms = index_terms(turn_text(turn))
        lengths[at] = len(terms)
        for term, count in Counter(terms).items():
            gathered.setdefault(term, []).append((at, count))
    return {
        term: (np.array([at for at, _ in held], np.int64), np.array([count for _, count in held], np.float32))
        for term, held in gathered.items()
    }


def _edited_names(seqs: NDArray[np.int64], revised: Mapping[int, Turn]) -> Mapping[str, Ordinals]:
    """The same of what these turns name."""
    gathered: dict[str, list[int]] = {}
    for seq, turn in revised.items():
        at = int(np.searchsorted(seqs, seq))
        if at < len(seqs) and seqs[at] == seq:
            for key in {one.key for one in in_turn(turn)}:
                gathered.setdefault(key, []).append(at)
    return {key: np.array(held, np.int64) for key, held in gathered.items()}


def _links(sessions: NDArray[np.int64], alive: NDArray[np.bool_]) -> tuple[Ordinals, Ordinals]:
    """The living turn before and after each one in its session, or NO_TURN."""
    previous, following = np.full(len(sessions), NO_TURN, np.int64), np.full(len(sessions), NO_TURN, np.int64)
    there = np.flatnonzero(alive)
    order = there[np.argsort(sessions[there], kind="stable")]
    same = sessions[order[1:]] == sessions[order[:-1]]
    previous[order[1:][same]] = order[:-1][same]
    following[order[:-1][same]] = order[1:][same]
    return previous, following


def _speakers(volumes: Sequence[Volume]) -> tuple[tuple[str, ...], NDArray[np.int32]]:
    names = tuple(dict.fromkeys(name for volume in volumes for name in volume.names))
    place = {name: at for at, name in enumerate(names)}
    of_volumes = []
    for volume in volumes:
        mapped = np.array([*(place[name] for name in volume.names), NO_SPEAKER], np.int32)
        of_volumes.append(mapped[volume.speakers])
    return names, np.concatenate(of_volumes)


def field_of(base: Base, columns: Columns) -> Field:
    """The volumes' turns with those of the block after them."""
    last, start = int(base.seqs[-1]), len(base.seqs)
    seqs = np.array(columns.seqs, np.int64)
    first = int(np.searchsorted(seqs, last, "right"))
    lengths, before = columns.lexical.shape(first)
    previous = _of_newest(before, seqs, base, start, first)
    following = np.concatenate((base.following, np.full(len(previous), NO_TURN, np.int64)))
    followed = np.flatnonzero(previous != NO_TURN)
    following[previous[followed]] = followed + start
    alive = np.concatenate((base.alive, columns.alive(len(seqs))[first:]))
    size, count = start + len(previous), int(alive.sum())
    all_lengths = np.concatenate((base.lengths, lengths))
    padded = np.append(all_lengths, np.float32(0))
    before_all = np.concatenate((base.previous, previous))
    before_all, after_all = (np.where(one < 0, size, one) for one in (before_all, following))
    around = all_lengths + padded[before_all] + padded[after_all]
    return Field(
        base=base,
        columns=columns,
        start=start,
        first=first,
        seqs=np.concatenate((base.seqs, seqs[first:])),
        alive=alive,
        alive_count=count,
        previous=before_all,
        following=after_all,
        norms=norms_of(all_lengths, count),
        window_norms=norms_of(around, count),
    )


def _of_newest(before: Ordinals, seqs: NDArray[np.int64], base: Base, start: int, first: int) -> Ordinals:
    """The turns before the block's newest, whose own ordinals in the block are given, as ordinals of all."""
    found = np.where(before >= first, before - first + start, before)
    older = np.flatnonzero((before >= 0) & (before < first))
    if len(older):
        wanted = seqs[before[older]]
        places = np.minimum(np.searchsorted(base.seqs, wanted), len(base.seqs) - 1)
        found[older] = np.where(base.seqs[places] == wanted, places, NO_TURN)
    return found
