"""The command line: `memstrata serve | keys | demo | ingest | search | context | bench`.

Owns words and exit codes, no work of its own. Exit 0 only if what was asked was done, 1 if it failed, 2 for a wrong
command line. Progress and notes go to standard error; with `--json` one JSON object is the last line of standard
output. Engines are imported when they are asked for: `--engine local` never loads Ray.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import threading
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from serve_app.allocator import bound_arenas
from serve_app.asgi import AsgiService
from serve_app.client.http import Client
from serve_app.demo.show import COLOUR, PLAIN, Style, show_context, show_results
from serve_app.demo.tour import READY_S, Tour, take_tour
from serve_app.errors import MemstrataError

KEY_FILE = "admin.key"
DEFAULT_URL = "http://127.0.0.1:8000"
DEFAULT_BUDGET_TOKENS = 2_000
PORT_WAIT_S = 10.0
"""A service that was just killed may hold its port for some seconds."""

PORT_POLL_S = 0.2


class UsageError(MemstrataError):
    code = "usage"


def main(arguments: Sequence[str] | None = None) -> int:
    args = _parser().parse_args(arguments)
    try:
        return args.run(args)  # type: ignore[no-any-return]
    except MemstrataError as error:
        print(f"memstrata: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130


def serve(args: argparse.Namespace) -> int:
    _wait_for_port(args.host, args.port, args.port_wait)
    compose = partial(compose_service, args.data, args.config)
    greet = partial(_in_background, partial(_greet, args))
    if args.engine == "local":
        from serve_app import local

        return local.serve(compose, args.host, args.port, greet)
    from serve_app.deployments import engine

    return engine.serve(compose, args.host, args.port, greet)


def compose_service(data: Path, config: Path | None) -> AsgiService:
    """The service of a data folder. Its modules (models, tables) are loaded here, in the process that runs it."""
    bound_arenas()  # before the first thread
    from serve_app.config import load_settings
    from serve_app.service import Service

    return Service(load_settings(data, config))


def create_key(args: argparse.Namespace) -> int:
    from serve_app.api.auth import KeyFile

    key_id, key = KeyFile(args.data).create(tenant=args.tenant, role=args.role, user=args.user)
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

    from serve_app.client.conversations import read_entries
    from serve_app.client.ingest import ingest as write

    total = sum(1 for _ in read_entries(args.file))
    with _client(args) as client, tqdm(total=total, unit=" turns", disable=None) as bar:
        done = write(client, args.file, bar.update)
    for line in done.rejected:
        print(f"rejected: {line}", file=sys.stderr)
    counts = {status: done.statuses[status] for status in ("stored", "duplicate", "rejected")}
    _finish(args, counts, ", ".join(f"{count} {status}" for status, count in counts.items()))
    return 0 if done.complete else 1


def search(args: argparse.Namespace) -> int:
    body = {"user_id": args.user, "query": args.query, "k": args.k, "mode": args.mode, "explain": True}
    with _client(args) as client:
        answer = client.search(body | ({"session_id": args.session} if args.session else {}))
    _finish(args, answer, show_results(answer, _style()))
    return 0


def context(args: argparse.Namespace) -> int:
    body = {"user_id": args.user, "query": args.query, "budget_tokens": args.budget, "format": args.format}
    chosen = {"session_id": args.session, "system": args.system}
    with _client(args) as client:
        answer = client.context(body | {name: value for name, value in chosen.items() if value})
    _finish(args, answer, show_context(answer, _style()))
    return 0


def bench_recall(args: argparse.Namespace) -> int:
    from benchmarks import recall

    with Client(args.url, args.key) as client:
        measured = recall.measure(client, args.data, args.mode)
    _finish(args, measured, recall.table(measured))
    return 0


def bench_latency(args: argparse.Namespace) -> int:
    from benchmarks import latency

    with Client(args.url, args.key) as client:
        measured = latency.measure(client, args.turns, args.repeats)
    _finish(args, measured, latency.table(measured))
    return 0


def _greet(args: argparse.Namespace) -> None:
    """Say where the service is, once it is there; with --demo, take the tour."""
    host = "127.0.0.1" if args.host == "0.0.0.0" else args.host
    url = f"http://[{host}]:{args.port}" if ":" in host else f"http://{host}:{args.port}"
    try:
        with Client(url) as client:
            client.wait_ready(READY_S)
        print(_addresses(args, url), flush=True)
        if args.demo:
            with Client(url, _key_of(args)) as client:
                print(f"\n{_tour_text(take_tour(client))}\n\n{_addresses(args, url)}", flush=True)
    except MemstrataError as error:
        print(f"memstrata: {error}", file=sys.stderr)


def _addresses(args: argparse.Namespace, url: str) -> str:
    key = args.data / KEY_FILE
    return (
        f"Memstrata serves {args.data} at {url}\n"
        f"  API documentation  {url}/docs\n"
        f"  key                {key}\n"
        f'  try                curl -H "Authorization: Bearer $(cat {key})" {url}/v1/sessions?user_id=lin\n'
        f"  Ctrl-C stops it; what is stored stays."
    )


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


def _client(args: argparse.Namespace) -> Client:
    return Client(args.url, _key_of(args))


def _key_of(args: argparse.Namespace) -> str:
    """From --key, MEMSTRATA_KEY, or the first key that a service left in its data folder."""
    given = getattr(args, "key", None) or os.environ.get("MEMSTRATA_KEY")
    if given:
        return str(given)
    if args.data is None:
        raise UsageError("no key: give --key, set MEMSTRATA_KEY, or name the data folder with --data")
    try:
        return str((args.data / KEY_FILE).read_text().strip())
    except OSError as error:
        raise UsageError(f"no key: {args.data / KEY_FILE} cannot be read; give --key or set MEMSTRATA_KEY") from error


def _wait_for_port(host: str, port: int, seconds: float) -> None:
    from serve_app.deployments.port_block import is_free

    end = time.monotonic() + seconds
    while not is_free(host, port):
        if time.monotonic() > end:
            raise UsageError(f"port {port} on {host} is in use; choose another with --port")
        time.sleep(PORT_POLL_S)


def _in_background(work: Callable[[], None]) -> None:
    threading.Thread(target=work, name="greeting", daemon=True).start()


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="memstrata", description="A memory and context service for AI applications.")
    commands = parser.add_subparsers(required=True, metavar="command")
    _serve_words(commands.add_parser("serve", help="serve a data folder"))
    keys = commands.add_parser("keys", help="API keys of a data folder").add_subparsers(required=True, metavar="action")
    _key_words(keys.add_parser("create", help="make a key; a running service takes it at once"))
    tour = _remote(commands.add_parser("demo", help="write a sample conversation and show a context for it"))
    tour.set_defaults(run=demo)
    ingesting = _remote(commands.add_parser("ingest", help="write a file of turns (JSON lines)"))
    ingesting.add_argument("file", type=Path)
    ingesting.set_defaults(run=ingest)
    _search_words(_remote(commands.add_parser("search", help="find turns of a user")))
    _context_words(_remote(commands.add_parser("context", help="build a context for a query")))
    suites = commands.add_parser("bench", help="measure a running service").add_subparsers(
        required=True, metavar="suite"
    )
    _recall_words(suites.add_parser("recall", help="how many of the turns that answer a query are found"))
    _latency_words(suites.add_parser("latency", help="how long one client waits"))
    return parser


def _serve_words(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--data", type=Path, required=True, help="folder of the store; made if it is not there")
    parser.add_argument("--host", default="127.0.0.1", help="address to listen on (0.0.0.0: every interface)")
    parser.add_argument("--port", type=int, default=8000)
    parser.add_argument("--port-wait", type=float, default=PORT_WAIT_S, help="seconds to wait for a port in use")
    parser.add_argument("--engine", choices=("ray", "local"), default="ray", help="Ray Serve, or one process")
    parser.add_argument("--config", type=Path, help="TOML file of settings")
    parser.add_argument("--demo", action="store_true", help="take the demo's tour once ready, and go on serving")
    parser.set_defaults(run=serve)


def _key_words(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--tenant", required=True)
    parser.add_argument("--user", help="bind the key to one user")
    parser.add_argument("--role", choices=("app", "admin", "operator"), default="app")
    parser.add_argument("--json", action="store_true")
    parser.set_defaults(run=create_key)


def _search_words(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--user", required=True)
    parser.add_argument("--session")
    parser.add_argument("-k", type=int, default=10)
    parser.add_argument("--mode", choices=("hybrid", "dense", "lexical"), default="hybrid")
    parser.add_argument("query")
    parser.set_defaults(run=search)


def _recall_words(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--data", type=Path, required=True, help="folder with conversations.jsonl and queries.jsonl")
    parser.add_argument("--mode", choices=("hybrid", "dense", "lexical"), default="hybrid")
    _measured(parser).set_defaults(run=bench_recall)


def _latency_words(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--turns", type=int, default=5_000, help="length of the long session")
    parser.add_argument("--repeats", type=int, default=200, help="requests of each kind")
    _measured(parser).set_defaults(run=bench_latency)


def _measured(parser: argparse.ArgumentParser) -> argparse.ArgumentParser:
    """Words of every suite: which service, and with which key."""
    parser.add_argument("--url", default=os.environ.get("MEMSTRATA_URL", DEFAULT_URL))
    parser.add_argument("--key", default=os.environ.get("MEMSTRATA_KEY", ""), help="API key; else MEMSTRATA_KEY")
    parser.add_argument("--json", action="store_true", help="print one JSON object last")
    return parser


def _context_words(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--user", required=True)
    parser.add_argument("--session")
    parser.add_argument("--budget", type=int, default=DEFAULT_BUDGET_TOKENS, help="tokens")
    parser.add_argument("--system", help="the application's own system text")
    parser.add_argument("--format", choices=("openai", "anthropic", "text"), default="openai")
    parser.add_argument("query")
    parser.set_defaults(run=context)


def _remote(parser: argparse.ArgumentParser) -> argparse.ArgumentParser:
    """Words of every command that talks to a running service."""
    parser.add_argument("--url", default=os.environ.get("MEMSTRATA_URL", DEFAULT_URL))
    parser.add_argument("--key", help="API key; else MEMSTRATA_KEY, else the one in --data")
    parser.add_argument("--data", type=Path, help="data folder of the service, to take its first key from")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    return parser


if __name__ == "__main__":
    sys.exit(main())
