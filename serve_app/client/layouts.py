"""Layouts from the command line: list, show, set, remove. What is said of them, too."""

from __future__ import annotations

import argparse
from collections.abc import Callable

from serve_app.client.http import Client, Json, Refused

ZONES = ("system", "facts", "summary", "retrieved", "recent", "query")
DEFAULT_NAME = "default"


def listed(client: Client, args: argparse.Namespace) -> Json:
    return client.layouts()


def shown(client: Client, args: argparse.Namespace) -> Json:
    return client.layout(args.name)


def tuned(client: Client, args: argparse.Namespace) -> Json:
    """What is not said stays as it is in the layout of this name, or in `default` where there is none yet."""
    before = _before(client, args.name)
    said = {"models": args.model, "query_types": args.query_type, "user_tiers": args.user_tier}
    when = {name: values for name, values in said.items() if values} or before["when"]
    return client.tune_layout(args.name, before["shares"] | dict(args.share), when)


def removed(client: Client, args: argparse.Namespace) -> Json:
    return client.remove_layout(args.name)


COMMANDS: dict[str, Callable[[Client, argparse.Namespace], Json]] = {
    "layouts list": listed,
    "layouts show": shown,
    "layouts set": tuned,
    "layouts remove": removed,
}


def _before(client: Client, name: str) -> Json:
    try:
        return client.layout(name)
    except Refused as error:
        if error.code != "not_found":
            raise
        return client.layout(DEFAULT_NAME) | {"when": None}


def told(result: Json) -> str:
    """For people: a line a layout, and the revision."""
    lines = [_line(one) for one in result.get("layouts", [result] if "shares" in result else [])]
    return "\n".join([*lines, f"revision {result['revision']}"])


def _line(layout: Json) -> str:
    shares = "  ".join(f"{zone} {layout['shares'][zone]}" for zone in ZONES)
    when = "; ".join(f"{name}: {', '.join(values)}" for name, values in (layout["when"] or {}).items())
    return (
        f"{layout['name']}  {shares}"
        + (f"  for {when}" if when else "")
        + ("  (built in)" if layout["built_in"] else "")
    )
