"""Which resident turns of one user name which entity: postings by key, like those of words in `lexical.py`.

A posting is a turn's ordinal with the class that the name has there. Names as they are written are not kept: they are
read in the turns again, so that nothing here outlives the text it came from. Not locked: the owner of the columns lets
one thread change it while no other reads.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left, insort
from collections.abc import Iterable, Iterator, Sequence, Set
from typing import Final

from serve_app.entities.values import CLASSES, Entity, EntityClass

_CLASS_BITS: Final = 4
_CLASS_MASK: Final = (1 << _CLASS_BITS) - 1
_CLASS_OF: Final[dict[EntityClass, int]] = {name: number for number, name in enumerate(CLASSES)}


class EntityIndex:
    def __init__(self) -> None:
        self._postings: dict[str, int | array[int]] = {}  # most names stand in one turn only: a bare int

    def __len__(self) -> int:
        """Distinct entities."""
        return len(self._postings)

    def named_before(self, key: str, n: int) -> bool:
        """Whether a turn before ordinal n names this."""
        held = self._postings.get(key)
        return held is not None and (held if isinstance(held, int) else held[0]) >> _CLASS_BITS < n

    def known(self, keys: Iterable[str], n: int) -> Set[str]:
        """Those of these that any turn before ordinal n names."""
        return {key for key in keys if self.named_before(key, n)}

    def append(self, ordinal: int, entities: Iterable[Entity]) -> None:
        """Take what a turn names whose ordinal is larger than all before."""
        for one in entities:
            posting = ordinal << _CLASS_BITS | _CLASS_OF[one.kind]
            held = self._postings.get(one.key)
            if held is None:
                self._postings[one.key] = posting
            elif isinstance(held, int):
                self._postings[one.key] = array("I", sorted((held, posting)))
            else:
                insort(held, posting)  # of one turn a name may have two classes, in any order

    def replace(self, ordinal: int, entities: Sequence[Entity]) -> None:
        """Give a turn other entities than it has. Walks all of the user's."""
        self.remove({ordinal})
        self.append(ordinal, entities)

    def remove(self, ordinals: Iterable[int]) -> None:
        """Take turns out; walks all entities once, so give all that go in one call."""
        going = set(ordinals)
        if not going:
            return
        for key, held in list(self._postings.items()):
            if isinstance(held, int):
                if held >> _CLASS_BITS in going:
                    del self._postings[key]
            else:
                self._keep(key, array("I", (one for one in held if one >> _CLASS_BITS not in going)))

    def since(self, first: int) -> EntityIndex:
        """The turns from ordinal `first` on as an index of their own, numbered from 0."""
        kept, shift = EntityIndex(), first << _CLASS_BITS
        for key, held in self._postings.items():
            postings = (held,) if isinstance(held, int) else held
            kept._keep(key, array("I", (one - shift for one in postings[bisect_left(postings, shift) :])))
        return kept

    def _keep(self, key: str, postings: array[int]) -> None:
        if not postings:
            self._postings.pop(key, None)
        else:
            self._postings[key] = postings if len(postings) > 1 else postings[0]

    def ordinals(self, key: str, n: int) -> list[int]:
        """The turns before ordinal n that name this, oldest first."""
        held = self._postings.get(key)
        postings = () if held is None else (held,) if isinstance(held, int) else held
        return list(dict.fromkeys(one >> _CLASS_BITS for one in postings if one >> _CLASS_BITS < n))

    def holding_all(self, keys: Iterable[str], n: int) -> list[int]:
        """The turns before ordinal n that name every one of these, oldest first."""
        held = [set(self.ordinals(key, n)) for key in keys]
        return sorted(set.intersection(*held)) if held else []

    def mentions(self) -> Iterator[tuple[str, list[tuple[int, EntityClass]]]]:
        """Every entity with the ordinals of the turns that name it, oldest first, and its class in each."""
        for key, held in self._postings.items():
            postings = (held,) if isinstance(held, int) else held
            yield key, [(one >> _CLASS_BITS, CLASSES[one & _CLASS_MASK]) for one in postings]
