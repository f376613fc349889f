"""What the compressor is worth, by HTTP alone: how much shorter a summary is, what it keeps, whether it drifts, how long
it takes; what a long conversation costs turn by turn; and what contexts notice of summaries that are made beside them.

Dialogues are compressed by `/v1/compress`, all of them `repeats` times, each time in another order. A dialogue that
says what must be kept (`must_keep`, each with `key_tokens` of which all must stand in one line, of a list any one) is
scored for that.
"""

from __future__ import annotations

import json
import math
import random
import secrets
import statistics
import threading
import time
import unicodedata
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from itertools import count, islice
from pathlib import Path

from tqdm import tqdm

from serve_app.client.conversations import read_entries
from serve_app.client.http import Client, Json
from serve_app.compress.drift import distance
from serve_app.errors import InvalidRequest

SHARE = 0.35
"""Of a dialogue's tokens: what its summary may take."""

CHARACTERS_A_TOKEN, CJK_CHARACTERS_A_TOKEN = 4.0, 1.5
FIRST_CJK = "\u3000"

HUNDRED = 100
REFRESH_EVERY = 5
SESSION = "replay"
MINUTE = timedelta(minutes=1)

ROUNDS = 6
"""Of contexts with summaries made beside them and without, in turn."""

BESIDE_TURNS = 2_000
WRITES_A_S = 20
CONTEXT_TOKENS = 4_000
NEVER = {"every_turns": 10_000, "max_age_s": 86_400}
"""The policy under which no summary is made while this runs."""


@dataclass(frozen=True)
class Options:
    """`replay`: turns of one conversation; `beside_s`: seconds of contexts, half of them beside summaries; 0: neither.

    `summary_tokens` is what the service holds its summaries under.
    """

    share: float = SHARE
    repeats: int = 3
    replay: int = 0
    beside_s: float = 0.0
    summary_tokens: int = 600
    seed: int = field(default_factory=lambda: secrets.randbits(32))


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


def measure(client: Client, data: Path, options: Options) -> Json:
    dialogues = read_dialogues(data)
    made = _compressed(client, dialogues, options)
    result = {"data": data.stem, "seed": options.seed, "dialogues": len(dialogues), **_worth(dialogues, made, options)}
    if options.replay:
        result["replay"] = _replayed(client, dialogues, options)
    if options.beside_s:
        result["contexts"] = _beside(client, dialogues, options)
    return result


# ---- data


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
        return Dialogue(str(line["id"]), turns, [one["key_tokens"] for one in line.get("must_keep", ())])
    except (KeyError, TypeError) as error:
        raise InvalidRequest(f"{path}: a dialogue has id, turns with role and text, and must_keep: {error}") from error


def _turn(turn: Json) -> Json:
    named = {"created_at": turn.get("timestamp"), "speaker": turn.get("speaker")}
    content = turn["content"] if "content" in turn else turn["text"]
    return {"role": turn["role"], "content": content} | {name: value for name, value in named.items() if value}


def _estimated_tokens(text: str) -> float:
    cjk = sum(letter >= FIRST_CJK for letter in text)
    return cjk / CJK_CHARACTERS_A_TOKEN + (len(text) - cjk) / CHARACTERS_A_TOKEN


# ---- one dialogue after the other


@dataclass
class Made:
    """Every summary of one dialogue, with its milliseconds."""

    answers: list[Json] = field(default_factory=list)
    ms: list[float] = field(default_factory=list)


def _compressed(client: Client, dialogues: Sequence[Dialogue], options: Options) -> list[Made]:
    made = [Made() for _ in dialogues]
    order, source = list(range(len(dialogues))), random.Random(options.seed)
    with tqdm(total=len(order) * options.repeats, unit=" summaries", disable=None) as bar:
        for _ in range(options.repeats):
            for place in order:
                began = time.perf_counter()
                dialogue = dialogues[place]
                made[place].answers.append(client.compress(dialogue.turns, dialogue.target(options.share)))
                made[place].ms.append(1e3 * (time.perf_counter() - began))
                bar.update()
            source.shuffle(order)
    return made


def _worth(dialogues: Sequence[Dialogue], made: Sequence[Made], options: Options) -> Json:
    """Latency of the first call apart: later ones may find the answer remembered."""
    texts = [one.answers[0]["text"] for one in made]
    tokens = [one.answers[0]["tokens"] for one in made]
    drifts = [distance(text, again["text"]) for text, one in zip(texts, made, strict=True) for again in one.answers[1:]]
    bound = [(item, text) for one, text in zip(dialogues, texts, strict=True) for item in one.must_keep]
    kept = sum(_kept(item, text) for item, text in bound)
    over = sum(number > one.target(options.share) for number, one in zip(tokens, dialogues, strict=True))
    return {
        "ratio": round(sum(map(len, texts)) / sum(one.characters for one in dialogues), 4),
        "retention": round(kept / len(bound), 4) if bound else None,
        "must_keep": len(bound),
        "drift": {"mean": round(statistics.fmean(drifts), 4) if drifts else None, "max": max(drifts, default=None)},
        "over_target": over,
        "tokens": {name: _at(tokens, share) for name, share in (("p50", 0.5), ("p95", 0.95), ("p99", 0.99))},
        "first_ms": _spread([one.ms[0] for one in made]),
        "again_ms": _spread([ms for one in made for ms in one.ms[1:]]),
    }


def _kept(tokens: Sequence[str | list[str]], text: str) -> bool:
    return any(all(_stands(token, line) for token in tokens) for line in map(_folded, text.splitlines()))


def _stands(token: str | list[str], line: str) -> bool:
    if isinstance(token, list):
        return any(_stands(one, line) for one in token)
    return _folded(token) in line


def _folded(text: str) -> str:
    return unicodedata.normalize("NFKC", text).casefold()


# ---- one long conversation


def _replayed(client: Client, dialogues: Sequence[Dialogue], options: Options) -> Json:
    """Turn by turn with a summary after every few; then the whole of it at once, which must give the same summary."""
    turns = list(islice(_endless(dialogues), options.replay))
    rolling, at_once = (f"bench-{secrets.token_hex(4)}-{name}" for name in ("rolling", "at-once"))
    append_ms: list[float] = []
    refresh_ms: list[float] = []
    longest = 0
    try:
        for number, turn in enumerate(tqdm(turns, unit=" turns", disable=None), 1):
            append_ms.append(_timed(client.append, rolling, SESSION, [turn])[0])
            if number % REFRESH_EVERY == 0:
                ms, summary = _timed(client.refresh_summary, rolling, SESSION)
                refresh_ms.append(ms)
                longest = max(longest, summary["tokens"])
        last = client.refresh_summary(rolling, SESSION)
        for start in range(0, len(turns), HUNDRED):
            client.append(at_once, SESSION, turns[start : start + HUNDRED])
        again = client.refresh_summary(at_once, SESSION)
    finally:
        for user in (rolling, at_once):
            client.erase(user)
    return {
        "turns": len(turns),
        "tokens_max": longest,
        "over_target": int(longest > options.summary_tokens),
        "drift": distance(last["text"], again["text"]),
        "append_ms": _by_part(append_ms),
        "refresh_ms": _by_part(refresh_ms),
    }


def _timed(call, *arguments) -> tuple[float, Json]:  # type: ignore[no-untyped-def]
    began = time.perf_counter()
    answer = call(*arguments)
    return 1e3 * (time.perf_counter() - began), answer


def _endless(dialogues: Sequence[Dialogue]) -> Iterator[Json]:
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


def _by_part(ms: Sequence[float]) -> Json:
    """Tenths in order: the median of each, and how the last compares with the first."""
    size = max(1, len(ms) // 10)
    medians = [round(statistics.median(ms[start : start + size]), 2) for start in range(0, len(ms), size)][:10]
    return {"tenths_p50": medians, "last_to_first": round(medians[-1] / medians[0], 2), **_spread(ms)}


# ---- contexts beside summaries


def _beside(client: Client, dialogues: Sequence[Dialogue], options: Options) -> Json:
    """Contexts of a long session while turns are written to it and to others: with summaries made in the background,
    and with a policy that puts them off. In turn, so that a slow moment of the machine is no difference.
    """
    user = f"bench-{secrets.token_hex(4)}-beside"
    turns = list(islice(_endless(dialogues), BESIDE_TURNS))
    found: dict[str, list[float]] = {"on": [], "off": []}
    before = client.policy("summary")
    try:
        for start in range(0, BESIDE_TURNS, HUNDRED):
            client.append(user, SESSION, turns[start : start + HUNDRED], wait="indexed")
        client.refresh_summary(user, SESSION)
        writing = _Writing(client, user, turns)
        for number in tqdm(range(2 * ROUNDS), unit=" rounds", disable=None):
            name = ("off", "on")[number % 2]
            client.put_policy("summary", NEVER if name == "off" else before)
            with writing:
                found[name] += _contexts(client, user, options.beside_s / (2 * ROUNDS))
    finally:
        client.put_policy("summary", before)
        client.erase(user)
    spread = {name: _spread(ms) for name, ms in found.items()}
    ratios = {name: round(spread["on"][name] / spread["off"][name], 3) for name in ("p50", "p99")}
    return {"ms": spread, "on_to_off": ratios, "written": writing.written}


def _contexts(client: Client, user: str, seconds: float) -> list[float]:
    """Milliseconds inside the service; the first is left out."""
    body = {"user_id": user, "session_id": SESSION, "query": "the order of the kettle", "budget_tokens": CONTEXT_TOKENS}
    client.context(body)
    found, end = [], time.perf_counter() + seconds
    while time.perf_counter() < end:
        found.append(client.context(body)["timings_ms"]["total"])
    return found


class _Writing:
    """While it is entered, turns are written by a thread, to the session that is read and to others in turn."""

    def __init__(self, client: Client, user: str, turns: Sequence[Json]) -> None:
        self._client = client
        self._user = user
        self._turns = turns
        self.written = 0

    def __enter__(self) -> None:
        self._done = threading.Event()
        self._thread = threading.Thread(target=self._write)
        self._thread.start()

    def __exit__(self, *_: object) -> None:
        self._done.set()
        self._thread.join()

    def _write(self) -> None:
        while not self._done.wait(1 / WRITES_A_S):
            self.written += 1
            session = SESSION if self.written % 2 else f"other{self.written % 10}"
            turn = self._turns[self.written % len(self._turns)] | {"id": f"w{self.written}"}
            self._client.append(self._user, session, [turn])


# ---- figures


def _at(values: Sequence[float], share: float) -> float:
    return sorted(values)[min(len(values) - 1, math.ceil(share * len(values)) - 1)] if values else 0.0


def _spread(ms: Sequence[float]) -> dict[str, float]:
    return {name: round(_at(ms, share), 2) for name, share in (("p50", 0.5), ("p95", 0.95), ("p99", 0.99))}


def table(measured: Json) -> str:
    retention = measured["retention"]
    lines = [
        f"{measured['dialogues']} dialogues of {measured['data']}",
        f"{'length, of the dialogue':<34}{measured['ratio']:>9.1%}",
        f"{'what must be kept':<34}" + ("  not said" if retention is None else f"{retention:>9.1%}"),
        f"{'drift, mean and most':<34}{measured['drift']['mean'] or 0:>9.4f}{measured['drift']['max'] or 0:>9.4f}",
        f"{'over their target':<34}{measured['over_target']:>9}",
        _row("tokens", measured["tokens"]),
        _row("milliseconds, first call", measured["first_ms"]),
        _row("milliseconds, again", measured["again_ms"]),
    ]
    if replay := measured.get("replay"):
        lines += [
            f"{replay['turns']} turns, one after the other: at most {replay['tokens_max']} tokens,"
            f" drift against all at once {replay['drift']:.4f}",
            *(_part(name, replay[f"{name}_ms"]) for name in ("append", "refresh")),
        ]
    if contexts := measured.get("contexts"):
        lines += [_row(f"context, summaries {name}", contexts["ms"][name]) for name in ("on", "off")]
        lines.append(f"on to off: p50 {contexts['on_to_off']['p50']:.2f}, p99 {contexts['on_to_off']['p99']:.2f}")
    return "\n".join(lines)


def _row(name: str, spread: Json) -> str:
    return f"{name:<34}" + "".join(f"{label:>6}{spread[label]:>9.2f}" for label in ("p50", "p95", "p99"))


def _part(name: str, parts: Json) -> str:
    return (
        f"{name}, ms: {parts['tenths_p50'][0]} to {parts['tenths_p50'][-1]} by tenths, {parts['last_to_first']} times"
    )
