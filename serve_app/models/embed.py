"""Text to vectors: any encoder that transformers can load, as one named embedding version.

Owns the encoder's tokenizer and the knobs that make a version. Promises unit vectors in the caller's order,
the same for a text alone and beside others up to rounding, and pieces of long texts that the model
reads whole. torch and the weights are loaded by the first `embed`, in its thread, so that a service
can answer what needs no vector in the meantime.
"""

from __future__ import annotations

import importlib.util
import re
from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Literal, cast

import msgspec
import numpy as np
from numpy.typing import NDArray

from serve_app.core import EmbeddingVersion, TurnForm
from serve_app.errors import EncoderUnavailable
from serve_app.models.chunking import pieces
from serve_app.models.multilingual import MULTILINGUAL, MultilingualEmbedder
from serve_app.models.placed import Placed, Placement
from serve_app.models.projection import token_projection
from serve_app.models.stub import DIMENSION as HASH_DIMENSION
from serve_app.models.stub import HashEmbedder
from serve_app.models.weights import PACKAGED, EncoderFiles, encoder_files, named
from serve_app.ports import Embedder, Encodings, Spans, Vectors

if TYPE_CHECKING:
    from tokenizers import Encoding, Tokenizer

    from serve_app.models.forward import Forward

__all__ = ["EncoderOptions", "TransformersEmbedder", "open_embedder"]

HASH_MODEL = re.compile(r"hash(?:-([1-9]\d{0,3}))?")
"""Model names that open `HashEmbedder`: no weights, no torch. `hash-384` has vectors as long as those of an encoder."""

TEXT = "{text}"
"""Where the text goes in a template."""

MAX_TOKENS = 512
"""Length of an encoder whose authors state none, where its positions allow as much."""

SPARE_TOKENS = 4
"""Left free in a piece: a text cut inside a long word can take a few tokens more on its own."""

CHARACTERS_PER_TOKEN_MAX = 64
"""`embed` reads no more of a text than this many characters a token: the rest would be cut off anyway."""

INSTALL = "pip install torch transformers"

NumberFormat = Literal["auto", "float32", "bfloat16", "float16"]


class EncoderOptions(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Which encoder, and how. `None` takes what the encoder's own files state.

    `model` is the packaged default, the packaged "use-multilingual-v3", a folder, a hub id, or "hash" (deterministic,
    no meaning: for tests; "hash-384" with so many dimensions).
    `turns` says how a turn is written out before the template: "contextual" (with speaker and day) or "plain".
    All but `device` ("auto", "cpu", "cuda", "cuda:1"), `number_format`, `placement` and `deployment` are part of the
    version: a change is a migration. `number_format` "auto" is half precision where the device computes in it.
    `placement` says where the encoder runs: inside the service's process, or in a deployment of its own, which only the
    Ray engine has; `deployment` how many replicas that has.
    """

    model: str = PACKAGED
    revision: str | None = None
    pooling: Literal["mean", "cls"] | None = None
    template: str = TEXT
    normalise: bool = True
    max_tokens: int | None = None
    turns: TurnForm = "contextual"
    device: str = "auto"
    number_format: NumberFormat = "auto"
    placement: Placement = "inside"
    deployment: Placed = Placed()

    def __post_init__(self) -> None:
        """Raises ValueError for what the named encoder cannot do."""
        shaping = (self.revision, self.pooling, self.template, self.normalise, self.max_tokens)
        if self.model == MULTILINGUAL and shaping != (None, None, TEXT, True, None):
            raise ValueError(f"the encoder {MULTILINGUAL} has no revision, pooling, template, normalise or max_tokens")


def open_embedder(options: EncoderOptions | None = None) -> Embedder:
    """Open an encoder. Raises EncoderUnavailable, naming the install command where something is missing."""
    options = options or EncoderOptions()
    if hashing := HASH_MODEL.fullmatch(options.model):
        return HashEmbedder(int(hashing[1] or HASH_DIMENSION), options.turns)
    if options.model == MULTILINGUAL:
        return MultilingualEmbedder(options.turns)
    return TransformersEmbedder(options.model, options)


class TransformersEmbedder:
    """`ports.Embedder` on torch. `chunks` and `count` may be called from any thread, `embed` from one."""

    def __init__(self, folder_or_hub_id: str = PACKAGED, options: EncoderOptions | None = None) -> None:
        options = options or EncoderOptions()
        if TEXT not in options.template:
            raise ValueError(f"the template {options.template!r} has no {TEXT}")
        files = encoder_files(folder_or_hub_id, options.revision)
        pooling = cast(Literal["mean", "cls"], options.pooling or files.pooling)
        _require_torch()
        self._projection = token_projection(files.model, files.revision)
        self._open_forward = partial(_open_forward, files, pooling, options, self._projection)
        self._forward: Forward | None = None
        self._tokenizer = _open_tokenizer(files)
        self._version = _version(files, pooling, options)
        self._template = options.template
        self._before, self._after = _special_tokens(self._tokenizer)
        self._room = self._version.max_tokens - self.count([""])[0] - SPARE_TOKENS
        if self._room < 1:
            raise ValueError(f"the template leaves no room in {self._version.max_tokens} tokens")

    @property
    def version(self) -> EmbeddingVersion:
        return self._version

    def embed(self, texts: Sequence[str]) -> Vectors:
        return self.encode(texts).vectors

    def encode(self, texts: Sequence[str], *, tokens: bool = False) -> Encodings:
        """The first call loads the weights: seconds. Raises EncoderUnavailable where that fails, at each call."""
        if self._forward is None:
            self._forward = self._open_forward()
        token_ids = self._read(texts)
        most, whole = self._version.max_tokens, self._version.max_tokens * CHARACTERS_PER_TOKEN_MAX
        counts = [len(ids) if len(text) <= whole else most for ids, text in zip(token_ids, texts, strict=True)]
        vectors, compressed = self._forward.encoded(token_ids, tokens=tokens)
        if compressed is not None:
            compressed = [self._without_special(own) for own in compressed]
        return Encodings(vectors, counts, compressed)

    def spans(self, text: str) -> Spans | None:
        if self._projection is None:
            return None
        begin = self._template.index(TEXT)
        offsets = np.array(self._whole_or_cut(self._filled(self._capped(text))).offsets, np.int32).reshape(-1, 2)
        spans = self._without_special(offsets) - begin
        spans[(spans[:, 0] < 0) | (spans[:, 1] > len(text))] = 0  # what the template says
        return spans

    def chunks(self, text: str) -> list[str]:
        if len(text) <= self._room and text.isascii():  # a token takes a character at least: no need to count them
            return [text]
        encoding: Encoding = self._tokenizer.encode(text, add_special_tokens=False)
        if len(encoding) <= self._room:  # the lists of a long text's tokens are made only where they are needed
            return [text]
        return pieces(text, encoding.offsets, encoding.word_ids, self._room)

    def count(self, texts: Sequence[str]) -> list[int]:
        return [len(self._tokenizer.encode(self._filled(text))) for text in texts]

    def _read(self, texts: Sequence[str]) -> list[list[int]]:
        """The token ids of each text as the model reads it. A batch is tokenised without the interpreter's lock."""
        most = self._version.max_tokens
        filled = [self._filled(self._capped(text)) for text in texts]
        encodings: list[Encoding] = self._tokenizer.encode_batch_fast(filled)
        pairs = zip(encodings, filled, strict=True)
        return [encoding.ids if len(encoding) <= most else self._whole_or_cut(text).ids for encoding, text in pairs]

    def _whole_or_cut(self, filled: str) -> Encoding:
        """The first of a long text's tokens, with those that the model puts before and after a text."""
        encoding: Encoding = self._tokenizer.encode(filled, add_special_tokens=False)
        encoding.truncate(self._version.max_tokens - self._tokenizer.num_special_tokens_to_add(False))
        return self._tokenizer.post_process(encoding)

    def _without_special(self, rows: NDArray[Any]) -> NDArray[Any]:
        return rows[self._before : max(len(rows) - self._after, self._before)]

    def _capped(self, text: str) -> str:
        return text[: self._version.max_tokens * CHARACTERS_PER_TOKEN_MAX]

    def _filled(self, text: str) -> str:
        return self._template.replace(TEXT, text)


def _require_torch() -> None:
    """Told at once, long before torch is imported."""
    missing = [name for name in ("torch", "transformers") if importlib.util.find_spec(name) is None]
    if missing:
        raise EncoderUnavailable(f"an encoder needs {' and '.join(missing)}: {INSTALL}")


def _open_forward(
    files: EncoderFiles, pooling: str, options: EncoderOptions, projection: NDArray[np.float32] | None
) -> Forward:
    from serve_app.models.forward import Forward

    return Forward(
        files.folder,
        pooling=pooling,
        normalise=options.normalise,
        device=options.device,
        wanted_format=options.number_format,
        projection=projection,
    )


def _special_tokens(tokenizer: Tokenizer) -> tuple[int, int]:
    """How many the model puts before and after a text."""
    special = tokenizer.encode("a").special_tokens_mask
    before = special.index(0) if 0 in special else 0
    return before, sum(special) - before


def _open_tokenizer(files: EncoderFiles) -> Tokenizer:
    """The folder's fast tokenizer, without the truncation and padding that its authors may have left on."""
    from tokenizers import Tokenizer

    path = files.folder / "tokenizer.json"
    try:
        if path.is_file():
            tokenizer = Tokenizer.from_file(str(path))
        else:
            from transformers import AutoTokenizer

            tokenizer = AutoTokenizer.from_pretrained(files.folder, local_files_only=True).backend_tokenizer
    except Exception as error:  # the tokenizers library raises a bare one
        raise EncoderUnavailable(f"the tokenizer in {files.folder} cannot be read: {error}") from error
    tokenizer.no_truncation()
    tokenizer.no_padding()
    return tokenizer


def _version(files: EncoderFiles, pooling: Literal["mean", "cls"], options: EncoderOptions) -> EmbeddingVersion:
    max_tokens = options.max_tokens or files.max_tokens or MAX_TOKENS
    return named(
        EmbeddingVersion(
            name="",
            model=files.model,
            revision=files.revision,
            pooling=pooling,
            template=options.template,
            dimension=files.dimension,
            max_tokens=min(max_tokens, files.positions),
            normalised=options.normalise,
            turns=options.turns,
        )
    )
