"""Builders of small conversations, and a context built from one."""

import itertools
from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from serve_app.context.inputs import ContextInputs
from serve_app.context.layout import DEFAULT_LAYOUT, Layout
from serve_app.context.tokens import open_tokenizer
from serve_app.context.window import Context, build_context
from serve_app.core import Fact, Summary, Turn
from serve_app.ports import Tokenizer

MAY_8_2023 = 1_683_536_400_000_000
NOW = 1_717_243_200_000_000
NEVER = 4_000_000_000_000_000


@pytest.fixture(scope="session")
def tokenizer() -> Tokenizer:
    return open_tokenizer()


@pytest.fixture
def turn() -> Callable[..., Turn]:
    """Turns of session `here`, numbered from one, a minute apart."""
    numbers = itertools.count(1)

    def build(content: str, role: str = "user", **fields: Any) -> Turn:
        seq = next(numbers)
        at = MAY_8_2023 + seq * 60_000_000
        given = {"id": f"t{seq}", "session": "here", "seq": seq, "arrived_at": at, "created_at": at, **fields}
        return Turn(role=role, content=content, **given)

    return build


@pytest.fixture
def pair(turn: Callable[..., Turn]) -> Callable[..., tuple[Turn, Turn]]:
    """A call and its result."""
    numbers = itertools.count(1)

    def build(call: str, result: str, **fields: Any) -> tuple[Turn, Turn]:
        link = {"tool_call_id": f"call-{next(numbers)}", "tool_name": "lookup", **fields}
        return turn(call, "assistant", **link), turn(result, "tool", **link)

    return build


@pytest.fixture
def fact() -> Callable[..., Fact]:
    def build(key: str, value: str, **fields: Any) -> Fact:
        return Fact(key=key, value=value, seq=1, written_at=MAY_8_2023, **fields)

    return build


@pytest.fixture
def summary() -> Callable[..., Summary]:
    def build(text: str, first: int, last: int, **fields: Any) -> Summary:
        made = {"version": "v1", "input_hash": "h", "created_at": MAY_8_2023, "expires_at": NEVER, **fields}
        return Summary(session="here", text=text, first_seq=first, last_seq=last, tokens=1, seq=last, **made)

    return build


@pytest.fixture
def context(tokenizer: Tokenizer) -> Callable[..., Context]:
    """Builds a context for session `here` and checks what must hold for every one."""

    def build(*turns: Turn, layout: Layout = DEFAULT_LAYOUT, **fields: Any) -> Context:
        given = {"query": "And now?", "budget_tokens": 4000, "now": NOW, **fields}
        inputs = ContextInputs(session="here", turns=turns, **given)
        built = build_context(inputs, layout, tokenizer)
        assert built.total_tokens == sum(zone.tokens for zone in built.zones.values()) <= inputs.budget_tokens
        assert msgspec.json.encode(build_context(inputs, layout, tokenizer)) == msgspec.json.encode(built)
        return built

    return build


@pytest.fixture
def shown() -> Callable[[Context], str]:
    """All that a model reads of a context, as JSON would hold it but without escapes."""

    def flatten(value: Any) -> str:
        if isinstance(value, dict):
            value = list(value.values())
        if isinstance(value, list | tuple):
            return "\n".join(flatten(part) for part in value)
        return "" if value is None else str(value)

    return lambda built: flatten([built.system, built.messages, built.text])
