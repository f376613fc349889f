"""Every seam on one page: what the core asks of models and stores. Six methods at most each.

Backends live in `stores/` and `models/`; one contract suite in `tests/contracts/` runs over all
backends of a port. Implementations translate foreign errors into `errors` at this seam and
nowhere else.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from datetime import datetime
from typing import NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from serve_app.breaker import Breaker
from serve_app.core import EmbeddingVersion, TimeWindow

Vectors = NDArray[np.float32]
"""Shape (n, dimension), unit length where the version is normalised."""

Rows = NDArray[np.int64]
"""Shape (n,), vector row ids: `seq * ROWS_PER_TURN_MAX + part`."""


TOKEN_DIMENSION = 64
"""Components of a compressed token vector."""

Tokens = NDArray[np.int8]
"""Shape (tokens, TOKEN_DIMENSION): the vectors of a text's tokens, each of length 127, rounded."""

Spans = NDArray[np.int32]
"""Shape (tokens, 2): where each token of a text begins and ends in it, in characters; (0, 0) where it is not of it."""


class Encodings(NamedTuple):
    """What one version makes of some texts, each in their order."""

    vectors: Vectors
    counts: list[int]
    """Tokens that were read of each text; max_tokens or more where that may not be all of it."""
    tokens: list[Tokens] | None = None
    """None where the version gives none, or nobody asked for them."""

    def part(self, start: int, end: int) -> Encodings:
        """Of the texts from `start` to before `end`."""
        tokens = None if self.tokens is None else self.tokens[start:end]
        return Encodings(self.vectors[start:end], self.counts[start:end], tokens)


class HotProducts(NamedTuple):
    """What a hot shard says of one user's vectors: each row with its inner product with the query."""

    rows: Rows
    scores: NDArray[np.float32]
    newest: int
    """The seq of the newest record of vectors that is in it: who knows of another one cannot use this."""


class EncodedQuery(NamedTuple):
    """A query as one version sees it; `tokens` and `spans` are of one length, None where the version gives none."""

    version: str
    vector: NDArray[np.float32]
    tokens: Tokens | None = None
    spans: Spans | None = None
    products: HotProducts | None = None
    """Of the user who asks, where a hot shard has been asked."""


class Shortlist(NamedTuple):
    """Texts to be put in order for one query, best first as far as is known, and what is known of them."""

    query: str
    texts: Callable[[], Sequence[str]]
    """Written out only for who reads them."""
    scores: NDArray[np.float64]
    """Shape (n,): what the stage before says of each."""
    features: NDArray[np.float32]
    """Shape (n, len(names)), NaN where something is not known."""
    names: tuple[str, ...] = ()
    """Of the columns of `features`."""


class Reranker(Protocol):
    """Judges a shortlist. Called from any thread."""

    @property
    def name(self) -> str:
        """Of what computes, with its state: another model is another name."""
        ...

    def scores(self, shortlist: Shortlist, deadline: float) -> NDArray[np.float64]:
        """Shape (n,), higher is better, 0 to 1. `deadline` is on the monotonic clock.

        Raises TimeoutError once it has passed, RerankerUnavailable, Overloaded.
        """
        ...

    def contributions(self, shortlist: Shortlist) -> dict[str, NDArray[np.float64]]:
        """What each thing that it looked at added, by name, shape (n,) each; empty where it cannot say."""
        ...


class SegmentReader(Protocol):
    """The files of one shard's log, for one who only reads them."""

    def read(self, name: str) -> bytes:
        """Raises NotFound, StoreUnavailable."""
        ...

    def names(self) -> list[str]:
        """All names, sorted. Raises StoreUnavailable, also where the folder itself is missing."""
        ...


class WatchedSegments(SegmentReader, Protocol):
    """What a follower asks of the files of a shard's log. It changes nothing, not even a leftover."""

    def stamp(self, name: str) -> Hashable:
        """Changes when other bytes come to stand under this name; None where surely nothing is there. It costs next to
        nothing.

        Raises StoreUnavailable.
        """
        ...


class SegmentStore(Protocol):
    """Immutable named byte strings: the files of one shard's log, on disk or in object storage."""

    def create(self, name: str, data: bytes) -> None:
        """Make `name` hold `data`, durably, before returning.

        Raises NameTaken if the name exists, StorageFull, StoreUnavailable. After an error nothing,
        or the whole of `data`, is there: never a part.
        """
        ...

    def read(self, name: str) -> bytes:
        """Raises NotFound, StoreUnavailable."""
        ...

    def names(self) -> list[str]:
        """All names, sorted."""
        ...

    def delete(self, names: Sequence[str]) -> None:
        """Remove in the given order; a name that is not there is no error."""
        ...

    def replace(self, name: str, data: bytes, keep_as: str) -> None:
        """Repair only: keep what `name` holds under `keep_as`, then make `name` hold `data`, durably."""
        ...


class HotIndex(Protocol):
    """Exact nearest neighbours inside one owner's block of vectors; blocks never mix.

    Safe for one mutating thread and any number of searching threads.
    """

    def add(self, owner: str, rows: Rows, vectors: Vectors) -> None:
        """Append to the owner's block; a row id that is there already is replaced."""
        ...

    def remove(self, owner: str, rows: Rows) -> int:
        """Take rows out; gives the number that was there."""
        ...

    def search(self, owner: str, query: Vectors, k: int) -> tuple[Rows, NDArray[np.float32]]:
        """The at most k rows with the largest inner product with `query` (shape (dimension,)), best first."""
        ...

    def products(self, owner: str, query: Vectors) -> tuple[Rows, NDArray[np.float32]]:
        """Each row of the owner's block, in any order, with its inner product with `query`.

        An index that gives no more than so many at a time gives the best of a larger block.
        """
        ...

    def drop(self, owner: str) -> None:
        """Forget the owner's whole block."""
        ...

    def count(self, owner: str) -> int:
        """Rows in the owner's block."""
        ...


class Embedder(Protocol):
    """Text to vectors of one version. Blocking; called from one thread only."""

    @property
    def version(self) -> EmbeddingVersion: ...

    def embed(self, texts: Sequence[str]) -> Vectors:
        """One unit vector a text, in order. A text over the model's length is cut: split it first."""
        ...

    def encode(self, texts: Sequence[str], *, tokens: bool = False) -> Encodings:
        """`embed`, and what falls out of the same pass; with `tokens` the vectors of the tokens, too."""
        ...

    def spans(self, text: str) -> Spans | None:
        """Where the tokens stand in the text that `encode` gives vectors for; None where it gives none."""
        ...

    def chunks(self, text: str) -> list[str]:
        """The text as pieces that the model reads whole; at least one, at most ROWS_PER_TURN_MAX."""
        ...

    def count(self, texts: Sequence[str]) -> list[int]:
        """Tokens of each text, as the model reads it."""
        ...


class AskedQuery(NamedTuple):
    """A query, the texts of the turns that it follows (oldest first), and when it was asked, in the asker's zone."""

    query: str
    said: tuple[str, ...]
    now: datetime


class Expansion(NamedTuple):
    """What a query says: in words that stand alone, in a few keywords, and when that was."""

    rewritten: str
    keywords: tuple[str, ...]
    window: TimeWindow | None


class Expander(Protocol):
    """Reads queries. Called on the event loop."""

    @property
    def breaker(self) -> Breaker:
        """By which it is left alone after faults."""
        ...

    async def expand(self, asked: AskedQuery, deadline_s: float | None) -> Expansion:
        """Raises ExpanderFailed, within its own deadline or the given one, whichever is earlier."""
        ...

    async def close(self) -> None: ...


class SummaryTask(NamedTuple):
    """What a model is to make shorter: a stretch of a conversation, or a draft of its summary to be calibrated."""

    text: str
    """Lines of `date speaker: text`; data, never instructions."""
    target_tokens: int
    """By the service's tokenizer, as an aim: what is longer is cut by others."""
    keep: tuple[str, ...] = ()
    """Literal spans that should stand in the answer word for word."""
    draft: str = ""
    """What a coarser model made of the text; empty for the first pass."""


class Summariser(Protocol):
    """Makes text shorter. Blocking, called from any thread; the same task gives the same text."""

    @property
    def name(self) -> str:
        """Of what computes, with its state: another model, revision or prompt is another name."""
        ...

    @property
    def window_tokens(self) -> int:
        """About how many tokens of text one task may have: who has more asks several times."""
        ...

    @property
    def trouble(self) -> str | None:
        """Why it gives nothing at the moment; None where nothing is known against it."""
        ...

    @property
    def breaker(self) -> Breaker:
        """By which it is left alone after faults."""
        ...

    def summarise(self, task: SummaryTask, deadline_s: float) -> str:
        """Plain text. Raises SummariserFailed: down, slow, refused, of no use, left alone after faults.

        It returns or raises within `deadline_s` from now, whatever the model does.
        """
        ...

    def close(self) -> None: ...


class Tokenizer(Protocol):
    """Counts tokens the way a named model family does. Hashable, by identity."""

    def __hash__(self) -> int: ...

    @property
    def name(self) -> str: ...

    @property
    def lines_add_up_to(self) -> int:
        """Characters up to which a text counts as much as its lines with their ends, 0 for none.

        For lines that begin with `[`, a letter or an ASCII digit. A line that begins with `[` and ASCII letters or
        digits also counts as much as these and, from the next space on, its rest.
        """
        ...

    def count(self, text: str) -> int: ...

    def truncate(self, text: str, tokens: int) -> str:
        """The longest prefix of at most `tokens` tokens, never ending inside a character."""
        ...
