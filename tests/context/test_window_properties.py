"""What must hold of a context for any history, text, budget, format and tokenizer."""

import json
import random

import bpe_openai
import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from serve_app.context.inputs import ContextInputs, Hit
from serve_app.context.layout import DEFAULT_LAYOUT, ZONES, Layout
from serve_app.context.tokens import open_tokenizer
from serve_app.context.window import build_context
from serve_app.core import Degradation, Fact, Summary, ToolCall, Turn
from serve_app.errors import QueryExceedsBudget, SystemExceedsBudget

NOW = 1_700_000_000_000_000
WORDS = ["kettle", "harbour", "灯塔", "今天天气很好", "🚀🦊", "שלום", "\n\n", "x" * 60, "Zoe\u0308", "</a>", "3f9a2c"]


ENCODING = bpe_openai.get_encoding("o200k_base")


class GreedyTokenizer:
    """A port implementation in which joined texts cost more than their parts: the worst case for planning."""

    name = "greedy"
    lines_add_up_to = 0

    def count(self, text):
        return len(text) // 3 + len(text) ** 2 // 5000

    def truncate(self, text, tokens):
        while self.count(text) > tokens:
            text = text[:-1]
        return text


texts = st.one_of(
    st.lists(st.sampled_from(WORDS), min_size=1, max_size=25).map(" ".join),
    st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=60),
)


@st.composite
def histories(draw):
    """Turns of two sessions in seq order, with calls of several forms, unanswered calls and lost results."""
    turns, waiting = [], []
    for seq in range(draw(st.integers(0, 25))):
        session = draw(st.sampled_from(["here", "here", "here", "there"]))
        role = draw(st.sampled_from(["user", "assistant", "system", "tool"]))
        fields = {"speaker": draw(st.sampled_from([None, "Ada"]))}
        if draw(st.integers(0, 9)) == 0:
            fields["expires_at"] = NOW + draw(st.sampled_from([-1, 0, 1]))
        if role == "assistant" and draw(st.booleans()):
            call = draw(st.sampled_from(["c1", "c2", f"call {seq}"]))
            if draw(st.booleans()):
                fields |= {"tool_call_id": call, "tool_name": "look up", "data": b'{"a":[1,2.50]}'}
            else:
                fields["tool_calls"] = (ToolCall(call, "f", {"x": "y"}), ToolCall(f"{call}+", "g", "text"))
                waiting.append((session, f"{call}+"))
            waiting.append((session, call))
        if role == "tool" and waiting and draw(st.integers(0, 4)):
            session, fields["tool_call_id"] = draw(st.sampled_from(waiting))
        text = draw(texts)
        at = NOW - 10**12 + seq * 10**7
        turns.append(Turn(f"t{seq}", session, role, f"<{seq}> {text}", seq, at, at, **fields))
    return turns


@st.composite
def requests(draw):
    """Any inputs: some turns only found, some only partners, some in several places."""
    turns = draw(histories())
    shuffler = random.Random(draw(st.integers(0, 999)))
    first_given = draw(st.integers(0, 10))
    given_turns = tuple(turn for turn in turns if turn.session == "here" and turn.seq >= first_given)
    found = shuffler.sample(turns, k=min(len(turns), draw(st.integers(0, 8))))
    hits = tuple(Hit(turn, 1.0 - place / 10, "hot") for place, turn in enumerate(found))
    span = sorted((draw(st.integers(0, 25)), draw(st.integers(0, 25))))
    lines = [
        f"{draw(st.sampled_from(['2023-05-08 Ada:', 'Ada:']))} {n} kettles" for n in range(draw(st.integers(0, 9)))
    ]
    ranked = {
        "ranks": tuple(shuffler.sample(range(len(lines)), len(lines))),
        "line_seqs": tuple(shuffler.choices(range(30), k=len(lines))),
    }
    said = "\n".join(lines) or draw(texts)
    summary = Summary("here", said, *span, 1, "v", "h", 1, NOW, NOW + draw(st.sampled_from([0, 1])), **ranked)
    keys = draw(st.lists(texts, max_size=4, unique=True))
    return ContextInputs(
        session="here",
        query=draw(texts),
        budget_tokens=draw(st.one_of(st.integers(0, 400), st.integers(400, 4000))),
        now=NOW,
        system=draw(st.none() | texts),
        facts=tuple(Fact(key, draw(texts), seq, NOW) for seq, key in enumerate(keys)),
        notes=tuple(draw(st.lists(texts, max_size=2))),
        summary=draw(st.sampled_from([None, summary])),
        turns=given_turns,
        hits=hits,
        partners=tuple(turns),
        format=draw(st.sampled_from(["openai", "anthropic", "text"])),
        degradation=Degradation(draw(st.sampled_from(["full"] * 4 + ["summary_only", "recent_only", "system_only"]))),
    )


@st.composite
def layouts(draw):
    cuts = sorted(draw(st.lists(st.integers(0, 100), min_size=6, max_size=6)))
    shares = [high - low for low, high in zip([0, *cuts[:-1]], cuts, strict=True)]
    return Layout("any", dict(zip(ZONES, shares, strict=True)))


def flat(value):
    """Every string in a JSON value, joined."""
    if isinstance(value, dict):
        value = value.values()
    elif not isinstance(value, list | tuple):
        return value if isinstance(value, str) else ""
    return "\n".join(filter(None, map(flat, value)))


def recounted(built):
    """Tokens of a page by the encoding itself: every string that is written, calls as compact JSON, and 4 a message."""
    written = [built.system, built.text]
    for message in built.messages:
        content = message["content"]
        for block in content if isinstance(content, list) else [{"type": "text", "text": content}]:
            if block["type"] == "tool_use":
                block = {"text": json.dumps(block, ensure_ascii=False, separators=(",", ":"))}
            written += [block.get("text"), block.get("tool_use_id"), block.get("content")]
        calls = message.get("tool_calls")
        written += [message.get("tool_call_id")]
        written += [calls and json.dumps(calls, ensure_ascii=False, separators=(",", ":"))]
    return 4 * len(built.messages) + sum(len(ENCODING.encode_ordinary(text)) for text in written if text)


def is_shown(turn, text):
    """Each content begins with a number of its own."""
    return f"<{turn.seq}> " in text


quick = settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.too_slow])


@pytest.mark.parametrize("tokenizer", [open_tokenizer(), GreedyTokenizer()], ids=lambda tokenizer: tokenizer.name)
@quick
@given(inputs=requests(), layout=st.just(DEFAULT_LAYOUT) | layouts())
def test_context_keeps_every_promise(tokenizer, inputs, layout):
    """Budget, sum, whole query, purity; and a refusal only where query and system text do not fit."""
    try:
        built = build_context(inputs, layout, tokenizer)
    except (QueryExceedsBudget, SystemExceedsBudget):
        least = msgspec.structs.replace(
            inputs, facts=(), notes=(), summary=None, turns=(), hits=(), partners=(), budget_tokens=10**6
        )
        assert build_context(least, layout, tokenizer).total_tokens > inputs.budget_tokens
        return
    text = flat([built.system, built.messages, built.text])
    assert built.total_tokens == sum(use.tokens for use in built.zones.values()) <= inputs.budget_tokens
    assert min(use.tokens for use in built.zones.values()) >= 0
    assert json.loads(bytes(built.written)) == json.loads(msgspec.json.encode(built.messages))
    if tokenizer.name == "o200k_base":
        assert built.total_tokens == recounted(built)
    assert text.endswith(inputs.query)
    assert msgspec.json.encode(build_context(inputs, layout, tokenizer)) == msgspec.json.encode(built)
    _check_turns(inputs, built, text)
    _check_roles(inputs, built)
    _check_pairs(inputs, text)


def _check_turns(inputs, built, text):
    """No turn stands twice; each one given is shown, covered or listed, and not listed where it is shown."""
    listed = {(dropped.zone, dropped.id) for dropped in built.dropped}
    known = {(turn.session, turn.id): turn for turn in inputs.partners}
    span = range(built.summary.first_seq, built.summary.last_seq + 1) if built.summary else ()
    assert all(text.count(f"<{turn.seq}> ") <= 1 for turn in known.values())
    for turn in inputs.turns:
        assert is_shown(turn, text) or turn.seq in span or ("recent", turn.id) in listed
        assert not (is_shown(turn, text) and ("recent", turn.id) in listed)
        assert not (is_shown(turn, text) and turn.expired(inputs.now))
    retrieved = {hit.id for hit in built.retrieved}
    for hit in inputs.hits:
        assert is_shown(hit.turn, text) == (hit.turn.id in retrieved)
        assert hit.turn.id in retrieved or ("retrieved", hit.turn.id) in listed


def _check_roles(inputs, built):
    """Only the caller's text and the facts stand in a system role, and roles follow the provider's rules."""
    messages = built.messages
    spoken = flat([message["content"] for message in messages if message["role"] == "system"])
    assert not any(is_shown(turn, spoken + flat(built.system)) for turn in inputs.partners)
    if inputs.format == "anthropic":
        roles = [message["role"] for message in messages]
        assert roles == [("user", "assistant")[place % 2] for place in range(len(roles))]
        assert roles[-1] == "user"
        _check_anthropic_calls(messages)
    if inputs.format == "openai":
        assert messages[-1] == {"role": "user", "content": inputs.query}
        waiting = set()
        for message in messages:
            if message["role"] == "tool":
                waiting.remove(message["tool_call_id"])
            else:
                assert not waiting
                waiting = {call["id"] for call in message.get("tool_calls", ())}
        assert not waiting


def _check_anthropic_calls(messages):
    """Each message answers first, and exactly, the calls of the one before it; no id is used twice."""
    used, waiting = set(), []
    for message in messages:
        blocks = message["content"] if isinstance(message["content"], list) else []
        answers = [block["tool_use_id"] for block in blocks if block["type"] == "tool_result"]
        assert sorted(answers) == sorted(waiting)
        assert [block["type"] for block in blocks[: len(answers)]] == ["tool_result"] * len(answers)
        waiting = [block["id"] for block in blocks if block["type"] == "tool_use"]
        assert used.isdisjoint(waiting)
        used.update(waiting)


def _check_pairs(inputs, text):
    """A live result is shown exactly if its live call is: the newest earlier one of that id."""
    calls = {}
    for turn in inputs.partners:
        if turn.expired(inputs.now):
            continue
        if turn.role == "tool" and turn.tool_call_id:
            call = calls.get((turn.session, turn.tool_call_id))
            assert call is None or is_shown(call, text) == is_shown(turn, text)
        if turn.role == "assistant":
            for call_id in [turn.tool_call_id, *(call.id for call in turn.tool_calls)]:
                calls[turn.session, call_id] = turn


@quick
@given(inputs=requests(), more=st.integers(1, 2000))
def test_query_and_turns_do_not_move_the_beginning(inputs, more):
    """With room for the request itself, system text and facts are the same bytes whatever else changes."""
    roomy = msgspec.structs.replace(inputs, budget_tokens=4000 + more, format="openai")
    other = msgspec.structs.replace(roomy, query="another", turns=(), hits=(), summary=None)
    first, second = (build_context(each, DEFAULT_LAYOUT, open_tokenizer()) for each in (roomy, other))
    if first.stable_prefix_tokens:
        assert first.messages[0] == second.messages[0]
        assert first.stable_prefix_tokens == second.stable_prefix_tokens
