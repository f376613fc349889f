"""A service whose reranker finds what words and vectors do not, and golden queries that say so."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

from serve_app.migrate.control import ControlBounds
from serve_app.models.embed import EncoderOptions
from tests.api.running import Running, hash_settings, word

FILLER = 40
"""Words of each turn beside the one that is asked for: its vector says little of any of them."""


def small(folder: Path, opened: Mapping[str, Any] = MappingProxyType({}), **sections: Any) -> Running:
    """`opened`: what opens models in the place of what the service opens."""
    idle = {"control": ControlBounds(poll_s=3_600)}  # what serves whom is changed by hand
    return Running(hash_settings(folder, encoder=EncoderOptions(model="hash-256"), **sections), **(idle | opened))


def fill(running: Running, user: str, turns: int = 40, golden: int = 24) -> None:
    """Each golden query asks for a word that its turn alone has, with another ending: its tokens alone resemble it."""
    first = sum(map(ord, user)) * 1_000
    said = [
        {"id": f"t{at}", "role": "user", "content": f"{noise(first + at)} {word(first + at)} {noise(first + at + 7)}"}
        for at in range(turns)
    ]
    for start in range(0, turns, 20):
        running.append(user, "s", *said[start : start + 20], wait="indexed")
    for at in range(golden):
        gold = [{"session_id": "s", "turn_id": f"t{at}"}]
        body = {"user_id": user, "query": f"{word(first + at)}q?", "gold": gold}
        running.ok("POST", "/v1/golden", json=body)


def noise(number: int) -> str:
    return " ".join(word(10_000_000 + number * 31 + 17 * at) for at in range(FILLER // 2))
