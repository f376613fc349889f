"""Counts that are kept or added up are the counts of the text, and go when their turn goes."""

import copy
import gc
import itertools
import re
import weakref

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from serve_app.context import quote
from serve_app.context.costs import Costs, costs_by
from serve_app.context.counting import ENCODE_CHARS_MAX
from serve_app.context.draft import BLANK, RETRIEVED_TITLE, line_of, retrieved_piece
from serve_app.context.inputs import ContextInputs, Hit
from serve_app.context.layout import DEFAULT_LAYOUT
from serve_app.context.shorten import Excerpts
from serve_app.context.tokens import ENCODINGS, open_tokenizer
from serve_app.context.window import build_context
from serve_app.core import Fact, Summary, Turn
from serve_app.kept import Entry, Kept

PIECES = [
    "kettle",
    "It's",
    "'S",
    " ",
    "  ",
    "\t",
    "\n",
    "\r",
    "\r\n",
    "\u2028",
    "\x85",
    "\u3000",
    "/",
    "...",
    ".\n/",
    "[",
]
PIECES += [
    "]",
    "12",
    "3,450",
    "é",
    "e\u0301",
    "今天",
    "🚀",
    "שלום",
    "ǅ",
    "ʰ",
    "Ⅷ",
    "<|endoftext|>",
    "\x00",
    "-",
    "HTTPServer",
]

texts = st.lists(st.sampled_from(PIECES), max_size=12).map("".join) | st.text(
    st.characters(exclude_categories=["Cs"]), max_size=40
)
turns = st.builds(
    lambda seq, text, session, speaker: Turn(
        f"t{seq}", session, "user", text, seq, 0, 1_700_000_000_000_000 + seq, speaker=speaker
    ),
    st.integers(0, 10**6),
    texts,
    st.sampled_from(["here", "a session", "雨/"]),
    st.none() | texts,
)
often = settings(max_examples=400, deadline=None)


@pytest.fixture(params=ENCODINGS)
def tokenizer(request):
    return open_tokenizer(request.param)


@pytest.fixture
def fresh(tokenizer):
    return Costs(tokenizer)


@often
@given(given_turns=st.lists(turns, min_size=1, max_size=4))
@pytest.mark.parametrize("name", ENCODINGS)
def test_lines_of_a_quote_add_up_to_the_whole(name, given_turns):
    """First reading and kept count alike: the sum is what the tokenizer counts in the whole block."""
    costs = Costs(open_tokenizer(name))
    for _ in range(2):
        lines = [line_of(turn, "here", costs) for turn in given_turns]
        mark = quote.mark_of(lines)
        piece = retrieved_piece(lines, mark, costs.frame(RETRIEVED_TITLE, mark), costs)
        assert piece.text == quote.block(RETRIEVED_TITLE, lines)
        assert piece.tokens == costs.tokenizer.count(piece.text)


@often
@given(st.lists(texts.map(lambda text: re.sub("\n", " ", text)), min_size=1, max_size=6), st.data())
@pytest.mark.parametrize("name", ENCODINGS)
def test_lines_of_a_summary_add_up_to_the_whole(name, lines, data):
    """Whatever lines are left out, and whether all begin with a date, some leave it out, or none has one."""
    dated, sparing = data.draw(st.booleans()), data.draw(st.booleans())
    days = sorted(data.draw(st.lists(st.sampled_from(["05-08", "05-09"]), min_size=len(lines), max_size=len(lines))))
    left_out = tuple(day if sparing and day == before else "" for before, day in zip(["", *days], days, strict=False))
    bare = [f"x{line}" for line in lines]
    full = [f"{day} {line}" for day, line in zip(days, bare, strict=True)] if dated else bare
    text = "\n".join(bare[place] if left_out[place] else full[place] for place in range(len(lines)))
    order, places = tuple(data.draw(st.permutations(range(len(lines))))), tuple(range(len(lines)))
    dates = left_out if dated else ()
    summary = Summary("here", text, 0, 9, 1, "v", "h", 1, 0, 1, ranks=order, line_seqs=places, line_dates=dates)
    excerpts = Excerpts(summary, Costs(open_tokenizer(name)))
    hidden = data.draw(st.sets(st.integers(0, len(lines))))
    tokens = data.draw(st.integers(0, 200))
    new = excerpts.without(hidden)
    for excerpt in filter(None, [new, excerpts.within(new, tokens)]):
        assert excerpt.tokens == 4 + open_tokenizer(name).count(excerpt.piece.text)
        told = [0, *excerpt.lines]
        assert excerpts.summary(excerpt).text == "\n".join(
            bare[place] if dates and left_out[place] and days[place] == days[before] and number else full[place]
            for number, (before, place) in enumerate(itertools.pairwise(told))
        )
        assert excerpt.piece.text.count(excerpts.summary(excerpt).text) == 1
        if len(excerpt.lines) < len(lines):
            assert excerpts.summary(excerpt).tokens == open_tokenizer(name).count(excerpt.text)
    fitting = excerpts.within(new, tokens)
    assert fitting is None or fitting.tokens <= tokens


def test_a_quote_beyond_the_promise_is_counted_whole(fresh):
    long = [Turn(f"t{n}", "there", "user", "今天" * 9_000, n, 0, 0) for n in range(3)]
    lines = [line_of(turn, "here", fresh) for turn in long]
    piece = retrieved_piece(lines, "abcdef", fresh.frame(RETRIEVED_TITLE, "abcdef"), fresh)
    assert len(piece.text) > ENCODE_CHARS_MAX
    assert piece.tokens is None


def test_a_line_is_made_for_each_side_of_a_session(fresh):
    turn = Turn("t", "s", "user", "hello", 1, 0, 0, speaker="Ada")
    assert line_of(turn, "s", fresh).source == "1970-01-01T00:00:00Z, user Ada"
    assert line_of(turn, "other", fresh).source == "1970-01-01T00:00:00Z, session s, user Ada"
    assert line_of(turn, "s", fresh) is line_of(turn, "s", fresh)


def test_what_is_kept_goes_with_its_value():
    kept = Kept(Entry, 10)
    turns_held = [Turn("t", "s", "user", "hello", 1, 0, 0) for _ in range(3)]
    entries = [kept.of(turn) for turn in turns_held]
    assert [kept.of(turn) for turn in turns_held] == entries
    assert len({id(entry) for entry in entries}) == len(kept) == 3
    del turns_held[1:]
    assert len(kept) == 1


def test_what_is_kept_has_a_bound_and_what_is_used_stays():
    kept = Kept(Entry, 4)
    used, *others = [Turn(f"t{n}", "s", "user", "hello", n, 0, 0) for n in range(100)]
    entry = kept.of(used)
    for turn in others:
        kept.of(turn)
        assert kept.of(used) is entry
        assert len(kept) <= 8


def test_no_context_keeps_what_it_was_made_of(tokenizer):
    """What its owner lets go of is gone, and all that was worked out of it."""
    turn = Turn("t", "here", "user", "the door code is 90331", 1, 0, 0, speaker="Ada")
    found = Turn("f", "there", "user", "the gate code is 90332", 2, 0, 0)
    fact = Fact("code", "90333", 3, 0)
    summary = Summary("here", "2023-05-08 Ada: 90334", 1, 1, 9, "v", "h", 4, 0, 9, ranks=(0,), line_seqs=(0,))
    inputs = ContextInputs(
        session="here",
        query="?",
        budget_tokens=800,
        now=1,
        facts=(fact,),
        summary=summary,
        turns=(turn,),
        hits=(Hit(found, 1.0, "hot"),),
    )
    costs = costs_by(tokenizer)
    gc.collect()
    before = len(costs.turns), len(costs.facts), len(costs.summaries)
    context = build_context(inputs, DEFAULT_LAYOUT, tokenizer)
    assert {f"9033{n}" for n in range(1, 5)} == set(re.findall("9033[0-9]", str(context.messages)))
    assert (len(costs.turns), len(costs.facts), len(costs.summaries)) == (before[0] + 2, before[1] + 1, before[2] + 1)
    gone = [weakref.ref(one) for one in (turn, found, fact, summary)]
    del turn, found, fact, summary, inputs, context
    assert [reference() for reference in gone] == [None] * 4
    assert (len(costs.turns), len(costs.facts), len(costs.summaries)) == before


def test_an_edited_turn_is_counted_anew(tokenizer):
    """Same id, same seq, other words."""
    for text in ("short", "now it is a good deal longer than it was", ""):
        turn = Turn("t", "here", "user", text, 1, 0, 0, rev=len(text))
        inputs = ContextInputs(session="here", query="?", budget_tokens=500, now=1, turns=(turn,))
        built = build_context(inputs, DEFAULT_LAYOUT, tokenizer)
        assert built.zones["recent"].tokens == 4 + tokenizer.count(text or BLANK)


def test_kept_counts_decide_nothing(tokenizer):
    """The same inputs as other objects, of which nothing is kept, give the same context."""
    said = tuple(Turn(f"t{n}", "here", "user", f"word {n} " * 9, n, 0, n) for n in range(40))
    hits = tuple(Hit(Turn(f"f{n}", "there", "user", f"boat {n} " * 9, 50 + n, 0, n), 1.0, "hot") for n in range(40))
    given_inputs = ContextInputs(session="here", query="?", budget_tokens=900, now=1, turns=said, hits=hits)
    first = [build_context(given_inputs, DEFAULT_LAYOUT, tokenizer) for _ in range(2)]
    again = build_context(copy.deepcopy(given_inputs), DEFAULT_LAYOUT, tokenizer)
    assert first == [again, again]


def test_a_tokenizer_has_its_own_counts():
    first, second = (costs_by(open_tokenizer(name)) for name in ENCODINGS)
    turn = Turn("t", "here", "user", "我的猫叫饼干", 1, 0, 0)
    assert first.said(turn, turn.text) != second.said(turn, turn.text)
