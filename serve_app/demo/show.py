"""Answers as a person wants to read them in a terminal. Pure: values in, text out."""

from __future__ import annotations

import json
import textwrap
from collections.abc import Iterator
from dataclasses import dataclass

from serve_app.client.http import Json

BAR_CELLS = 30
TEXT_CELLS = 100
MESSAGE_CHARACTERS_MAX = 4_000
RETRIEVED_MAX = 10
DROPPED_MAX = 10
SCORE_DIGITS = 3
SHARES = "tokens used / share of the budget; a zone may use what the others leave"
ARMS = (
    "dense: meaning, bm25: words, _window: with the turns before and after, "
    "code: exact ids, speaker, date, window: when, entity: names, echo: asked from; "
    "they add up to the first stage's order, the second one scores anew"
)
ZONES = ("system", "facts", "summary", "retrieved", "recent", "query")


@dataclass(frozen=True)
class Style:
    """Escape codes, all empty where the output is no terminal."""

    bold: str = ""
    dim: str = ""
    accent: str = ""
    off: str = ""


PLAIN = Style()
COLOUR = Style(bold="\033[1m", dim="\033[2m", accent="\033[36m", off="\033[0m")


def show_context(context: Json, style: Style = PLAIN) -> str:
    """Zones with their budgets, what was found and why, what was left out, and the messages."""
    parts = [
        _zones(context, style),
        _retrieved(context.get("retrieved", []), style),
        _dropped(context.get("dropped", []), style),
        _messages(context, style),
    ]
    return "\n\n".join(part for part in parts if part)


def show_results(answer: Json, style: Style = PLAIN) -> str:
    """The results of POST /v1/search, best first."""
    results = answer.get("results", [])
    return _retrieved(results, style, most=len(results)) if results else "Nothing was found."


def _zones(context: Json, style: Style) -> str:
    zones, budget, context_id = context["zones"], context["budget_tokens"], context["context_id"]
    head = f"{style.bold}Context{style.off}  {context['total_tokens']} of {budget} tokens"
    lines = [f"{head}  {style.dim}{context_id}{style.off}", f"  {style.dim}{SHARES}{style.off}"]
    for name in sorted(zones, key=lambda zone: ZONES.index(zone) if zone in ZONES else len(ZONES)):
        tokens, share = zones[name]["tokens"], zones[name]["budget"]
        lines.append(f"  {name:<10}{_bar(tokens, share, budget, style)} {tokens:>6} / {share}")
    lines.append(f"  {_level(context.get('degradation') or {})}")
    return "\n".join(lines)


def _bar(tokens: int, share: int, whole: int, style: Style) -> str:
    """Filled cells are tokens used, dotted ones what is left of the share; the scale is the whole budget."""
    used = min(BAR_CELLS, round(BAR_CELLS * tokens / max(whole, 1)))
    left = min(BAR_CELLS, round(BAR_CELLS * share / max(whole, 1))) - used
    bar = f"{style.accent}{'█' * used}{style.off}{style.dim}{'·' * max(left, 0)}{style.off}"
    return bar + " " * (BAR_CELLS - used - max(left, 0))


def _level(degradation: Json) -> str:
    reasons = degradation.get("reasons") or []
    return f"level: {degradation.get('level', 'full')}" + (f" ({', '.join(map(str, reasons))})" if reasons else "")


def _retrieved(hits: list[Json], style: Style, most: int = RETRIEVED_MAX) -> str:
    if not hits:
        return ""
    lines = [f"{style.bold}Retrieved{style.off}  {len(hits)} turns", f"  {style.dim}{ARMS}{style.off}"]
    for hit in hits[:most]:
        lines += _hit(hit, style)
    if len(hits) > most:
        lines.append(f"  … and {len(hits) - most} more")
    return "\n".join(lines)


def _hit(hit: Json, style: Style) -> list[str]:
    text = str(hit.get("content") or "")
    return [
        f"  {style.accent}{_number(hit.get('score'))}{style.off}  {_source(hit)}",
        *_wrapped(text, "         ", TEXT_CELLS, lines_max=2),
        f"         {style.dim}{_why(hit)}{style.off}",
    ]


def _why(hit: Json) -> str:
    """The arms that found it, with their own scores where the answer has them."""
    scores = hit.get("scores") or {}
    arms = [f"{name} {_number(value)}" for name, value in scores.items() if round(value, SCORE_DIGITS)]
    return ", ".join(arms) or str(hit.get("tier", ""))


def _source(hit: Json) -> str:
    who = hit.get("speaker") or hit.get("role") or ""
    when = str(hit.get("created_at") or "")[:10]
    return " · ".join(str(part) for part in (who, when, hit.get("session_id"), hit.get("id"), hit.get("tier")) if part)


def _dropped(dropped: list[Json], style: Style) -> str:
    if not dropped:
        return ""
    lines = [f"{style.bold}Left out{style.off}  {len(dropped)}"]
    lines += [
        f"  {item.get('zone', ''):<10}{item.get('id', '')}: {item.get('reason', '')}" for item in dropped[:DROPPED_MAX]
    ]
    if len(dropped) > DROPPED_MAX:
        lines.append(f"  … and {len(dropped) - DROPPED_MAX} more")
    return "\n".join(lines)


def _messages(context: Json, style: Style) -> str:
    lines = [f"{style.bold}Messages{style.off}  as they go to the model"]
    for message in _all_messages(context):
        lines.append(f"  {style.accent}{message['role']}{style.off}")
        lines += _wrapped(_cut(_said(message)), "    ", TEXT_CELLS)
    return "\n".join(lines)


def _said(message: Json) -> str:
    """Its text and its tool calls, a line each; content may be a string, nothing, or Anthropic's blocks."""
    content = message.get("content") or ""
    parts = [content] if isinstance(content, str) else [_block(block) for block in content]
    called = [call["function"] for call in message.get("tool_calls") or []]
    return "\n".join(filter(None, [*parts, *(f"→ {one['name']}({one['arguments']})" for one in called)]))


def _block(block: Json) -> str:
    if block["type"] == "tool_use":
        arguments = json.dumps(block["input"], ensure_ascii=False, separators=(",", ":"))
        return f"→ {block['name']}({arguments})"
    return str(block.get("text") or block.get("content") or "")


def _all_messages(context: Json) -> Iterator[Json]:
    if context.get("system"):
        yield {"role": "system", "content": context["system"]}
    if context.get("text"):
        yield {"role": "text", "content": context["text"]}
    yield from context.get("messages") or []


def _wrapped(text: str, indent: str, width: int, lines_max: int | None = None) -> list[str]:
    lines = [part for line in text.splitlines() for part in textwrap.wrap(line, width) or [""]]
    shown = lines[:lines_max]
    if len(shown) < len(lines):
        shown[-1] += " …"
    return [indent + line for line in shown]


def _cut(text: str) -> str:
    return text if len(text) <= MESSAGE_CHARACTERS_MAX else text[:MESSAGE_CHARACTERS_MAX] + " …"


def _number(value: float | None) -> str:
    return "" if value is None else f"{value:.{SCORE_DIGITS}f}"
