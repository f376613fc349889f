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
    lines = [_line(result)]
    lines += [f"  {one['at']}  {one['state']}{_because(one['why'])}" for one in result.get("steps", ())]
    lines += [
        f"  gate of {one['state']}: {one['verdict']}{_because('; '.join(one.get('reasons', ())))}"
        for one in result["gates"]
    ]
    if progress := result.get("progress"):
        lines.append(f"  {_of_backfill(progress) if 'worker' in progress else _of_gate(progress)}")
    return "\n".join(lines)


def _line(migration: Json) -> str:
    """Also of a report, which says less of it."""
    new = (migration.get("version") or {}).get("name") or "+".join(migration.get("names") or ())
    words = ["paused"] if migration.get("paused") else []
    words += [f"asked for: {migration['wish']}"] if migration.get("wish") else []
    words += [migration["trouble"]] if migration.get("trouble") else []
    named = [migration["id"], migration["kind"], migration["state"], *([new] if new else [])]
    return "  ".join(named) + _because(", ".join(words))


def _of_backfill(progress: Json) -> str:
    """`gone` and the like only where there are any."""
    total = "turns, not counted yet" if progress["total"] is None else f"of {progress['total']:,} turns"
    words = [f"{progress['done']:,} {total}"]
    words += [f"{progress[name]:,} {name}" for name in ("stale", "gone", "cold", "dead") if progress[name]]
    words += [f"{progress['rate']:.1f} a second"] if progress["rate"] else []
    words += [f"{progress['eta_s']:.0f} s to go"] if progress["eta_s"] else []
    heard = "no job yet" if progress["heard_s"] is None else f"job heard {progress['heard_s']:.0f} s ago"
    return ", ".join([*words, heard])


def _of_gate(progress: Json) -> str:
    return f"{progress['asked']:,} of {progress['of']:,} queries asked, {progress['reads']:,} searches answered by both"


def _because(why: str | None) -> str:
    return f"  ({why})" if why else ""
