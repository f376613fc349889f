"""A conversation that is sent along and stored nowhere: what does not fit is summed up, the same way each time."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from serve_app.context.inputs import ContextInputs
from serve_app.context.layout import DEFAULT_LAYOUT, ZONES, Layout
from serve_app.context.tokens import open_tokenizer
from serve_app.context.window import build_context
from serve_app.core import Degradation, Turn
from serve_app.errors import QueryExceedsBudget, SystemExceedsBudget
from serve_app.memory.histories import CHARACTERS_MAX, Histories, _newest
from tests.api.running import Running, hash_settings
from tests.context.hostile import CHECKS, NOW, check_pairs, digest, hostile_inputs

TOKENIZER = open_tokenizer()
CHATTER = "We spoke for a while about the little boat {} down by the harbour and its many coats of paint."
WISH = "My budget is at most 4500 euros, and never book anything with seafood."
ASKED = {"now": "2026-12-01T03:00:00Z"}
PAGE = ("context_id", "messages", "zones", "dropped", "summary", "total_tokens")


def history(count: int, **at: str) -> list[dict[str, Any]]:
    """Contents by place, chatter elsewhere."""
    said = [at.get(f"at{number}", CHATTER.format(number)) for number in range(count)]
    return [{"role": ("user", "assistant")[number % 2], "content": text} for number, text in enumerate(said)]


@pytest.fixture(scope="module")
def calm(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    running = Running(hash_settings(tmp_path_factory.mktemp("calm")))
    yield running
    running.stop()


def text_of(context: dict[str, Any]) -> str:
    return str(msgspec.json.encode(context["messages"]).decode())


def test_what_binds_for_good_stands_among_the_facts(calm: Running) -> None:
    """Where a cache can hold it, and however much else there is."""
    turns = history(300, at0="I am allergic to peanuts.", at40="Never book anything with seafood.")
    context = calm.context("u", "Find me a place for dinner.", 800, history=turns, **ASKED)
    first = context["messages"][0]
    assert first["role"] == "system"
    assert "said in this conversation:] I am allergic to peanuts" in first["content"]
    assert context["cache_prefix"]["messages"] == 1
    later = calm.context("u", "And dessert?", 800, history=[*turns, *history(2)], **ASKED)
    assert later["messages"][0] == first


@pytest.mark.parametrize("count", [60, 300])
def test_what_binds_at_the_beginning_of_a_long_history_is_shown(calm: Running, count: int) -> None:
    context = calm.context("u", "Find me a place for dinner.", 1000, history=history(count, at0=WISH), **ASKED)
    assert "4500 euros" in text_of(context)
    assert "never book anything with seafood" in text_of(context)
    assert context["total_tokens"] <= 1000
    assert (context["summary"]["first_seq"], context["summary"]["last_seq"]) == (1, count)
    assert context["zones"]["summary"]["tokens"] > 0
    assert [one for one in context["dropped"] if one["zone"] == "recent"] == []
    assert "4500" in str(context["summary"]["constraints"])


def test_what_was_taken_back_later_is_not(calm: Running) -> None:
    """Also where the turn that takes it back is shown itself."""
    turns = history(120, at0="My budget is at most 4500 euros.", at118="My budget is 8000 euros now, not 4500.")
    context = calm.context("u", "Find me a place.", 1000, history=turns, **ASKED)
    status = {one["text"]: one["status"] for one in context["summary"]["constraints"] if "at most 4500" in one["text"]}
    assert set(status.values()) == {"superseded"}
    assert "8000 euros" in text_of(context)


def test_a_history_that_fits_has_no_summary(calm: Running) -> None:
    context = calm.context("u", "And?", 4000, history=history(20, at0=WISH), **ASKED)
    assert (context["summary"], context["zones"]["summary"]["tokens"], context["dropped"]) == (None, 0, [])


def test_nothing_of_it_is_stored(calm: Running) -> None:
    calm.context("nobody", "And?", 500, history=history(100, at0=WISH))
    assert calm.ok("GET", "/v1/sessions", params={"user_id": "nobody"})["sessions"] == []
    calm.fold()
    files = [path.read_bytes() for path in calm.data.rglob("*") if path.is_file()]
    assert not any(b"seafood" in content for content in files)


def test_the_echoed_moment_gives_the_same_bytes_also_after_a_restart(tmp_path: Any) -> None:
    """Turns without a time of their own were said in the hour of the request."""
    running = Running(hash_settings(tmp_path))
    asked: dict[str, Any] = {"history": history(100, at0=WISH)}
    first = running.context("u", "And?", 600, **asked)
    assert first["summary"] is not None
    assert "1970" not in text_of(first)
    asked |= {"now": first["now"], "as_of": first["as_of"]}
    for _ in range(2):
        again = running.context("u", "And?", 600, **asked)
        assert {name: again[name] for name in PAGE} == {name: first[name] for name in PAGE}
        running = running.again()
    running.stop()


@given(inputs=hostile_inputs(), layout=st.sampled_from([DEFAULT_LAYOUT, Layout("flat", dict.fromkeys(ZONES, 16))]))
@settings(max_examples=60, deadline=None)
def test_any_history_gives_a_valid_context_and_loses_no_turn(inputs: ContextInputs, layout: Layout) -> None:
    sent = tuple(msgspec.structs.replace(turn, session="") for turn in inputs.turns)
    inputs = msgspec.structs.replace(inputs, session="", turns=sent, hits=(), partners=(), summary=None)
    try:
        built = Histories().context(inputs, layout, TOKENIZER)
    except (QueryExceedsBudget, SystemExceedsBudget):
        return
    assert built.total_tokens == sum(use.tokens for use in built.zones.values()) <= inputs.budget_tokens
    CHECKS[inputs.format](built, inputs.query)
    check_pairs(msgspec.structs.replace(inputs, partners=sent), built)
    assert digest(Histories().context(inputs, layout, TOKENIZER)) == digest(built)
    span = range(built.summary.first_seq, built.summary.last_seq + 1) if built.summary else range(0)
    listed = {one.id for one in built.dropped if one.zone == "recent"}
    for turn in inputs.turns:
        assert turn.expired(inputs.now) or turn.id not in listed or turn.seq not in span


def turns_of(count: int, size: int = 100) -> tuple[Turn, ...]:
    return tuple(
        Turn(f"t{n}", "", "user", f"{n:06} {CHATTER}"[:size].ljust(size), n + 1, NOW, NOW) for n in range(count)
    )


def inputs_of(turns: tuple[Turn, ...], **fields: Any) -> ContextInputs:
    return ContextInputs(session="", query="And?", budget_tokens=500, now=NOW, turns=turns, **fields)


def test_what_lies_before_the_bound_is_listed() -> None:
    count = 2 * CHARACTERS_MAX // 100
    built = Histories().context(inputs_of(turns_of(count)), DEFAULT_LAYOUT, TOKENIZER)
    assert built.summary is not None
    assert (built.summary.first_seq, built.summary.last_seq) == (count - CHARACTERS_MAX // 100 + 1, count)
    assert {one.id for one in built.dropped if one.zone == "recent"} == {
        f"t{n}" for n in range(count - CHARACTERS_MAX // 100)
    }


def test_of_a_last_turn_that_is_larger_both_ends_are_read() -> None:
    """Whole words of them, and in no more time than other turns take."""
    talk = "\n".join(CHATTER.format(number) for number in range(10_000))
    last = Turn("last", "", "user", f"{WISH} {talk} I am allergic to peanuts.", 41, NOW, NOW)
    [read] = _newest((*turns_of(40), last))
    assert read.content.startswith(WISH)
    assert read.content.endswith("I am allergic to peanuts.")
    assert CHARACTERS_MAX - 100 < len(read.content) <= CHARACTERS_MAX + 1
    assert set(read.content.split()) <= set(last.content.split())
    [solid] = _newest((msgspec.structs.replace(last, content="1" * 2 * CHARACTERS_MAX),))
    assert not solid.content.strip()
    described = msgspec.structs.replace(last, content=WISH, metadata={"page": "x" * 2 * CHARACTERS_MAX})
    assert _newest((described,)) == [described]
    data = msgspec.structs.replace(last, content="", data=b"[%s0]" % (b"0," * CHARACTERS_MAX))
    assert _newest((data,)) == []
    for one in (last, data):
        Histories().context(inputs_of((*turns_of(40), one)), DEFAULT_LAYOUT, TOKENIZER)


def test_levels_and_layouts_without_a_summary_have_none() -> None:
    turns = turns_of(100)
    smaller = inputs_of(turns, degradation=Degradation("recent_only"))
    assert Histories().context(smaller, DEFAULT_LAYOUT, TOKENIZER).summary is None
    flat = Layout("flat", dict.fromkeys(ZONES, 0) | {"recent": 100})
    assert Histories().context(inputs_of(turns), flat, TOKENIZER).summary is None
    blank = tuple(msgspec.structs.replace(turn, content=" ") for turn in turns)
    assert build_context(inputs_of(blank), DEFAULT_LAYOUT, TOKENIZER).dropped
    Histories().context(inputs_of(blank), DEFAULT_LAYOUT, TOKENIZER)


def test_a_history_that_has_grown_is_read_from_where_it_has() -> None:
    """The same turns again, as other objects, cost a fraction."""
    histories = Histories()

    def seconds(count: int) -> float:
        inputs = inputs_of(turns_of(count))
        started = time.process_time()
        histories.context(inputs, DEFAULT_LAYOUT, TOKENIZER)
        return time.process_time() - started

    seconds(10)
    cold = seconds(300)
    assert min(seconds(302), seconds(304)) < cold / 2
