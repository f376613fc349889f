"""Which queries of the past a gate asks: of each tenant a fair share, the same ones each time. Pure.

Golden queries come first, since it is known what answers them; at least a part is logged ones, which are what users ask
today. Who is drawn follows from the migration's id and the query's own, so that a gate that was killed asks the same.
"""

from __future__ import annotations

import hashlib
import heapq
import unicodedata
from collections import Counter
from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Final, NamedTuple, TypeVar

from serve_app.core import SECOND_US, Owner
from serve_app.memory.logged import Logged
from serve_app.memory.requests import AsOf
from serve_app.migrate.reach import Source
from serve_app.stores.golden_file import Golden

LOGGED_SHARE: Final = 0.25
"""Of the sample, where so many are kept."""

SCRIPT_CHARACTERS: Final = 256
"""So much of a query is looked at for its script."""

OTHER_SCRIPT: Final = "none"
JAPANESE, KANA = "Kana", ("HIRAGANA", "KATAKANA")
NAMES: Final = {"CJK": "Han"}
"""Of scripts whose characters are named otherwise in Unicode."""

T = TypeVar("T")


class Historical(NamedTuple):
    """One query of the past. `golden`: with the turns that answer it, where they are known."""

    owner: Owner
    text: str
    source: Source
    as_of: AsOf = AsOf()
    """What came later is not counted."""
    golden: Golden | None = None
    drawn_from: frozenset[int] = frozenset()
    """Seqs of turns that it took words from: it goes with them."""


def of_golden(tenant: str, golden: Golden) -> Historical:
    return Historical(Owner(tenant, golden.user), golden.query, "golden", moment(golden.as_of), golden)


def of_logged(logged: Logged) -> Historical:
    as_of = AsOf(time=logged.asked_for)
    return Historical(logged.owner, logged.query, "logged", as_of, None, logged.drawn_from)


def moment(as_of: str | int | None) -> AsOf:
    """As a golden query has it: it was checked when it came."""
    if as_of is None or isinstance(as_of, int):
        return AsOf(seq=as_of)
    state = as_of.partition("@")[0].upper()
    if "T" in state:
        return AsOf(time=round(datetime.fromisoformat(state).timestamp() * SECOND_US))
    return AsOf(seq=int(state.rpartition(":")[2]))


def parts(golden: int, logged: int, queries: int) -> tuple[int, int]:
    """How many of so many golden and logged ones are asked, `queries` at most in all."""
    of_log = min(logged, max(round(queries * LOGGED_SHARE), queries - golden))
    return min(golden, queries - of_log), of_log


def fair(counts: Mapping[str, int], total: int, seed: str) -> dict[str, int]:
    """How many of each tenant: as many of each as of any other that has so many."""
    shares: dict[str, int] = {}
    left = total
    fewest_first = sorted(counts, key=lambda tenant: (counts[tenant], draw(seed, tenant)))
    for place, tenant in enumerate(fewest_first):
        shares[tenant] = min(counts[tenant], left // (len(fewest_first) - place))
        left -= shares[tenant]
    return shares


def chosen(items: Iterable[tuple[str, T]], count: int, seed: str) -> list[T]:
    """So many of them, drawn by their ids."""
    return [item for _, item in heapq.nsmallest(count, items, key=lambda pair: draw(seed, pair[0]))]


def draw(seed: str, name: str) -> bytes:
    return hashlib.blake2b(f"{seed}\0{name}".encode("utf-8", "surrogatepass"), digest_size=8).digest()


def seed_of(migration: str) -> int:
    return int.from_bytes(draw(migration, "seed"), "little")


def script_of(text: str) -> str:
    """The script that most of its letters are of: "Latin", "Han", "Kana" (with or without Han), "Cyrillic", ..."""
    letters = [unicodedata.name(one, "").partition(" ")[0] for one in text[:SCRIPT_CHARACTERS] if one.isalpha()]
    counted = Counter(letters)
    if not counted:
        return OTHER_SCRIPT
    if any(counted[name] for name in KANA):
        return JAPANESE
    name = counted.most_common(1)[0][0]
    return NAMES.get(name, name.capitalize() or OTHER_SCRIPT)
