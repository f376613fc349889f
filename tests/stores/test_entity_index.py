"""The index of entities says what plain sets say, whatever was appended, changed, removed and cut off."""

from __future__ import annotations

import random

import pytest

from serve_app.entities.values import CLASSES, Entity
from serve_app.stores.entity_index import EntityIndex
from serve_app.stores.entity_rows import packed, unpacked

KEYS = ["paris", "ann", "zx81q", "2023-05-08", "上海", "b"]


class Plain:
    """The oracle: of each ordinal what it names."""

    def __init__(self) -> None:
        self.index = EntityIndex()
        self.named: dict[int, list[Entity]] = {}
        self.size = 0

    def check(self) -> None:
        assert dict(self.index.mentions()) == {
            key: mentions
            for key in KEYS
            if (
                mentions := [
                    (at, one.kind) for at in sorted(self.named) for one in _sorted(self.named[at]) if one.key == key
                ]
            )
        }
        for n in (0, self.size // 2, self.size):
            for key in KEYS:
                holding = [at for at in sorted(self.named) if at < n and any(one.key == key for one in self.named[at])]
                assert self.index.ordinals(key, n) == holding
                assert self.index.named_before(key, n) == bool(holding)
            both = [
                at for at in sorted(self.named) if at < n and {"paris", "ann"} <= {one.key for one in self.named[at]}
            ]
            assert self.index.holding_all(["paris", "ann"], n) == both


def _sorted(entities: list[Entity]) -> list[Entity]:
    return sorted(entities, key=lambda one: CLASSES.index(one.kind))


@pytest.mark.parametrize("seed", range(20))
def test_any_life_of_an_index(seed: int) -> None:
    chance, plain = random.Random(seed), Plain()

    def entities() -> list[Entity]:
        some = {(chance.choice(KEYS), chance.choice(CLASSES)) for _ in range(chance.randint(0, 4))}
        return [Entity("", kind, key) for key, kind in sorted(some)]

    for _ in range(60):
        act = chance.choice(["append"] * 6 + ["replace", "replace", "remove", "since"])
        there = sorted(plain.named)
        if act == "append":
            plain.named[plain.size] = entities()
            plain.index.append(plain.size, plain.named[plain.size])
            plain.size += 1
        elif act == "replace" and there:
            at = chance.choice(there)
            plain.named[at] = entities()
            plain.index.replace(at, plain.named[at])
        elif act == "remove" and there:
            going = chance.sample(there, chance.randint(1, min(3, len(there))))
            plain.index.remove(going)
            for at in going:
                del plain.named[at]
        elif act == "since" and plain.size > 5 and chance.random() < 0.3:
            first = chance.randrange(plain.size)
            plain.index = plain.index.since(first)
            plain.named = {at - first: held for at, held in plain.named.items() if at >= first}
            plain.size -= first
        plain.check()


def test_what_is_removed_leaves_nothing_behind() -> None:
    index = EntityIndex()
    index.append(0, [Entity("Paris", "place", "paris"), Entity("Ann", "name", "ann")])
    index.append(1, [Entity("Paris", "name", "paris")])
    index.remove([0, 1])
    assert len(index) == 0
    assert dict(index.mentions()) == {}


def test_a_column_says_what_was_recognised_and_by_which_rules() -> None:
    entities = [Entity("Paris", "place", "paris"), Entity("ZX-81Q", "code", "zx81q")]
    assert unpacked(packed(entities)) == [Entity("", "place", "paris"), Entity("", "code", "zx81q")]
    assert unpacked(packed([])) == []
    assert unpacked(None) is None
    assert unpacked("0\naparis") is None  # of other rules
