"""What a person sees: everything that matters, nothing coloured unless asked."""

import json

from serve_app.demo.show import COLOUR, show_context, show_results
from serve_app.demo.tour import CONVERSATION

CALL = {"id": "c", "type": "function", "function": {"name": "get_order", "arguments": '{"order_id":"ZX-81Q"}'}}
CONTEXT = {
    "context_id": "ctx_1",
    "total_tokens": 300,
    "budget_tokens": 1000,
    "zones": {
        "query": {"tokens": 20, "budget": 120},
        "recent": {"tokens": 200, "budget": 360},
        "system": {"tokens": 80, "budget": 80},
        "extra": {"tokens": 0, "budget": 0},
    },
    "retrieved": [
        {
            "id": "t-3",
            "score": 0.8123,
            "scores": {"dense": 0.7, "bm25": 0.1123, "code": 0.0},
            "tier": "hot",
            "content": "预算 9000 元",
            "created_at": "2026-03-09T20:03:40+08:00",
            "session_id": "s1",
            "speaker": "Lin",
        }
    ],
    "dropped": [{"zone": "retrieved", "id": f"t-{n}", "reason": "budget"} for n in range(12)],
    "messages": [
        {"role": "assistant", "content": None, "tool_calls": [CALL]},
        {"role": "user", "content": "line one\nline two"},
    ],
    "system": "Be kind.",
    "degradation": {"level": "full", "reasons": ["rerank"]},
}


def test_zones_come_in_order_with_tokens_and_budgets():
    text = show_context(CONTEXT)
    assert [text.index(f"  {zone} ") for zone in ("system", "recent", "query", "extra")] == sorted(
        text.index(f"  {zone} ") for zone in ("system", "recent", "query", "extra")
    )
    assert "300 of 1000 tokens" in text
    assert "200 / 360" in text
    assert "level: full (rerank)" in text


def test_a_bar_shows_use_and_what_is_left():
    line = next(line for line in show_context(CONTEXT).splitlines() if "200 / 360" in line)
    assert (line.count("█"), line.count("·")) == (6, 5)


def test_each_hit_says_why_when_and_what():
    text = show_context(CONTEXT)
    assert "0.812  Lin · 2026-03-09 · s1 · t-3 · hot\n         预算 9000 元\n         dense 0.700, bm25 0.112\n" in text


def test_what_the_figures_are_is_said_once():
    text = show_context(CONTEXT)
    for told in ("tokens used / share of the budget", "dense: meaning, bm25: words"):
        assert text.count(told) == 1


def test_what_was_left_out_is_listed_and_counted():
    text = show_context(CONTEXT)
    assert "Left out  12" in text
    assert "t-9: budget" in text
    assert "… and 2 more" in text


def test_messages_are_whole():
    text = show_context(CONTEXT)
    for part in ("Be kind.", "line one", "line two", '    → get_order({"order_id":"ZX-81Q"})\n'):
        assert part in text


def test_blocks_of_anthropic_are_shown_alike():
    call = {"type": "tool_use", "id": "c", "name": "get_order", "input": {"order_id": "ZX-81Q"}}
    result = {"type": "tool_result", "tool_use_id": "c", "content": "confirmed"}
    messages = [
        {"role": "assistant", "content": [{"type": "text", "text": "I look."}, call]},
        {"role": "user", "content": [result]},
    ]
    text = show_context(CONTEXT | {"messages": messages})
    assert '    I look.\n    → get_order({"order_id":"ZX-81Q"})\n  user\n    confirmed' in text


def test_colour_only_where_asked():
    assert "\033" not in show_context(CONTEXT)
    assert "\033" in show_context(CONTEXT, COLOUR)


def test_nothing_found_is_said():
    assert show_results({"results": []}) == "Nothing was found."


def test_the_sample_conversation_is_what_the_tour_promises():
    rows = [json.loads(line) for line in CONVERSATION.read_text("utf-8").splitlines()]
    assert len({(row["session_id"], row["id"]) for row in rows}) == len(rows) == 30
    assert len({row["session_id"] for row in rows}) == 2
    calls = {row["tool_call_id"] for row in rows if row["role"] == "assistant" and "tool_call_id" in row}
    assert calls == {row["tool_call_id"] for row in rows if row["role"] == "tool"} != set()
    assert any("ZX-81Q" in row.get("content", "") for row in rows)
