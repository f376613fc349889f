"""A service that holds two versions of everything, as one does in a migration, and queries whose answers are known."""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from serve_app.config import MultilingualOptions
from serve_app.migrate.record import Migration, Terms
from serve_app.models.embed import EncoderOptions, open_embedder
from serve_app.models.stub import HashEmbedder
from serve_app.ports import Embedder, Encodings
from serve_app.routing import Routing
from tests.api.running import Running, hash_settings, word

BASE, TARGET = Routing("hash_256", "hash_256"), Routing("hash_512", "hash_512")

MIXED = "海象"
"""Whoever has said something in another script has vectors of both versions of all that comes after it."""


class Broken(HashEmbedder):
    """Each text has the vectors of nothing that it says, though the same ones each time."""

    def encode(self, texts: Sequence[str], *, tokens: bool = False) -> Encodings:
        whole = super().encode(texts, tokens=tokens)
        held = None if whole.tokens is None else list(map(_shuffled, whole.tokens, texts))
        return Encodings(np.stack(list(map(_shuffled, whole.vectors, texts))), whole.counts, held)


def _shuffled(rows: Any, text: str) -> Any:
    random = np.random.default_rng(zlib.crc32(text.encode()))
    return rows[..., random.permutation(rows.shape[-1])]


def opened(broken: bool) -> Any:
    """For `Service(encoder=)`."""

    def open_one(options: EncoderOptions) -> Embedder:
        if broken and options.model == "hash-512":
            return Broken(512)
        return open_embedder(options)

    return open_one


def two_versions(folder: Path, *, broken: bool = False, **sections: Any) -> Running:
    encoders = {"encoder": EncoderOptions(model="hash-256"), "multilingual": MultilingualOptions(model="hash-512")}
    return Running(hash_settings(folder, **encoders, **sections), encoder=opened(broken))


def fill(running: Running, user: str, turns: int = 60, golden: int = 24, key: str = "") -> None:
    """Turns that each name a thing, and golden queries that name it by a longer word, which no stemmer knows."""
    first = first_of(user)
    running.append(user, "s", MIXED, wait="indexed", key=key)
    said = [
        {"id": f"t{at}", "role": "user", "content": f"yesterday {word(first + at)} stood by {word(first + at + 500)}"}
        for at in range(turns)
    ]
    for start in range(0, turns, 30):
        running.append(user, "s", *said[start : start + 30], wait="indexed", key=key)
    for at in range(golden):
        body = {
            "user_id": user,
            "query": asked(first + at),
            "gold": [{"session_id": "s", "turn_id": f"t{at}"}],
        }
        running.ok("POST", "/v1/golden", json=body, key=key)


def first_of(user: str) -> int:
    """The number of the user's first word: no two users share any."""
    return sum(map(ord, user)) * 1_000


def asked(number: int) -> str:
    return f"{word(number)}q?"


def migration(**terms: Any) -> Migration:
    wanted = {"k": 5, "queries_min": 20, "loss": 0.05} | terms
    return Migration("m-1", "embedding", "verify", 0, Terms(**wanted), base=BASE, target=TARGET)
