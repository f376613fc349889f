"""Units made vectors: the same bytes as the indexer records, whatever fails beside them."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
import numpy as np
import pytest

from jobs.embedding import SOUND, Worker
from jobs.reading import StoredBody, Unit
from serve_app.core import Turn
from serve_app.errors import EncoderUnavailable
from serve_app.models.stub import HashEmbedder
from serve_app.ports import Encodings
from serve_app.stores.packing import turn_text, turn_vectors

BAD = "this one is refused"


class Moody(HashEmbedder):
    """Raises for each batch that holds a refused text; notes the sizes of its batches."""

    def __init__(self, refused: str = BAD, dimension: int = 64) -> None:
        super().__init__(dimension)
        self._refused = refused
        self.batches: list[list[str]] = []

    def encode(self, texts: Sequence[str], *, tokens: bool = False) -> Encodings:
        self.batches.append(list(texts))
        if any(self._refused in text for text in texts):
            raise ValueError("secret content")
        return super().encode(texts, tokens=tokens)


def turn(seq: int, content: str) -> Turn:
    return Turn(f"t{seq}", "s", "user", content, seq, 0, 0, rev=seq)


def unit(*turns: Turn, owner: str = "o") -> Unit:
    bodies = [StoredBody(owner, one.seq, one.rev, msgspec.msgpack.encode(one)) for one in turns]
    return Unit(0, 1, 256, tuple(bodies))


def test_vectors_are_those_that_the_indexer_makes() -> None:
    embedder = HashEmbedder(64)
    turns = [turn(1, "short"), turn(2, "a longer text about tables " * 40), turn(3, "between the two"), turn(4, "")]
    made = Worker(embedder).embed(unit(*turns))
    for one, item in zip(turns, made.items, strict=True):
        pieces = embedder.chunks(turn_text(one))
        assert item.vectors == turn_vectors(one, "contextual", embedder.encode(pieces, tokens=True))
    assert (made.dead, made.first, made.last) == ((), 1, 256)


def test_slices_are_sorted_by_length_and_bounded() -> None:
    embedder = Moody()
    turns = [turn(seq, "word " * (seq % 17 + 1)) for seq in range(1, 120)]
    Worker(embedder, slice_tokens=200).embed(unit(*turns))
    lengths = [len(text) for batch in embedder.batches for text in batch]
    assert lengths == sorted(lengths)
    assert len(embedder.batches) > 5


def test_a_text_that_fails_is_found_and_the_others_have_their_vectors() -> None:
    turns = [turn(seq, BAD if seq in (3, 77) else f"text number {seq}") for seq in range(1, 101)]
    made = Worker(Moody()).embed(unit(*turns))
    assert [(one.seq, one.rev, one.reason) for one in made.dead] == [(3, 3, "ValueError"), (77, 77, "ValueError")]
    assert [item.vectors.turn_seq for item in made.items] == [seq for seq in range(1, 101) if seq not in (3, 77)]


def test_a_body_that_cannot_be_read_is_a_dead_letter() -> None:
    good = unit(turn(1, "good"), turn(2, "good"))
    torn = msgspec.structs.replace(good, turns=(StoredBody("o", 9, 9, b"\xc1no turn"), *good.turns))
    made = Worker(HashEmbedder(64)).embed(torn)
    assert [(one.seq, one.reason) for one in made.dead] == [(9, "DecodeError")]
    assert len(made.items) == 2


def test_an_encoder_that_fails_at_everything_is_an_error_and_no_dead_letter() -> None:
    with pytest.raises(EncoderUnavailable):
        Worker(Moody(refused="")).embed(unit(turn(1, "good")))
    assert SOUND


def test_vectors_that_are_no_numbers_are_dead_letters() -> None:
    class Nan(HashEmbedder):
        def encode(self, texts: Sequence[str], *, tokens: bool = False) -> Encodings:
            found = super().encode(texts, tokens=tokens)
            found.vectors[[BAD in text for text in texts]] = np.nan
            return found

    made = Worker(Nan(64)).embed(unit(turn(1, "good"), turn(2, BAD)))
    assert [one.seq for one in made.dead] == [2]


def test_it_rests_between_slices_and_takes_smaller_ones_then() -> None:
    embedder, worked = Moody(), []

    def rest(worked_s: float) -> bool:
        worked.append(worked_s)
        return True

    turns = [turn(seq, "word " * 60) for seq in range(1, 101)]
    Worker(embedder, rest).embed(unit(*turns))
    assert len(worked) == len(embedder.batches)
    sizes = [len(batch) for batch in embedder.batches]
    assert max(sizes[1:]) < sizes[0]
