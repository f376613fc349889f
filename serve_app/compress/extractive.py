"""A summary made of the conversation's own sentences. Owns no state and needs no model.

Deterministic: the same turns, target and tokenizer give the same string. Never over its target.
Linear in the text, and counts tokens of no more sentences than could stand in the summary.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from datetime import UTC, datetime, timedelta
from typing import NamedTuple

from serve_app.compress.salience import worth
from serve_app.compress.sentences import sentences
from serve_app.core import Turn
from serve_app.errors import InvalidRequest
from serve_app.ports import Tokenizer

EXTRACTIVE_VERSION = "extractive-1"
"""Changes with anything here that changes a summary."""

MISSES_MAX = 32
"""Sentences in a row that do not fit, after which the summary is full."""

FIT_ROUNDS_MAX = 4
"""Times that a choice is made again for fewer tokens because joined sentences cost more than their sum."""

NEWNESS_WORTH = 0.5
"""What the newest sentence has over the oldest: enough to settle near ties."""

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


class Extract(NamedTuple):
    """The text, the span of turns that it speaks for (both ends included), its tokens; of each line rank and turn.

    The line with rank 0 holds the sentence most worth keeping: it is cut last.
    """

    text: str
    first_seq: int
    last_seq: int
    tokens: int
    ranks: tuple[int, ...]
    line_seqs: tuple[int, ...]


class _Sentence(NamedTuple):
    """A sentence and where it stood."""

    turn: int
    place: int
    text: str
    worth: float


def summarise(turns: Sequence[Turn], target_tokens: int, tokenizer: Tokenizer) -> Extract:
    """The sentences most worth keeping, in their order, each line with its date and speaker.

    `turns` are oldest first and at least one. A turn of which anything will expire is covered by the span
    and left out of the text, so that no summary outlives what it says; so are tool calls and their results,
    of which one must not be quoted without the other. Raises InvalidRequest without turns or
    for a target below one token.
    """
    if not turns or target_tokens < 1:
        raise InvalidRequest("a summary needs at least one turn and a target of at least one token")
    lasting = [turn for turn in turns if turn.lasting and not _of_an_exchange(turn)]
    best_first = _ranked(lasting)
    text, chosen = _fitting(lasting, best_first, target_tokens, tokenizer)
    ranks = _ranks(best_first, chosen)
    if len(ranks) != text.count("\n") + 1:  # a sentence with line breaks: its lines cannot be told apart
        ranks = {}
    seqs = tuple(lasting[turn].seq for turn in ranks)
    tokens = tokenizer.count(text)
    return Extract(text, turns[0].seq, turns[-1].seq, tokens, tuple(ranks.values()), seqs)


def _of_an_exchange(turn: Turn) -> bool:
    return bool(turn.role == "tool" or turn.tool_calls or turn.tool_call_id)


def _ranked(turns: Sequence[Turn]) -> list[_Sentence]:
    """All sentences, best first; of equal texts only the best placed."""
    scored = [
        _Sentence(number, place, text, worth(text, turn.role) + NEWNESS_WORTH * number / len(turns))
        for number, turn in enumerate(turns)
        for place, text in enumerate(sentences(turn.text))
    ]
    scored.sort(key=lambda sentence: (-sentence.worth, -sentence.turn, sentence.place))
    return list({sentence.text.casefold(): sentence for sentence in reversed(scored)}.values())[::-1]


def _fitting(
    turns: Sequence[Turn], best_first: Sequence[_Sentence], target: int, tokenizer: Tokenizer
) -> tuple[str, Sequence[_Sentence]]:
    """As many of the best as fit, with their text; where not even one does, the beginning of the best."""
    room = target
    for _ in range(FIT_ROUNDS_MAX):
        chosen = _choose(turns, best_first, room, tokenizer)
        text = "\n".join(_lines(turns, chosen))
        excess = tokenizer.count(text) - target
        if text and excess <= 0:
            return text, chosen
        room -= max(excess, 1)
    return tokenizer.truncate("\n".join(_lines(turns, best_first[:1])), target), best_first[:1]


def _ranks(best_first: Sequence[_Sentence], chosen: Iterable[_Sentence]) -> dict[int, int]:
    """Turn to rank, in the order of the lines: a line is ranked by its best sentence."""
    lines = dict.fromkeys(sentence.turn for sentence in chosen)
    order = dict.fromkeys(sentence.turn for sentence in best_first if sentence.turn in lines)
    place = {turn: rank for rank, turn in enumerate(order)}
    return {turn: place[turn] for turn in lines}


def _choose(turns: Sequence[Turn], best_first: Iterable[_Sentence], room: int, tokenizer: Tokenizer) -> list[_Sentence]:
    """The best sentences of at most `room` tokens, their line's beginning paid once a turn; in reading order."""
    chosen: list[_Sentence] = []
    begun: set[int] = set()
    misses = 0
    for sentence in best_first:
        # One for the space or line break before it.
        cost = 1 + tokenizer.count(sentence.text)
        cost += 0 if sentence.turn in begun else tokenizer.count(_lead(turns[sentence.turn]))
        if cost > room:
            misses += 1
            if misses == MISSES_MAX:
                break
            continue
        misses = 0
        room -= cost
        begun.add(sentence.turn)
        chosen.append(sentence)
    return sorted(chosen)


def _lines(turns: Sequence[Turn], chosen: Iterable[_Sentence]) -> Iterator[str]:
    """One line a turn."""
    by_turn: dict[int, list[str]] = {}
    for sentence in chosen:
        by_turn.setdefault(sentence.turn, []).append(sentence.text)
    for number, texts in by_turn.items():
        yield f"{_lead(turns[number])} {' '.join(texts)}"


def _lead(turn: Turn) -> str:
    """Date (where the speaker was) and speaker."""
    local = _EPOCH + timedelta(microseconds=turn.created_at, minutes=turn.offset_minutes)
    return f"{local.date().isoformat()} {turn.speaker or turn.tool_name or turn.role}:"
