"""Which embedding version reads what, for whom, and since when. Pure.

A `Routing` chooses by script: a query is read by one version, a turn by as many as its owner's queries may ask. A
`VersionPlan` says which routing serves an owner, now or as of an earlier seq: during a migration there are two.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import Final

import msgspec

from serve_app.scripts import has_latin, has_other

EPOCHS_MAX: Final = 64
"""Changes of what serves whom that a store remembers; contexts as of a time before them are made as the oldest says."""


class Routing(msgspec.Struct, frozen=True):
    """Names of versions: `primary` reads Latin letters, `multilingual` any other script; they may be the same."""

    primary: str
    multilingual: str

    @classmethod
    def of(cls, names: Sequence[str]) -> Routing:
        """Of one version or two, the primary one first. Raises ValueError."""
        if not 1 <= len(names) <= 2:
            raise ValueError(f"{len(names)} encoders; one, or two")
        return cls(names[0], names[-1])

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys((self.primary, self.multilingual)))

    def of_query(self, text: str) -> str:
        """The version that is searched for this query."""
        return self.multilingual if has_other(text) else self.primary

    def of_turn(self, text: str, mixed: bool) -> tuple[str, ...]:
        """The versions that a turn gets vectors of, in the order of `names`.

        `mixed`: the owner's memory holds other scripts than Latin already, so that any of its turns may be asked for
        in one of them.
        """
        if self.multilingual == self.primary:
            return (self.primary,)
        other = has_other(text)
        primary = has_latin(text) or not other
        wanted = ((self.primary, primary), (self.multilingual, other or mixed))
        return tuple(name for name, needed in wanted if needed)

    def replaced(self, old: str, new: str) -> Routing:
        """With one version in the place of another."""
        return Routing(*(new if name == old else name for name in (self.primary, self.multilingual)))


class Choice(msgspec.Struct, frozen=True, omit_defaults=True):
    """Which configuration of the reranker or the compressor serves whom: `target` a share of the owners, `base` others.

    Named as `memory/configurations.py` names them; "" is the one that the settings have.
    """

    base: str = ""
    target: str = ""
    share: float = 0.0
    migration: str = ""
    """Whose target it is, as of an epoch."""

    def of_owner(self, owner: str) -> str:
        chosen = self.target != "" and drawn(self.migration, owner) < self.share
        return self.target if chosen else self.base


class Epoch(msgspec.Struct, frozen=True, omit_defaults=True):
    """What serves whom from a seq of each shard and a time on: `target` a share of the owners, `base` the others.

    The reranker and the compressor are chosen apart from the versions, each by a draw of its own.
    """

    base: Routing
    since: tuple[int, ...] = ()
    """By shard; of a shard that it does not name, from the beginning."""
    at: int = 0
    """Microseconds since the epoch."""
    number: int = 0
    """Counted from the first one: what is made by this one is named by it."""
    target: Routing | None = None
    share: float = 0.0
    migration: str = ""
    """Whose target it is: who belongs to the share is another draw in each."""
    reranker: Choice = Choice()
    compressor: Choice = Choice()

    def of_owner(self, owner: str) -> Routing:
        chosen = self.target is not None and drawn(self.migration, owner) < self.share
        return self.target if chosen and self.target is not None else self.base

    def begun(self, shard: int, seq: int) -> bool:
        return shard >= len(self.since) or self.since[shard] <= seq


class VersionPlan(msgspec.Struct, frozen=True):
    """`epochs`, oldest first, the last one in force; `held` names the versions that the store has vectors of.

    `named`: whether there may be more of them, so that contexts name the one that they were made by. A seq alone does
    not tell: of two contexts as of one seq, one may be made before a change and one after it.
    """

    epochs: tuple[Epoch, ...]
    held: tuple[str, ...] = ()
    named: bool = False

    @classmethod
    def of(cls, names: Sequence[str]) -> VersionPlan:
        """Of a store that has never migrated."""
        return cls((Epoch(Routing.of(names)),), tuple(names))

    @property
    def now(self) -> Epoch:
        return self.epochs[-1]

    def as_of_seq(self, shard: int, seq: int) -> Epoch:
        return _begun(self.epochs, shard, seq)

    def numbered(self, number: int, shard: int, seq: int) -> Epoch:
        """The epoch of this number; the oldest known, or the newest, where it is none of them."""
        number = min(max(number, self.epochs[0].number), self.now.number)
        return _begun([one for one in self.epochs if one.number == number] or self.epochs, shard, seq)

    def as_of_time(self, at: int) -> Epoch:
        return next((one for one in reversed(self.epochs) if one.at <= at), self.epochs[0])

    def holds(self, routing: Routing) -> bool:
        return set(routing.names) <= set(self.held)

    def followed_by(self, epoch: Epoch) -> VersionPlan:
        """With a new epoch in force."""
        return VersionPlan((*self.epochs, epoch)[-EPOCHS_MAX:], self.held, self.named)


def _begun(epochs: Sequence[Epoch], shard: int, seq: int) -> Epoch:
    """The newest that had begun."""
    return next((one for one in reversed(epochs) if one.begun(shard, seq)), epochs[0])


def drawn(migration: str, owner: str) -> float:
    """Where an owner falls in [0, 1) in a migration; the same on every machine."""
    digest = hashlib.blake2b(f"{migration}\0{owner}".encode("utf-8", "surrogatepass"), digest_size=8).digest()
    return int.from_bytes(digest, "little") / 2**64
