"""What the compressor is worth, by HTTP alone: how much shorter a summary is, what it keeps, whether it drifts, and
how long it takes; of a long conversation see `conversation`.

Dialogues are compressed by `/v1/compress`, all of them `repeats` times, each time in another order. A dialogue that
says what must be kept (`must_keep`: of each thing the words of which all must stand in one line, of a list any one) is
scored for that.
"""

from __future__ import annotations

import random
import secrets
import statistics
import time
import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from tqdm import tqdm

from benchmarks import conversation
from benchmarks.conversation import at, spread
from benchmarks.dialogues import Dialogue, read_dialogues
from serve_app.client.http import Client, Json
from serve_app.drift import distance

SHARE = 0.35
"""Of a dialogue's tokens: what its summary may take."""


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


def measure(client: Client, data: Path, options: Options) -> Json:
    dialogues = read_dialogues(data)
    made = _compressed(client, dialogues, options)
    result = {"data": data.stem, "seed": options.seed, "dialogues": len(dialogues), **_worth(dialogues, made, options)}
    if options.replay:
        result["replay"] = conversation.replayed(client, dialogues, options.replay, options.summary_tokens)
    if options.beside_s:
        result["contexts"] = conversation.beside(client, dialogues, options.beside_s)
    return result


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
        "tokens": {name: at(tokens, share) for name, share in (("p50", 0.5), ("p95", 0.95), ("p99", 0.99))},
        "first_ms": spread([one.ms[0] for one in made]),
        "again_ms": spread([ms for one in made for ms in one.ms[1:]]),
    }


def _kept(tokens: Sequence[str | list[str]], text: str) -> bool:
    return any(all(_stands(token, line) for token in tokens) for line in map(_folded, text.splitlines()))


def _stands(token: str | list[str], line: str) -> bool:
    if isinstance(token, list):
        return any(_stands(one, line) for one in token)
    return _folded(token) in line


def _folded(text: str) -> str:
    return unicodedata.normalize("NFKC", text).casefold()


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
        drift = f"drift against all at once {replay['drift']:.4f}"
        lines.append(f"{replay['turns']} turns in turn: at most {replay['tokens_max']} tokens, {drift}")
        lines += [_part(name, replay[f"{name}_ms"]) for name in ("append", "refresh")]
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
