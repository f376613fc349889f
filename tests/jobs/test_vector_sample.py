"""A sample depends on its seed alone, and a vector that is not that of its text is told apart from rounding."""

import random

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from jobs.vector_sample import Group, Stored, compared, draw, merged, smallest
from serve_app.core import Turn
from serve_app.models.stub import HashEmbedder
from serve_app.stores.packing import pack_vectors, text_digest, turn_text, unpack_vectors

GROUP = Group(0, "v", "inline", 0)
EMBEDDER = HashEmbedder(64)
TURN = Turn("1", "s", "user", "the ferry leaves at seven " * 3, 1, 0, 0)


@given(st.lists(st.integers(0, 10**6), unique=True, max_size=60), st.integers(1, 9), st.integers(0, 59))
def test_two_parts_of_a_sample_are_the_sample_of_the_whole(seqs, sample, cut):
    draws = [(draw(7, GROUP, seq), seq) for seq in seqs]
    parts = ({GROUP: smallest(one, sample)} for one in (draws[:cut], draws[cut:]))
    assert merged(*parts, sample) == {GROUP: smallest(draws, sample)}


def test_another_seed_draws_other_turns():
    one, other = (
        [seq for _, seq in smallest([(draw(seed, GROUP, seq), seq) for seq in range(999)], 9)] for seed in (1, 2)
    )
    assert one != other


def stored(turn=TURN, digest=None, change=lambda vectors: vectors):
    made = EMBEDDER.embed(EMBEDDER.chunks(turn_text(turn)))
    return Stored(turn, change(unpack_vectors(pack_vectors(made), made.shape[1])), digest)


def test_what_was_stored_as_float16_is_aligned():
    [found] = compared([stored(digest=text_digest(turn_text(TURN)))], EMBEDDER)
    assert found.cosine > 0.9999
    assert (found.fault, found.digest) == ("", True)


def turned(vectors):
    chance = np.random.default_rng(random.Random(1).randrange(99))
    mixed = vectors + 0.3 * chance.standard_normal(vectors.shape).astype(np.float32) / 8
    return mixed / np.linalg.norm(mixed, axis=1, keepdims=True)


@pytest.mark.parametrize(
    ("change", "fault"),
    [
        (turned, ""),
        (lambda one: one * 1.01, "norm"),
        (lambda one: one * 0, "norm"),
        (lambda one: one * np.float32(np.nan), "not finite"),
        (lambda one: np.concatenate([one, one]), "parts"),
        (lambda one: one[:, :32], "dimension"),
    ],
)
def test_what_is_damaged_is_told(change, fault):
    [found] = compared([stored(change=change)], EMBEDDER)
    assert found.fault == fault
    if not fault:
        assert found.cosine < 0.999


def test_vectors_of_another_text_are_told_by_their_digest():
    other = msgspec.structs.replace(TURN, speaker="Ann")
    [found] = compared([stored(digest=text_digest(turn_text(other)))], EMBEDDER)
    assert found.fault == "text"


def test_a_turn_of_several_parts_is_compared_part_by_part():
    long = msgspec.structs.replace(TURN, content=" ".join(f"word{at}" for at in range(2_000)))
    parts = len(EMBEDDER.chunks(turn_text(long)))
    spoilt = stored(long)
    if parts > 1:
        spoilt.vectors[-1] *= -1
    good, bad = compared([stored(long), spoilt], EMBEDDER)
    assert good.cosine > 0.999
    assert parts == 1 or bad.cosine < -0.99
