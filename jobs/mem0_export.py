"""Memories of a mem0 export as turns and facts. Pure.

Read are the objects that `get_all` gives and that its exports hold: `id`, `memory`, `user_id`, `agent_id`, `app_id`,
`run_id`, `actor_id`, `role`, `created_at`, `updated_at`, `expiration_date`, `metadata`; alone, in a list, or as the
`results` of a page. A memory becomes a turn: it is one of many statements, found by search, with a time and with
metadata of its own, which a fact does not have. A memory whose metadata names a key (`fact_key`) becomes that fact.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

from serve_app.client.conversations import Entry, FactEntry
from serve_app.client.data_sets import with_offset
from serve_app.client.http import Json
from serve_app.errors import InvalidRequest

FACT_FIELD = "fact_key"
"""The field of a memory's metadata that makes it a fact, unless another one is asked for."""

SESSION = "mem0"
"""Where memories that belong to no run go."""

TEXTS = ("memory", "text", "data")
"""Under which names releases of mem0 give a memory's text."""

ROLES = ("user", "assistant", "system")
KEPT = ("agent_id", "app_id", "run_id", "actor_id", "attributed_to", "categories", "hash", "updated_at", "immutable")
"""What a turn has no field for stands below `mem0` of its metadata."""

MINE = "mem0"


class Over(InvalidRequest):
    """A memory whose time is over: it is not brought over."""

    code = "expired"


def memories_of(text: bytes) -> Iterator[Json]:
    """The memories of a line, or of a whole document, which come by their times. Raises InvalidRequest."""
    try:
        value = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise InvalidRequest(f"no JSON: {error}") from error
    if isinstance(value, dict) and isinstance(value.get("results", value.get("memories")), list):
        value = value.get("results", value.get("memories"))
    found = value if isinstance(value, list) else [value]
    if not all(isinstance(one, dict) for one in found):
        raise InvalidRequest("a memory is not a JSON object")
    yield from sorted(found, key=_instant) if len(found) > 1 else found


def _instant(memory: Json) -> float:
    """Where it stands in the order; one whose time cannot be read is refused when it is placed."""
    try:
        return _time(memory["created_at"]).timestamp()
    except (KeyError, InvalidRequest):
        return 0.0


def placed(memory: Json, now: datetime, fact_field: str = FACT_FIELD) -> Entry | FactEntry:
    """Raises InvalidRequest for one without text or owner, Over for one that has expired."""
    said = next((memory[name] for name in TEXTS if memory.get(name)), None)
    if not isinstance(said, str):
        raise InvalidRequest("a memory without text")
    metadata = memory.get("metadata") or {}
    if not isinstance(metadata, dict):
        raise InvalidRequest("metadata is not a JSON object")
    user, life = _owner(memory), _life(memory, now)
    if isinstance(key := metadata.get(fact_field), str) and key:
        return FactEntry(user, key, {"value": said} | ({} if life is None else {"expires_at": life.isoformat()}))
    return Entry(user, str(memory.get("run_id") or SESSION), _turn(memory, said, metadata, life, now))


def _owner(memory: Json) -> str:
    """The user; of what belongs to none, the agent or the run stands for one."""
    if memory.get("user_id"):
        return str(memory["user_id"])
    for name in ("agent_id", "app_id", "run_id"):
        if memory.get(name):
            return f"{name.removesuffix('_id')}/{memory[name]}"
    raise InvalidRequest("a memory of no user, agent, app or run")


def _turn(memory: Json, said: str, metadata: Json, life: datetime | None, now: datetime) -> Json:
    turn: Json = {"role": memory["role"] if memory.get("role") in ROLES else "user", "content": said}
    if memory.get("id"):
        turn["id"] = str(memory["id"])
    if memory.get("actor_id"):
        turn["speaker"] = str(memory["actor_id"])
    if memory.get("created_at"):
        turn["created_at"] = _time(memory["created_at"]).isoformat()
    if life is not None:
        begun = _time(memory["created_at"]) if memory.get("created_at") else now
        turn["ttl_seconds"] = max(1, round((life - begun).total_seconds()))
    kept = {name: memory[name] for name in KEPT if memory.get(name) not in (None, [], "")}
    if kept:
        metadata = {**metadata, _free(metadata): kept}
    return turn | ({"metadata": metadata} if metadata else {})


def _free(metadata: Json) -> str:
    name = MINE
    while name in metadata:
        name += "_"
    return name


def _life(memory: Json, now: datetime) -> datetime | None:
    """When it expires: with the end of the day that it names."""
    if not memory.get("expiration_date"):
        return None
    day = _time(memory["expiration_date"])
    ends = day + timedelta(days=1) if "T" not in str(memory["expiration_date"]) else day
    if ends <= now:
        raise Over("its time is over")
    return ends


def _time(value: Any) -> datetime:
    """Raises InvalidRequest. A time without an offset is taken as UTC."""
    try:
        found = datetime.fromisoformat(with_offset(str(value)) if "T" in str(value) else str(value))
    except ValueError as error:
        raise InvalidRequest(f"no time: {error}") from error
    return found if found.tzinfo else found.replace(tzinfo=UTC)
