"""What one part of a source holds, ready to be written: turns and facts by lane, and what could not be read.

Pure but for reading the file. A user belongs to one lane, so that all of a user's turns are written by one task, in the
order of the files. A turn without id gets one of what it says and where it stands: the same file again stores nothing
twice.
"""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Literal, NamedTuple

import msgspec

from jobs.mem0_export import FACT_FIELD, Over, memories_of, placed
from jobs.source_parts import Line, Part, lines_in
from serve_app.client.conversations import Ending, Entry, FactEntry, Item, items_of
from serve_app.client.http import Json
from serve_app.errors import InvalidRequest, MemstrataError

Form = Literal["turns", "mem0"]

LANES = 4
PAYLOAD_BYTES = 1 << 20
"""Of turns of one lane that travel together."""

LETTERS_A_PART_MAX = 1_000
"""Lines of one part that are named one by one where they cannot be read; more are counted."""

ID_DIGEST_BYTES = 12


class Reading(msgspec.Struct, frozen=True):
    """How lines are read."""

    form: Form = "turns"
    lanes: int = LANES
    user: str | None = None
    """Whose all of it becomes."""
    fact_field: str = FACT_FIELD


class Ordered(NamedTuple):
    """A turn (`key` empty) or a fact to be written, and where it is from."""

    user: str
    session: str
    key: str
    body: Json
    file: str
    offset: int

    @property
    def packed(self) -> bytes:
        """One line of JSON, which takes integers of any size. Raises InvalidRequest for what is no text."""
        try:
            return json.dumps(self, ensure_ascii=False).encode()
        except UnicodeEncodeError as error:
            raise InvalidRequest("a lone surrogate") from error


def unpacked(payload: bytes) -> list[Ordered]:
    return [Ordered(*json.loads(line)) for line in payload.split(b"\n")]


class Letter(msgspec.Struct, frozen=True, omit_defaults=True):
    """A dead letter: what was not brought over, and why. It names the place, not what stands there."""

    file: str
    offset: int
    code: str
    reason: str
    id: str = ""


class Tally(msgspec.Struct, frozen=True):
    """What a part held, beside what is to be written."""

    turns: int = 0
    facts: int = 0
    expired: int = 0
    unread: int = 0
    """Lines, or memories, that could not be read; the first of them are among the letters."""
    exported: int = 0
    told_turns: int = 0
    """What the last lines of exports say that there is."""
    told_facts: int = 0
    letters: tuple[Letter, ...] = ()


class Row(msgspec.Struct, frozen=True):
    """Of one part: a lane's next turns and facts, or at its end (lane -1) its tally."""

    part: int
    lane: int
    payload: bytes


TALLY_LANE = -1


def rows_of(part: Part, reading: Reading) -> Iterator[Row]:
    """A bounded number of bytes at a time."""
    found = _Found(part, reading)
    for line in lines_in(part):
        for number, make in enumerate(found.makers(line)):
            full = found.take(line, number, make)
            if full is not None:
                yield full
    yield from found.rest()


class _Found:
    """What has been found in a part, and not been given yet."""

    def __init__(self, part: Part, reading: Reading) -> None:
        self._part, self._reading = part, reading
        self._now = datetime.now(UTC)
        self._held: dict[int, list[bytes]] = {}
        self._sizes: Counter[int] = Counter()
        self._counts: Counter[str] = Counter()
        self._letters: list[Letter] = []

    def makers(self, line: Line) -> Iterator[Callable[[], Item]]:
        """Of each thing that a line holds what makes it, or raises: one that cannot be read leaves the others alone."""
        try:
            if line.text is None:
                raise InvalidRequest("a line that is too long")
            if self._reading.form == "mem0":
                for memory in memories_of(line.text):
                    yield partial(placed, memory, self._now, self._reading.fact_field)
            else:
                for item in items_of(_text(line.text), f"byte {line.offset}"):
                    yield partial(_itself, item)
        except MemstrataError as error:
            self._refuse(line, error)

    def take(self, line: Line, number: int, make: Callable[[], Item]) -> Row | None:
        """Gives a lane's rows once enough of them have gathered."""
        try:
            item = make()
            if isinstance(item, Ending):
                self._counts.update(told_turns=item.turns, told_facts=item.facts)
                return None
            order = self._order(item, line.offset, number)
            packed = order.packed
        except MemstrataError as error:
            self._refuse(line, error)
            return None
        self._counts.update(("facts" if order.key else "turns",))
        self._counts["exported"] += isinstance(item, Entry) and item.exported
        lane = lane_of(order.user, self._reading.lanes)
        self._held.setdefault(lane, []).append(packed)
        self._sizes[lane] += len(packed)
        return self._row(lane) if self._sizes[lane] >= PAYLOAD_BYTES else None

    def rest(self) -> Iterator[Row]:
        yield from [self._row(lane) for lane in list(self._held)]
        tally = Tally(**self._counts, letters=tuple(self._letters))
        yield Row(self._part.number, TALLY_LANE, msgspec.msgpack.encode(tally))

    def _row(self, lane: int) -> Row:
        del self._sizes[lane]
        return Row(self._part.number, lane, b"\n".join(self._held.pop(lane)))

    def _refuse(self, line: Line, error: MemstrataError) -> None:
        expired = isinstance(error, Over)
        self._counts["expired" if expired else "unread"] += 1
        if not expired and len(self._letters) < LETTERS_A_PART_MAX:
            self._letters.append(Letter(self._part.path, line.offset, error.code, str(error)))

    def _order(self, item: Entry | FactEntry, offset: int, number: int) -> Ordered:
        user = self._reading.user or item.user
        if isinstance(item, FactEntry):
            return Ordered(user, "", item.key, item.fact, self._part.path, offset)
        turn = item.turn if item.turn.get("id") else {**item.turn, "id": _made_id(item, offset, number, self._part)}
        return Ordered(user, item.session, "", turn, self._part.path, offset)


def lane_of(user: str, lanes: int) -> int:
    digest = hashlib.blake2b(user.encode("utf-8", "surrogatepass"), digest_size=8).digest()
    return int.from_bytes(digest, "little") % lanes


def _itself(item: Item) -> Item:
    return item


def _text(line: bytes) -> str:
    try:
        return line.decode()
    except UnicodeDecodeError as error:
        raise InvalidRequest("no text in UTF-8") from error


def _made_id(item: Entry, offset: int, number: int, part: Part) -> str:
    """Of the file's name, the place in it, and what stands there."""
    said = [Path(part.path).name, offset, number, item.user, item.session, item.turn]
    written = json.dumps(said, sort_keys=True, ensure_ascii=True).encode()
    return f"import-{hashlib.blake2b(written, digest_size=ID_DIGEST_BYTES).hexdigest()}"
