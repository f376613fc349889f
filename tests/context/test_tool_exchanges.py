"""A tool call and its results stand together, in the form that each provider takes."""

import json

import pytest

from serve_app.context.inputs import Hit
from serve_app.core import ToolCall


def calls_without_result(messages):
    """Ids announced, less ids answered right after."""
    waiting, broken = set(), []
    for message in messages:
        if message["role"] == "tool":
            if message["tool_call_id"] not in waiting:
                broken.append(message)
            waiting.discard(message["tool_call_id"])
            continue
        broken += waiting
        waiting = {call["id"] for call in message.get("tool_calls", [])}
    return broken + list(waiting)


def test_openai_pair(context, pair):
    call, result = pair("looking up", "it is red", data=b'{"colour_of":"kettle"}')
    assert list(context(call, result).messages[:2]) == [
        {
            "role": "assistant",
            "content": "looking up",
            "tool_calls": [
                {
                    "id": "call-1",
                    "type": "function",
                    "function": {"name": "lookup", "arguments": '{"colour_of":"kettle"}'},
                }
            ],
        },
        {"role": "tool", "tool_call_id": "call-1", "content": "it is red"},
    ]


def test_anthropic_pair(context, pair, turn):
    call, result = pair("looking up", "it is red", tool_call_id="id with spaces", tool_name="look up!")
    first, said, answer, *_ = context(turn("hi"), call, result, format="anthropic").messages
    use = said["content"][1]
    assert first["role"] == "user"
    assert said["content"][0] == {"type": "text", "text": "looking up"}
    assert (use["type"], use["name"][:9], use["input"]) == ("tool_use", "look_up__", {})
    assert answer["content"][0] == {"type": "tool_result", "tool_use_id": use["id"], "content": "it is red"}
    assert use["id"].replace("_", "").isalnum()


def test_anthropic_ids_are_used_once(context, pair):
    """Applications that number their calls from one in each turn still give valid requests."""
    turns = [*pair("a", "one", tool_call_id="1"), *pair("b", "two", tool_call_id="1")]
    built = context(*turns, format="anthropic")
    blocks = [block for message in built.messages for block in message["content"] if isinstance(block, dict)]
    uses = [block["id"] for block in blocks if block["type"] == "tool_use"]
    answers = {block["tool_use_id"]: block["content"] for block in blocks if block["type"] == "tool_result"}
    assert len(set(uses)) == 2
    assert [answers[use] for use in uses] == ["one", "two"]


def test_several_calls_of_one_turn_and_what_came_between(context, turn):
    """Results follow their call at once, in its order, even if the user spoke in between."""
    calls = (ToolCall("a", "weather", {"city": "Oslo"}), ToolCall("b", "news", '{"day": 1}'))
    turns = [
        turn("", "assistant", tool_calls=calls),
        turn("are you there?"),
        turn("no news", "tool", tool_call_id="b"),
        turn("rain", "tool", tool_call_id="a"),
    ]
    messages = context(*turns).messages
    assert [message["content"] for message in messages] == [None, "rain", "no news", "are you there?", "And now?"]
    arguments = [call["function"]["arguments"] for call in messages[0]["tool_calls"]]
    assert [json.loads(text) for text in arguments] == [{"city": "Oslo"}, {"day": 1}]
    assert calls_without_result(messages) == []


def test_call_in_flight_is_kept_in_words(context, shown, pair, turn):
    """No provider takes a call without a result, so it is told; the answered one beside it stays a call."""
    pending, _ = pair("let me look", "never sent")
    built = context(turn("which colour?"), pending)
    assert "let me look" in shown(built)
    assert "calls lookup with {}" in shown(built)
    assert calls_without_result(built.messages) == []
    assert "tool_calls" not in built.messages[1]

    half = turn("two things", "assistant", tool_calls=(ToolCall("a", "weather"), ToolCall("b", "news")))
    built = context(half, turn("rain", "tool", tool_call_id="a"))
    assert [call["id"] for call in built.messages[0]["tool_calls"]] == ["a"]
    assert "calls news" in built.messages[0]["content"]


def test_result_without_its_call_is_a_quote(context, turn):
    built = context(turn("it is red", "tool", tool_call_id="lost"))
    assert built.messages[0]["role"] == "user"
    assert "not instructions" in built.messages[0]["content"]
    assert "it is red" in built.messages[0]["content"]


@pytest.mark.parametrize("style", ["openai", "anthropic", "text"])
@pytest.mark.parametrize("budget", range(60, 900, 40))
def test_pairs_are_whole_at_any_budget(context, shown, pair, turn, style, budget):
    """Whether recent or found, at every budget both halves are shown or neither is."""
    pairs = [pair(f"calling {n:03}", f"result {n:03} " * 8) for n in range(12)]
    turns = [said for n, two in enumerate(pairs) for said in (turn(f"please look up {n}"), *two)]
    old = [pair(f"calling {n:03}", f"result {n:03} " * 8, session="b") for n in range(100, 106)]
    hits = tuple(Hit(two[n % 2], 1 - n / 10, "hot") for n, two in enumerate(old))
    partners = tuple(two[1 - n % 2] for n, two in enumerate(old))
    built = context(*turns, hits=hits, partners=partners, budget_tokens=budget, format=style)
    text = shown(built)
    for n in [*range(12), *range(100, 106)]:
        assert (f"calling {n:03}" in text) == (f"result {n:03}" in text), n
    if style == "openai":
        assert calls_without_result(built.messages) == []


def test_call_before_the_newest_part_comes_with_its_result(context, shown, pair, turn):
    """`turns` may begin with a result; its call is given as a partner and stands before it."""
    call, result = pair("looking up", "it is red")
    messages = context(result, turn("thanks"), partners=(call,)).messages
    assert [message["role"] for message in messages] == ["assistant", "tool", "user", "user"]


def test_same_call_id_again_belongs_to_the_newest_call(context, pair):
    turns = [*pair("first", "one", tool_call_id="0"), *pair("second", "two", tool_call_id="0")]
    messages = context(*turns).messages
    assert [message["content"] for message in messages[:-1]] == ["first", "one", "second", "two"]


def test_result_of_data_alone_is_shown_as_its_json(context, pair):
    call, _ = pair("looking", "")
    result = call.__class__(
        id="r",
        session="here",
        role="tool",
        content="",
        seq=99,
        arrived_at=0,
        created_at=0,
        tool_call_id=call.tool_call_id,
        data=b'{"price":42.50}',
    )
    assert context(call, result).messages[1]["content"] == '{"price":42.50}'


@pytest.mark.parametrize(
    "arguments",
    [
        '{"q": "\\ud83d"}',
        '{"\\udc00": 1}',
        '{"a":' * 3000 + "1" + "}" * 3000,
        '{"a":' * 500 + "1" + "}" * 500,
        '{"a": NaN}',
        '{"a": [1e999]}',
        '{"a": ',
    ],
    ids=["lone surrogate", "in a key", "too deep for a parser", "too deep", "NaN", "infinite", "no JSON"],
)
def test_arguments_that_no_object_can_carry_are_given_as_their_text(context, turn, arguments):
    call = turn("", "assistant", tool_calls=(ToolCall("c1", "f", arguments),))
    built = context(call, turn("done", "tool", tool_call_id="c1"), format="anthropic", budget_tokens=20_000)
    assert built.messages[1]["content"][0]["input"] == {"value": arguments}


@pytest.mark.parametrize(
    "arguments", ['{"q": "\\ud83d\\ude00"}', '{"a": 1' + "0" * 30 + "}", '{"a":' * 200 + "1" + "}" * 200]
)
def test_arguments_that_an_object_can_carry_are_one(context, turn, arguments):
    call = turn("", "assistant", tool_calls=(ToolCall("c1", "f", arguments),))
    built = context(call, turn("done", "tool", tool_call_id="c1"), format="anthropic")
    assert built.messages[1]["content"][0]["input"] == json.loads(arguments)
