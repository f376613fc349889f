"""Migrations from the command line: list, show, start, guide, report. What is said of them, too."""

from __future__ import annotations

import argparse
import tomllib
from collections.abc import Callable
from pathlib import Path

from serve_app.client.http import Client, Json
from serve_app.errors import InvalidRequest

WORDS = ("advance", "pause", "resume", "rollback")
SECTIONS = ("encoder", "reranker", "compressor")
KINDS = {"encoder": "embedding", "reranker": "reranker", "compressor": "compressor"}

SECTION_NAMES = {"encoder": "encoder", "reranker": "rerank", "compressor": "compress"}
"""What a section is called in the file of settings."""


def listed(client: Client, args: argparse.Namespace) -> Json:
    return client.migrations()


def shown(client: Client, args: argparse.Namespace) -> Json:
    return client.migration(args.id)


def started(client: Client, args: argparse.Namespace) -> Json:
    """By the section of a file of settings, by words of the command line, or by both: the words count then."""
    section = args.section
    options = {} if args.settings is None else _section(args.settings, SECTION_NAMES[section])
    said = {"model": args.model, "turns": args.turns, "template": args.template}
    options |= {name: value for name, value in said.items() if value is not None} | dict(args.set)
    if not options:
        raise InvalidRequest("what is it to change to? name --model, --set NAME=VALUE, or --settings FILE")
    body: Json = {"kind": KINDS[section], section: options, "terms": dict(args.term), "runner": args.runner}
    return client.begin_migration(body | ({"replaces": args.replaces} if args.replaces else {}))


def said(client: Client, args: argparse.Namespace) -> Json:
    return client.guide_migration(args.id, args.command.rpartition(" ")[2])


def reported(client: Client, args: argparse.Namespace) -> Json:
    """As JSON, and as a page in a file if one is named."""
    if args.html is not None:
        args.html.write_text(client.migration_page(args.id), "utf-8")
    return client.migration_report(args.id)


COMMANDS: dict[str, Callable[[Client, argparse.Namespace], Json]] = {
    "migrations list": listed,
    "migrations show": shown,
    "migrations start": started,
    "migrations report": reported,
    **{f"migrations {word}": said for word in WORDS},
}


def _section(path: Path, name: str) -> Json:
    try:
        return dict(tomllib.loads(path.read_text("utf-8")).get(name, {}))
    except (OSError, ValueError) as error:
        raise InvalidRequest(f"{path}: {error}") from error


def told(result: Json) -> str:
    """For people: a line a migration; of one alone its steps, its gates and how far it is."""
    if "migrations" in result:
        return "\n".join(map(_line, result["migrations"])) or "no migrations"
    if "state" not in result:
        return "\n".join(f"{name}  {value}" for name, value in result.items() if not isinstance(value, dict | list))
    lines = [_line(result)]
    lines += [f"  {one['at']}  {one['state']}{_because(one['why'])}" for one in result["steps"]]
    lines += [
        f"  gate of {one['state']}: {one['verdict']}{_because('; '.join(one['reasons']))}" for one in result["gates"]
    ]
    if result.get("progress"):
        lines.append("  " + ", ".join(f"{name} {value}" for name, value in result["progress"].items()))
    return "\n".join(lines)


def _line(migration: Json) -> str:
    new = (migration.get("version") or {}).get("name") or "+".join(migration.get("names") or ())
    words = ["paused"] if migration["paused"] else []
    words += [f"asked to {migration['wish']}"] if migration["wish"] else []
    words += [migration["trouble"]] if migration["trouble"] else []
    return f"{migration['id']}  {migration['kind']}  {migration['state']}  {new}" + _because(", ".join(words))


def _because(why: str | None) -> str:
    return f"  ({why})" if why else ""
