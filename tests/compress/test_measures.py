"""Drift is an edit distance; retention is measured on held-out dialogues that say what must be kept."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from serve_app.compress.compressor import Compressor
from serve_app.compress.retention import Kept, held_out, kept_in, measured
from serve_app.context.tokens import open_tokenizer
from serve_app.drift import WORDS_MAX, distance

texts = st.lists(st.sampled_from(["a", "b", "cc", "猫", "虾"]), max_size=12).map(" ".join)


@given(texts, texts)
def test_distance_is_a_share_and_the_same_both_ways(one: str, other: str) -> None:
    found = distance(one, other)
    assert found == distance(other, one)
    assert 0 <= found <= 1
    assert (found == 0) == (one == other)


def test_distance_counts_words_and_characters_where_there_are_no_spaces() -> None:
    assert distance("one two three four", "one two four") == 1 / 4
    assert distance("我对虾过敏", "我对蟹过敏") == 1 / 5
    assert distance("a b", "c d e f") == 1
    assert distance("a " * WORDS_MAX, "a " * WORDS_MAX + "b") == 0


def test_the_held_out_dialogues_say_what_must_be_kept_of_them() -> None:
    assert {one.lang for one in held_out()} == {"en", "zh"}
    assert len({one.id for one in held_out()}) == len(held_out()) == 12
    for dialogue in held_out():
        whole = "\n".join(one.content for one in dialogue.turns)
        assert kept_in(whole, dialogue) == Kept(len(dialogue.must_keep), len(dialogue.must_keep)), dialogue.id
        assert kept_in("nothing of it", dialogue).kept == 0


def test_words_that_stand_in_two_lines_are_not_kept() -> None:
    dialogue = next(one for one in held_out() if one.must_keep[-1] == ("refuse", "pool"))
    assert kept_in("I refuse to pay\nextra for a pool", dialogue).kept == 0
    assert kept_in("I REFUSE to pay extra for a pool", dialogue).kept == 1


def test_the_default_keeps_most_of_it() -> None:
    found = list(measured(Compressor(), open_tokenizer(), 10.0))
    assert len(found) == len(held_out())
    assert sum(one.kept for one in found) >= 0.7 * sum(one.all for one in found)
