"""Files of turns to write: JSON lines, in the form of conversation data sets or in that of the API.

Data-set form, one turn a line: `conversation_id, session, dia_id, speaker, text, timestamp`, optional `role`
(`user` if absent), `image_caption` and `place`. The conversation is the user, so that its sessions are searched
together; a session's id is `<conversation_id>/<session>`. API form: `user_id`, `session_id`, and a turn as the API
takes it, or as an export gives it: then with facts, and a last line that shows that it is whole.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from datetime import datetime
from pathlib import Path
from typing import NamedTuple

from serve_app.client.http import Json
from serve_app.errors import InvalidRequest

SET_BY_SERVICE = ("user_id", "session_id", "kind", "seq", "expires_at", "field_expires_at", "arrived_at", "rev")
"""Fields of an exported turn that a new write gets anew, or in another form."""

FACT_FIELDS = ("value", "entity_class", "expires_at")
"""Of an exported fact: what setting it takes."""

BATCH_CHARACTERS = 1 << 20
"""Turns that are sent together have about so much text, however many they are: a body has its bound."""


class Entry(NamedTuple):
    """One turn, whose it is, and the line of the file that it is from."""

    user: str
    session: str
    turn: Json
    line: int = 0
    exported: bool = False


class FactEntry(NamedTuple):
    """One fact, and the line of the file that it is from."""

    user: str
    key: str
    fact: Json
    line: int = 0


class Ending(NamedTuple):
    """The last line of an export: how many lines of each kind came before."""

    turns: int
    facts: int


Item = Entry | FactEntry | Ending


def read_entries(path: Path) -> Iterator[Entry]:
    """The file's turns in order. Raises InvalidRequest with the line's number."""
    return (item for item in read_items(path) if isinstance(item, Entry))


def read_items(path: Path) -> Iterator[Item]:
    """All that the file holds, in order, but for summaries, which are made anew. Raises InvalidRequest likewise."""
    try:
        with path.open(encoding="utf-8", newline="\n") as lines:  # a text may hold other ends of lines
            for number, line in enumerate(lines, 1):
                if line.strip():
                    yield from (_placed(item, number) for item in items_of(line, f"{path}:{number}"))
    except (OSError, UnicodeDecodeError) as error:
        raise InvalidRequest(f"{path}: {error}") from error


def _placed(item: Item, line: int) -> Item:
    return item if isinstance(item, Ending) else item._replace(line=line)


def batches(entries: Iterable[Entry], size: int) -> Iterator[list[Entry]]:
    """Neighbouring turns of one session, at most `size` together, and no more than one if they are large."""
    batch: list[Entry] = []
    characters = 0
    for entry in entries:
        length = len(json.dumps(entry.turn))
        full = len(batch) == size or characters + length > BATCH_CHARACTERS
        if batch and (full or entry[:2] != batch[0][:2]):
            yield batch
            batch, characters = [], 0
        batch.append(entry)
        characters += length
    if batch:
        yield batch


def items_of(line: str, where: str) -> list[Item]:
    """What one line says: nothing, where it is of no use here. Raises InvalidRequest, naming `where`."""
    try:
        row = json.loads(line.rstrip())
        if not isinstance(row, dict):
            raise InvalidRequest(f"{where}: not a JSON object")
        return _of_kind(row)
    except KeyError as error:
        raise InvalidRequest(f"{where}: the field {error} is missing") from error
    except json.JSONDecodeError as error:
        raise InvalidRequest(f"{where}: no JSON, column {error.colno}: {error.msg}") from error
    except (TypeError, ValueError) as error:
        raise InvalidRequest(f"{where}: {error}") from error


def _of_kind(row: Json) -> list[Item]:
    """Data sets have kinds of their own; what is neither turn nor fact is passed over."""
    match row.get("kind", "turn"):
        case "turn" | "a" | "b":
            return [_of_data_set(row) if "conversation_id" in row else _of_api(row)]
        case "fact":
            return [FactEntry(row["user_id"], row["key"], {name: row[name] for name in FACT_FIELDS if name in row})]
        case "end":
            return [Ending(row["turns"], row["facts"])]
        case _:
            return []


def _of_api(row: Json) -> Entry:
    turn = {name: value for name, value in row.items() if name not in SET_BY_SERVICE}
    if row.get("expires_at"):
        turn["ttl_seconds"] = _seconds_between(row["created_at"], row["expires_at"])
    if row.get("field_expires_at"):
        ends = row["field_expires_at"].items()
        turn["field_ttl"] = {path: _seconds_between(row["created_at"], at) for path, at in ends}
    return Entry(row["user_id"], row["session_id"], turn, exported="arrived_at" in row)


def _seconds_between(created_at: str, expires_at: str) -> int:
    """A turn's life counts from when it was made, in whole seconds: so it ends when the exported one does."""
    return round((datetime.fromisoformat(expires_at) - datetime.fromisoformat(created_at)).total_seconds())


def _of_data_set(row: Json) -> Entry:
    caption = row.get("image_caption")
    turn = {
        "id": row["dia_id"],
        "role": row.get("role", "user"),
        "speaker": row["speaker"],
        "content": row["text"] + (f" [shares a photo: {caption}]" if caption else ""),
        "created_at": _with_offset(row["timestamp"]),
    }
    if row.get("place"):
        turn["metadata"] = {"place": row["place"]}
    return Entry(row["conversation_id"], f"{row['conversation_id']}/{row['session']}", turn)


def _with_offset(timestamp: str) -> str:
    """Data sets often write local times without an offset: taken as UTC."""
    time_of_day = timestamp.partition("T")[2]
    return timestamp if timestamp.endswith("Z") or "+" in time_of_day or "-" in time_of_day else timestamp + "Z"
