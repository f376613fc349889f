"""Files of turns to write: JSON lines, in the form of conversation data sets or in that of the API.

Data-set form, one turn a line: `conversation_id, session, dia_id, speaker, text, timestamp`, optional `role`
(`user` if absent) and `image_caption`. The conversation is the user, so that its sessions are searched together;
a session's id is `<conversation_id>/<session>`. API form: `user_id`, `session_id`, and a turn as the API takes it.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

from serve_app.client.http import Json
from serve_app.errors import InvalidRequest

SET_BY_SERVICE = ("user_id", "session_id", "kind", "seq", "expires_at", "arrived_at", "rev")
"""Fields of an exported turn that a new write gets anew."""


class Entry(NamedTuple):
    """One turn, whose it is, and the line of the file that it is from."""

    user: str
    session: str
    turn: Json
    line: int = 0


def read_entries(path: Path) -> Iterator[Entry]:
    """The file's turns in order. Raises InvalidRequest with the line's number."""
    try:
        with path.open(encoding="utf-8") as lines:
            for number, line in enumerate(lines, 1):
                if line.strip():
                    yield from (entry._replace(line=number) for entry in _entry(line, f"{path}:{number}"))
    except (OSError, UnicodeDecodeError) as error:
        raise InvalidRequest(f"{path}: {error}") from error


def batches(entries: Iterable[Entry], size: int) -> Iterator[list[Entry]]:
    """Neighbouring turns of one session, at most `size` together."""
    batch: list[Entry] = []
    for entry in entries:
        if batch and (len(batch) == size or entry[:2] != batch[0][:2]):
            yield batch
            batch = []
        batch.append(entry)
    if batch:
        yield batch


def _entry(line: str, where: str) -> list[Entry]:
    try:
        row = json.loads(line.rstrip())
        if not isinstance(row, dict):
            raise InvalidRequest(f"{where}: not a JSON object")
        if row.get("kind", "turn") not in ("turn", "a", "b"):
            return []  # an export holds facts and summaries too
        return [_of_data_set(row) if "conversation_id" in row else _of_api(row)]
    except KeyError as error:
        raise InvalidRequest(f"{where}: the field {error} is missing") from error
    except json.JSONDecodeError as error:
        raise InvalidRequest(f"{where}: no JSON, column {error.colno}: {error.msg}") from error


def _of_api(row: Json) -> Entry:
    turn = {name: value for name, value in row.items() if name not in SET_BY_SERVICE}
    return Entry(row["user_id"], row["session_id"], turn)


def _of_data_set(row: Json) -> Entry:
    caption = row.get("image_caption")
    turn = {
        "id": row["dia_id"],
        "role": row.get("role", "user"),
        "speaker": row["speaker"],
        "content": row["text"] + (f" [shares a photo: {caption}]" if caption else ""),
        "created_at": _with_offset(row["timestamp"]),
    }
    return Entry(row["conversation_id"], f"{row['conversation_id']}/{row['session']}", turn)


def _with_offset(timestamp: str) -> str:
    """Data sets often write local times without an offset: taken as UTC."""
    time_of_day = timestamp.partition("T")[2]
    return timestamp if timestamp.endswith("Z") or "+" in time_of_day or "-" in time_of_day else timestamp + "Z"
