"""The command line: `memstrata serve | keys | demo | ingest | search | context | layouts | backup | … | bench`.

Owns what is said and the exit codes, no work of its own. Exit 0 only if what was asked was done, 1 if it failed, 2
for a wrong command line (`arguments.py`). Progress and notes go to standard error; with `--json` one JSON object is
the last line of standard output. Engines are imported when they are asked for: `--engine local` never loads Ray.
"""

from __future__ import annotations

import argparse
import json
import os
import shlex
import sys
import threading
import time
import tomllib
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NoReturn

from serve_app import measuring
from serve_app.arguments import parser
from serve_app.asgi import AsgiService
from serve_app.client import layouts as layout_commands
from serve_app.client import migrations as migration_commands
from serve_app.client.http import Client
from serve_app.demo.show import COLOUR, PLAIN, Style, show_context, show_results
from serve_app.demo.tour import READY_S, Tour, take_tour
from serve_app.errors import MemstrataError

KEY_FILE = "admin.key"
PORT_POLL_S = 0.2
CLUSTER_WRITERS = 2
"""Of the cluster profile on one host."""

NO_KEY = "no key: give --key or set MEMSTRATA_KEY"


class UsageError(MemstrataError):
    code = "usage"


def main(arguments: Sequence[str] | None = None) -> int:
    args = parser().parse_args(arguments)
    try:
        _refuse_unreadable(args)
        return COMMANDS[args.command](args)
    except MemstrataError as error:
        _note(f"memstrata: {error}")
        return 1
    except KeyboardInterrupt:
        _note("interrupted")
        return 130


def _refuse_unreadable(args: argparse.Namespace) -> None:
    """Texts are sent and shown as UTF-8; a path may hold any bytes."""
    for name, value in vars(args).items():
        if isinstance(value, str) and any("\ud800" <= character <= "\udfff" for character in value):
            raise UsageError(f"{name}: this is no text in UTF-8")


def serve(args: argparse.Namespace) -> int:
    _note(f"starting {args.data} at {_url(args)} …")
    _wait_for_port(args.host, args.port, args.port_wait)
    status = _serve_on_engine(args)
    if status == 0:
        _note("stopped")
    return status


def _serve_on_engine(args: argparse.Namespace) -> int:
    if args.profile == "cluster":
        return _serve_cluster(args)
    compose = partial(compose_service, args.data, args.config, args.role, args.follow, url=_url(args))
    greet = partial(_in_background, partial(_greet, args))
    if args.engine == "local":
        from serve_app import local

        return local.serve(compose, args.host, args.port, greet)
    from serve_app.deployments import engine

    return engine.serve(compose, args.host, args.port, greet, beside=_beside(args.config))


def _serve_cluster(args: argparse.Namespace) -> int:
    if args.engine != "ray" or args.role or args.follow:
        raise UsageError("--profile cluster runs on Ray, and has processes of each role")
    from serve_app.deployments import engine
    from serve_app.deployments.place import Place

    place = Place(config=str(args.config.resolve()) if args.config else "", store=str(args.data.resolve()))
    greet = partial(_in_background, partial(_greet, args))
    return engine.serve_cluster(place, args.host, args.port, greet, CLUSTER_WRITERS)


def compose_service(
    data: Path, config: Path | None, role: str | None = None, follow: Path | None = None, *, url: str = "", **parts: Any
) -> AsgiService:
    """The service of a data folder. Its modules (models, tables) are loaded here, in the process that runs it.

    At `url` a job on this machine reaches it; without one it starts none.
    """
    from serve_app.config import load_settings
    from serve_app.migrate.runner import JobPlace
    from serve_app.service import Service

    job = JobPlace(url, config) if url else None
    return Service(load_settings(data, config, role, follow), job=job, **parts)


def _beside(config: Path | None) -> tuple[str, ...]:
    """Sections whose models have deployments of their own: a glance at one setting of each, without the modules that
    know them all. What is wrong in the file the service tells.
    """
    try:
        found = tomllib.loads(config.read_text("utf-8")) if config else {}
    except (OSError, ValueError):
        return ()
    sections = {name: found.get(name) for name in ("encoder", "rerank", "compress")}
    return tuple(
        name for name, one in sections.items() if isinstance(one, dict) and one.get("placement") == "deployment"
    )


def create_key(args: argparse.Namespace) -> int:
    from serve_app.api.auth import KeyFile
    from serve_app.config import load_settings

    layout = load_settings(args.data, args.config, "writer").layout
    was_there = layout.folder is None or layout.folder.exists()
    key_id, key = KeyFile(layout.documents).create(tenant=args.tenant, role=args.role, user=args.user)
    if not was_there:
        _note(f"made the folder {layout.folder}")
    time.sleep(layout.documents.settles_s)
    made = {"key_id": key_id, "key": key, "tenant": args.tenant, "role": args.role, "user_id": args.user}
    _finish(args, made, f"{key}\n{key_id}: {args.role} of tenant {args.tenant}. The key is not shown again.")
    return 0


def demo(args: argparse.Namespace) -> int:
    with _client(args) as client:
        tour = take_tour(client)
    _finish(args, {"written": tour.written, "request": tour.request, "context": tour.context}, _tour_text(tour))
    return 0


def ingest(args: argparse.Namespace) -> int:
    from tqdm import tqdm

    from serve_app.client.ingest import ingest as write
    from serve_app.client.ingest import survey

    found = survey(args.file)
    if found.without_id:
        _note(f"{found.without_id} of {found.turns} turns have no id: writing the file again would store them again")
    if found.cut:
        _note(f"{args.file}: this export was cut short: what it holds is written, but it is not all")
    with _client(args) as client, tqdm(total=found.turns, unit=" turns", disable=None) as bar:
        done = write(client, args.file, bar.update, args.user)
    for line in done.rejected:
        _note(f"rejected: {line}")
    counts = {status: done.statuses[status] for status in ("stored", "duplicate", "rejected")} | {"facts": done.facts}
    _finish(args, counts, ", ".join(f"{count} {status}" for status, count in counts.items()))
    return 0 if done.complete and not found.cut else 1


def search(args: argparse.Namespace) -> int:
    body = {"user_id": args.user, "query": args.query, "k": args.k, "mode": args.mode, "explain": True}
    with _client(args) as client:
        answer = client.search(body | ({"session_id": args.session} if args.session else {}))
    _finish(args, answer, show_results(answer, _style()))
    return 0


def context(args: argparse.Namespace) -> int:
    body = {"user_id": args.user, "query": args.query, "budget_tokens": args.budget, "format": args.format}
    body["explain"] = True
    chosen = {"session_id": args.session, "system": args.system, "layout": args.layout, "model": args.model}
    with _client(args) as client:
        answer = client.context(body | {name: value for name, value in chosen.items() if value})
    _finish(args, answer, show_context(answer, _style()))
    return 0


def layouts(args: argparse.Namespace) -> int:
    """list, show, set, remove."""
    with _client(args) as client:
        result = layout_commands.COMMANDS[args.command](client, args)
    _finish(args, result, layout_commands.told(result))
    return 0


def migrations(args: argparse.Namespace) -> int:
    """list, show, start, advance, pause, resume, rollback, report."""
    with _client(args) as client:
        result = migration_commands.COMMANDS[args.command](client, args)
    _finish(args, result, migration_commands.told(result))
    return 0


def of_store(args: argparse.Namespace) -> int:
    """backup, restore, verify, repair: what is done to a store as a whole."""
    from serve_app import store_commands

    given = getattr(args, "key", None) or os.environ.get("MEMSTRATA_KEY")
    with store_commands.bar(args.command) as bar:
        done = store_commands.COMMANDS[args.command](args, given, bar)
    _finish(args, done.result, done.text)
    return 0 if done.done else 1


def of_figures(args: argparse.Namespace) -> int:
    """train-ranker and the suites of bench: a table, and below it, if asked for, the object."""
    measured = measuring.COMMANDS[args.command](args, lambda: _given_key(args) or _no_key())
    print(measured.table)
    if args.json:
        print(json.dumps(measured.result, ensure_ascii=False))
    for line in measured.missed:
        _note(f"misses its bar: {line}")
    return 0 if measured.sound and not measured.missed else 1


def reembed(args: argparse.Namespace) -> int:
    """The job; its exit codes are its own."""
    from jobs import reembed as job

    return job.run(args)


COMMANDS: dict[str, Callable[[argparse.Namespace], int]] = {
    "serve": serve,
    "keys create": create_key,
    "demo": demo,
    "ingest": ingest,
    "search": search,
    "context": context,
    **dict.fromkeys(layout_commands.COMMANDS, layouts),
    **dict.fromkeys(migration_commands.COMMANDS, migrations),
    "backup": of_store,
    "restore": of_store,
    "verify": of_store,
    "repair": of_store,
    "reembed": reembed,
    **dict.fromkeys(measuring.COMMANDS, of_figures),
}


def _greet(args: argparse.Namespace) -> None:
    """Say where the service is, once it is there; with --demo, take the tour first."""
    url = _url(args)
    try:
        with Client(url) as client:
            client.wait_ready(READY_S)
    except MemstrataError as error:
        _note(f"memstrata: {error}")
        return
    if args.demo:
        _show_tour(args, url)
    print(_addresses(args.data, url, args.follow), flush=True)


def _show_tour(args: argparse.Namespace, url: str) -> None:
    try:
        with Client(url, _given_key(args) or _kept_key(args.data)) as client:
            print(f"{_tour_text(take_tour(client))}\n", flush=True)
    except MemstrataError as error:
        _note(f"memstrata: the demo ended: {error}")


def _url(args: argparse.Namespace) -> str:
    host = "127.0.0.1" if args.host == "0.0.0.0" else args.host
    return f"http://[{host}]:{args.port}" if ":" in host else f"http://{host}:{args.port}"


def _addresses(data: Path, url: str, follow: Path | None) -> str:
    return "\n".join(
        [
            f"Memstrata serves {data} at {url}",
            f"  API documentation  {url}/docs",
            *_key_lines(follow or data, url),
            "  Ctrl-C stops it; what is stored stays.",
        ]
    )


def _key_lines(data: Path, url: str) -> list[str]:
    """Where the first key is, and what to do with it. A store whose first key was made by hand keeps none."""
    key = data / KEY_FILE
    if not key.exists():
        return [f"  key                one made by `memstrata keys create --data {shlex.quote(str(data))}`"]
    header = f'-H "Authorization: Bearer $(cat {shlex.quote(str(key))})"'
    return [f"  key                {key}", f"  try                curl {header} '{url}/v1/sessions?user_id=lin'"]


def _tour_text(tour: Tour) -> str:
    style = _style()
    count = sum(tour.written.values())
    told = f"all {count} are stored already" if tour.seen_before else f"{tour.written['stored']} of {count} stored"
    return (
        f"{style.bold}Sample conversation{style.off}  {told}\n"
        f"{style.bold}Question{style.off}  {tour.request['query']}\n\n"
        f"{show_context(tour.context, style)}"
    )


def _finish(args: argparse.Namespace, result: dict[str, Any], text: str) -> None:
    print(json.dumps(result, ensure_ascii=False) if args.json else text)


def _style() -> Style:
    return COLOUR if sys.stdout.isatty() and "NO_COLOR" not in os.environ else PLAIN


def _note(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def _client(args: argparse.Namespace) -> Client:
    return Client(args.url, _given_key(args) or _kept_key(args.data))


def _given_key(args: argparse.Namespace) -> str | None:
    return getattr(args, "key", None) or os.environ.get("MEMSTRATA_KEY")


def _kept_key(folder: Path | None) -> str:
    """The first key that a service left in its data folder."""
    if folder is None:
        raise UsageError(f"{NO_KEY}, or name the service's data folder with --data")
    try:
        return (folder / KEY_FILE).read_text().strip()
    except OSError as error:
        raise UsageError(f"{NO_KEY}; {folder / KEY_FILE} cannot be read") from error


def _no_key() -> NoReturn:
    raise UsageError(NO_KEY)


def _wait_for_port(host: str, port: int, seconds: float) -> None:
    from serve_app.deployments.port_block import is_free

    end = time.monotonic() + seconds
    while not is_free(host, port):
        if time.monotonic() > end:
            raise UsageError(f"port {port} on {host} is in use; choose another with --port")
        time.sleep(PORT_POLL_S)


def _in_background(work: Callable[[], None]) -> None:
    threading.Thread(target=work, name="greeting", daemon=True).start()


if __name__ == "__main__":
    sys.exit(main())
