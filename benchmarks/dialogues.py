"""Dialogues to be summed up: those of a data set, or of files that say what must be kept of each."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from itertools import count
from pathlib import Path

from serve_app.client.conversations import read_entries
from serve_app.client.http import Json
from serve_app.errors import InvalidRequest

CHARACTERS_A_TOKEN, CJK_CHARACTERS_A_TOKEN = 4.0, 1.5
FIRST_CJK = "\u3000"
MINUTE = timedelta(minutes=1)


@dataclass(frozen=True)
class Dialogue:
    id: str
    turns: Sequence[Json]
    must_keep: Sequence[Sequence[str | list[str]]] = ()

    @property
    def characters(self) -> int:
        return sum(len(turn["content"]) for turn in self.turns)

    def target(self, share: float) -> int:
        return max(1, round(share * sum(_estimated_tokens(turn["content"]) for turn in self.turns)))


def read_dialogues(data: Path) -> list[Dialogue]:
    """Of a file of dialogues, or of a folder with such files or with `conversations.jsonl`. Raises InvalidRequest."""
    conversations = data / "conversations.jsonl"
    if conversations.exists():
        return _of_conversations(conversations)
    files = sorted(data.glob("constraints*.jsonl")) if data.is_dir() else [data]
    dialogues = [_dialogue(path, line) for path in files for line in _lines(path)]
    if not dialogues:
        raise InvalidRequest(f"{data}: there are no dialogues")
    return dialogues


def _of_conversations(path: Path) -> list[Dialogue]:
    """Each session is a dialogue."""
    sessions: dict[str, list[Json]] = {}
    for entry in read_entries(path):
        sessions.setdefault(f"{entry.user}/{entry.session}", []).append(entry.turn)
    return [Dialogue(name, turns) for name, turns in sessions.items()]


def _lines(path: Path) -> Iterator[Json]:
    try:
        text = path.read_text(encoding="utf-8")
        yield from (json.loads(line) for line in text.splitlines() if line.strip())
    except (OSError, ValueError) as error:
        raise InvalidRequest(f"{path}: {error}") from error


def _dialogue(path: Path, line: Json) -> Dialogue:
    try:
        turns = [_turn(turn) for turn in line["turns"]]
        return Dialogue(str(line["id"]), turns, [_words(one) for one in line.get("must_keep", ())])
    except (KeyError, TypeError) as error:
        form = "id, turns with role and content, and must_keep, lists of words"
        raise InvalidRequest(f"{path}: a dialogue has {form}: {error!r}") from error


def _words(kept: list[str | list[str]] | Json) -> list[str | list[str]]:
    """Of one thing that must be kept: the words alone, or with more that is said of it."""
    return kept["key_tokens"] if isinstance(kept, dict) else kept


def _turn(turn: Json) -> Json:
    named = {"created_at": turn.get("timestamp"), "speaker": turn.get("speaker")}
    content = turn["content"] if "content" in turn else turn["text"]
    return {"role": turn["role"], "content": content} | {name: value for name, value in named.items() if value}


def _estimated_tokens(text: str) -> float:
    cjk = sum(letter >= FIRST_CJK for letter in text)
    return cjk / CJK_CHARACTERS_A_TOKEN + (len(text) - cjk) / CHARACTERS_A_TOKEN


def endless(dialogues: Sequence[Dialogue]) -> Iterator[Json]:
    """The turns of all dialogues as one conversation, a minute apart, and again from the start; no two are equal."""
    at = datetime.fromisoformat("2025-01-01T08:00:00+00:00")
    number = 0
    for again in count():
        for dialogue in dialogues:
            for turn in dialogue.turns:
                number += 1
                at += MINUTE
                content = turn["content"] + (f" ({again + 1})" if again else "")
                said = {name: turn[name] for name in ("role", "speaker") if name in turn}
                yield said | {"id": f"t{number}", "content": content, "created_at": at.isoformat()}
