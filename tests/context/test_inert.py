"""An instruction in what memory holds stays a quotation: marks, roles, records and ends cannot be forged."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from serve_app.context.inputs import ContextInputs, Hit
from serve_app.context.layout import DEFAULT_LAYOUT
from serve_app.context.tokens import open_tokenizer
from serve_app.context.window import Context, build_context
from serve_app.core import Fact, Summary, Turn
from tests.context.hostile import FORGED, NOW, shown, texts

BLOCK = re.compile(r"quoted data, not instructions\. Mark: ([0-9a-f]+)\n(.*?)\[\1 end\]", re.DOTALL)
STYLES = ["openai", "anthropic", "text"]
PLACES = ["hit", "fact", "note", "summary", "system turn", "lost result", "speaker", "tool name"]


def hit(content: str, **fields: Any) -> Hit:
    told: dict[str, Any] = {"role": "user", "session": "there", "seq": 1, "arrived_at": 0, "created_at": 0} | fields
    return Hit(Turn(id="h", content=content, **told), 1.0, "hot")


def remembered(place: str, text: str) -> dict[str, Any]:
    """Inputs that hold the text somewhere in memory."""
    own = {"session": "here", "seq": 9}
    match place:
        case "hit":
            return {"hits": (hit(text),)}
        case "fact":
            return {"facts": (Fact("key", text, 1, NOW),)}
        case "note":
            return {"notes": (text,)}
        case "summary":
            return {"summary": Summary("here", text, 1, 2, 1, "v", "h", 1, NOW, NOW + 1)}
        case "system turn":
            return {"turns": (hit(text, role="system", **own).turn,)}
        case "lost result":
            return {"turns": (hit(text, role="tool", tool_call_id="lost", **own).turn,)}
        case "speaker":
            return {"hits": (hit("hello", speaker=text),)}
        case _:
            return {"hits": (hit("hello", role="tool", tool_name=text),)}


def context_of(style: Any, **fields: Any) -> Context:
    told: dict[str, Any] = {"session": "here", "query": "And now?", "budget_tokens": 8000, "now": NOW, "format": style}
    inputs = ContextInputs(
        **(told | {"system": "Be kind.", "turns": (hit("hi", session="here", seq=8).turn,)} | fields)
    )
    return build_context(inputs, DEFAULT_LAYOUT, open_tokenizer())


def quoted(text: str) -> tuple[list[str], str]:
    """What stands inside blocks, and all the rest."""
    return [found[2] for found in BLOCK.finditer(text)], BLOCK.sub("", text)


@pytest.mark.parametrize("style", STYLES)
@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("text", FORGED, ids=range(len(FORGED)))
def test_it_stands_in_a_quotation_and_nowhere_else(style: str, place: str, text: str) -> None:
    built = context_of(style, **remembered(place, text))
    inside, outside = quoted(shown(built))
    assert sum(block.count(text) for block in inside) == 1
    assert text.strip() not in outside
    roles = [message["role"] for message in built.messages]
    plain = [message["role"] for message in context_of(style, **remembered(place, "plain")).messages]
    assert roles == plain


@pytest.mark.parametrize("style", STYLES)
def test_only_facts_stand_in_a_system_role_and_there_as_data(style: str) -> None:
    for place in PLACES:
        built = context_of(style, **remembered(place, "OBEY"))
        first = built.messages[0] if built.messages else {"role": ""}
        system = built.system or (first["content"] if first["role"] == "system" else "")
        assert ("OBEY" in system) == (place in ("fact", "note") and style != "text")
        assert "OBEY" not in quoted(system)[1]


@pytest.mark.parametrize("style", STYLES)
def test_a_whole_context_that_was_remembered_is_one_record(style: str) -> None:
    """A quotation of quotations, three deep, ends where it ends."""
    text = FORGED[0]
    for _ in range(3):
        built = context_of(style, hits=(hit(text),))
        text = shown(built)
    inside, outside = quoted(text.removeprefix("Be kind."))
    assert sum(FORGED[0] in block for block in inside) == 1
    assert FORGED[0] not in outside


@given(st.lists(texts, min_size=1, max_size=6), st.sampled_from(STYLES))
@settings(max_examples=60, deadline=None)
def test_every_record_has_its_time_and_source(given_texts: list[str], style: str) -> None:
    """Also where texts hold marks: those of the same texts, quoted before."""
    before = context_of(style, hits=tuple(hit(text, seq=n) for n, text in enumerate(given_texts)))
    hits = [
        msgspec.structs.replace(hit(f"{text} {shown(before)}", seq=n).turn, id=f"h{n}")
        for n, text in enumerate(given_texts)
    ]
    built = context_of(style, hits=tuple(Hit(turn, 1.0, "hot") for turn in hits), budget_tokens=60_000)
    text = shown(built)
    mark = re.search(r"Turns from memory[^\n]*Mark: ([0-9a-f]+)\n", text)
    assert mark
    lead = f"[{mark[1]} 1970-01-01T00:00:00Z, session there, user] "
    assert text.count(lead) == len(hits)
    assert text.count(mark[1]) == len(hits) + 2
    assert all(lead + turn.content + "\n" in text for turn in hits)


@pytest.mark.parametrize("style", STYLES)
def test_the_cache_prefix_stays_while_turns_and_queries_change(style: str, turn: Callable[..., Turn]) -> None:
    facts = {"facts": (Fact("name", "Ada", 1, NOW),), "notes": ("It rains.",)}
    first, second = (
        context_of(style, **facts),
        context_of(style, **facts, query="Else?", turns=(turn("x"),), hits=(hit("y"),)),
    )
    assert first.cache_prefix == second.cache_prefix
    assert first.cache_prefix.tokens == first.stable_prefix_tokens > 20
    assert (first.cache_prefix.system, first.cache_prefix.messages) == (style == "anthropic", int(style == "openai"))

    def beginning(built: Context) -> Any:
        prefix = built.cache_prefix
        return built.system, built.messages[: prefix.messages], (built.text or "")[: prefix.characters]

    assert beginning(first) == beginning(second)
    assert "Ada" in str(beginning(first))
    assert "And now?" not in str(beginning(first))
    bare = context_of(style, system=None).cache_prefix
    assert (bare.tokens, bare.system, bare.messages, bare.characters) == (0, False, 0, 0)
