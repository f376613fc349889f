"""The arguments of every command: their names, defaults and help. Pure: a command line in, a namespace out.

`command` of the namespace names what to do ("serve", "keys create", "bench recall"); who does it is no matter here.
"""

from __future__ import annotations

import argparse
import os
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

DEFAULT_URL = "http://127.0.0.1:8000"
DEFAULT_BUDGET_TOKENS = 2_000
PORT_MAX = 65_535
PORT_WAIT_S = 10.0
"""A service that was just killed may hold its port for some seconds."""

MODE_HELP = "hybrid: by meaning and by words; dense: by meaning alone; lexical: by words alone"
ROLE_HELP = "app: turns, search, context; admin: also the keys of its tenant; operator: also tenants, and every key"
FILE_FORM = """\
Write a file of JSON lines, one turn a line: user_id, session_id, role, content, and id, created_at, speaker if known;
or conversation_id (the user), session, dia_id (the id), speaker, text, timestamp, as conversation data sets have it.
The answer of /v1/users/{user_id}/export can be read back, with its facts."""

DATA_HELP = "data folder of the service, to take its first key from"
BACKUP_FORM = """\
Through the service at --url, to the address of its policy `backup` or else of its settings; or, with --data of a
store that no service runs on, from its files, whatever --url says. A backup that was stopped is taken up by the next
one of its kind."""
BACKUP_DATA_HELP = "data folder: to read its files, or the first key of the service that runs on it (named by --url)"
BACKUP_TO_HELP = """\
folder or s3://bucket/prefix, else [backup] uri of the settings; to a service it may only name an address that the
service has"""
REPAIR_FORM = """\
Says what a repair would give up; with --yes does it. The service must be stopped. What was damaged is kept below
DATA/damaged. Deletions and erasures that stood in the damaged part are lost with it."""
AT_HELP = "state as of this moment (RFC 3339 with offset); else the newest"

CORE_DATA_HELP = "folder with conversations.jsonl and queries.jsonl; else the shipped data set (benchmarks/data/golden)"
CORE_FORM = """\
Starts the service on each engine with a store of its own, and beside it the ceiling: one process that searches and
does nothing else. Prints one table an engine; see docs/performance.md. Takes some minutes, with --quick about one."""


TRAIN_FORM = """\
Asks a running service the queries of a data set, which is written as users of its own and erased at the end, or those
that it holds as golden queries; learns from the features of what it finds; and writes a file that [rerank] ranker of
the settings loads. Figures are cross-validated: each fold is ranked by a model that has seen nothing of it. Needs
LightGBM (pip install "memstrata[train]")."""
RECALL_FORM = """\
One table: BM25, dense, fusion, with MaxSim, and the service as it is. Users that are written are erased at the end."""
LEXICAL_FORM = """\
BM25 over the Chinese conversations of a data set with several ways to cut text into words, and the service's own search
by words beside them. Needs bm25s and, for the dictionary, jieba (pip install "memstrata[bench]")."""
FOLDS_HELP = """\
what is held out together: part, conversations whose ids are alike up to their last `-`; conversation; or into how many
folds to deal them"""
JOINED_HELP = """\
learn also from memories of N conversations of one part: rankers for long memories get better by it; 0: only from each
conversation by itself"""
QUERIES_HELP = "folder with conversations.jsonl and queries.jsonl"

SCALE_PHASES = ("ingest", "restart", "memory", "compact", "erase")
LARGE_USER_PHASES = ("fill", "search", "restart", "exact")
LARGE_USER_FORM = """\
Starts a service on a store of its own, with an encoder that costs next to nothing, writes turns of one user, and
compares what a search finds with what one finds that keeps every turn in memory (docs/measurements.md)."""
SCALE_FORM = """\
Starts a service on a store of its own, with an encoder that costs next to nothing, and fills it. On two busy cores a
million turns took over twenty minutes to write, and four gigabytes of disk (docs/measurements.md). Each phase is kept
in scale.json as soon as it is done. Beside some figures stands a bar: the most that they should be."""


class _Help(argparse.ArgumentDefaultsHelpFormatter, argparse.RawDescriptionHelpFormatter):
    """Tells the defaults, but not that of an option that is off or empty."""

    def _get_help_string(self, action: argparse.Action) -> str | None:
        return action.help if action.default in (None, False) else super()._get_help_string(action)


class _Parser(argparse.ArgumentParser):
    """Hands its way of telling help on to the commands below it."""

    def __init__(self, **words: Any) -> None:
        super().__init__(formatter_class=_Help, **words)


def parser() -> argparse.ArgumentParser:
    whole = _Parser(prog="memstrata", description="A memory and context service for AI applications.")
    whole.add_argument("--version", action="version", version=f"memstrata {_version()}")
    commands = whole.add_subparsers(required=True, metavar="command")
    _serve(commands.add_parser("serve", help="serve a data folder"))
    keys = commands.add_parser("keys", help="API keys of a data folder").add_subparsers(required=True, metavar="action")
    _create_key(keys.add_parser("create", help="make a key; a running service takes it at once"))
    demo = _remote(commands.add_parser("demo", help="write a sample conversation and show a context for it"))
    demo.set_defaults(command="demo")
    _ingest(_remote(commands.add_parser("ingest", help="write a file of turns (JSON lines)", description=FILE_FORM)))
    _search(_remote(commands.add_parser("search", help="find turns of a user")))
    _context(_remote(commands.add_parser("context", help="build a context for a query")))
    _backup(commands.add_parser("backup", help="back a store up", description=BACKUP_FORM))
    _restore(commands.add_parser("restore", help="make a store from a backup, in a new place"))
    _verify(commands.add_parser("verify", help="check whether a store is whole; changes nothing"))
    _repair(commands.add_parser("repair", help="give up what is damaged in a log", description=REPAIR_FORM))
    _train(
        _measured(
            commands.add_parser(
                "train-ranker", help="learn a ranker from queries with known answers", description=TRAIN_FORM
            )
        )
    )
    suites = commands.add_parser("bench", help="measure a service").add_subparsers(required=True, metavar="suite")
    recall = suites.add_parser(
        "recall", help="how many of the turns that answer a query are found", description=RECALL_FORM
    )
    _recall(_measured(recall))
    lexical = suites.add_parser(
        "lexical", help="ways to cut Chinese into words, side by side", description=LEXICAL_FORM
    )
    _lexical(_measured(lexical))
    _latency(_measured(suites.add_parser("latency", help="how long one client waits")))
    _core(suites.add_parser("core", help="speed of each engine against the machine's ceiling", description=CORE_FORM))
    _scale(suites.add_parser("scale", help="what many turns of many users cost", description=SCALE_FORM))
    _large_user(suites.add_parser("large-user", help="what one very large user costs", description=LARGE_USER_FORM))
    return whole


def _version() -> str:
    try:
        return version("memstrata")
    except PackageNotFoundError:
        return "of a source folder that is not installed"


def _serve(command: argparse.ArgumentParser) -> None:
    command.add_argument("--data", type=Path, required=True, help="folder of the store; made if it is not there")
    command.add_argument("--host", default="127.0.0.1", help="address to listen on (0.0.0.0: every interface)")
    command.add_argument("--port", type=_port, default=8000, help="port to listen on")
    command.add_argument("--port-wait", type=float, default=PORT_WAIT_S, help="seconds to wait for a port in use")
    command.add_argument("--engine", choices=("ray", "local"), default="ray", help="Ray Serve, or one process")
    command.add_argument("--config", type=Path, help="TOML file of settings")
    command.add_argument(
        "--role", choices=("writer", "replica"), help="replica: read and follow a store, never write it"
    )
    command.add_argument(
        "--follow", type=Path, metavar="DIR", help="data folder of the writer to follow; makes this a replica"
    )
    command.add_argument("--demo", action="store_true", help="take the demo's tour once ready, and go on serving")
    command.set_defaults(command="serve")


def _create_key(command: argparse.ArgumentParser) -> None:
    command.add_argument("--data", type=Path, required=True, help="data folder of the service; made if it is not there")
    command.add_argument("--tenant", required=True, help="tenant that the key is for")
    command.add_argument("--user", help="bind the key to one user")
    command.add_argument("--role", choices=("app", "admin", "operator"), default="app", help=ROLE_HELP)
    _json(command).set_defaults(command="keys create")


def _ingest(command: argparse.ArgumentParser) -> None:
    command.add_argument("file", type=Path, help="the file of turns")
    command.add_argument("--user", help="write all of it as this user's, whoever's it was")
    command.set_defaults(command="ingest")


def _search(command: argparse.ArgumentParser) -> None:
    _asked(command)
    command.add_argument("-k", type=int, default=10, help="how many turns to find at most")
    command.add_argument("--mode", choices=("hybrid", "dense", "lexical"), default="hybrid", help=MODE_HELP)
    command.set_defaults(command="search")


def _context(command: argparse.ArgumentParser) -> None:
    _asked(command)
    command.add_argument("--budget", type=int, default=DEFAULT_BUDGET_TOKENS, help="tokens of the context at most")
    command.add_argument("--system", help="the application's own system text")
    command.add_argument(
        "--format", choices=("openai", "anthropic", "text"), default="openai", help="whose messages, or one text"
    )
    command.set_defaults(command="context")


def _backup(command: argparse.ArgumentParser) -> None:
    _remote(command, BACKUP_DATA_HELP)
    command.add_argument("--to", metavar="URI", help=BACKUP_TO_HELP)
    command.add_argument("--incremental", action="store_true", help="only what is new since the last one; else all")
    _config(command).set_defaults(command="backup")


def _restore(command: argparse.ArgumentParser) -> None:
    command.add_argument("--from", dest="source", metavar="URI", required=True, help="where the backups are")
    command.add_argument("--backup", metavar="ID", help="which one; else the newest that reaches --at")
    command.add_argument("--at", metavar="TIME", help=AT_HELP)
    command.add_argument("--data", type=Path, required=True, help="data folder of the new store; must be empty")
    _json(_config(command)).set_defaults(command="restore")


def _verify(command: argparse.ArgumentParser) -> None:
    command.add_argument("--data", type=Path, required=True, help="data folder of the store")
    command.add_argument(
        "--against", metavar="DIR|URI", help="data folder of another store, or address of backups, to hold the same"
    )
    command.add_argument("--backup", metavar="ID", help="which backup of --against; else the newest")
    command.add_argument("--against-config", type=Path, help="settings of the store of --against")
    command.add_argument("--url", help="a service that runs on the store, to compare its state with")
    command.add_argument("--key", help="its API key; else MEMSTRATA_KEY, else the one in --data")
    _json(_config(command)).set_defaults(command="verify")


def _repair(command: argparse.ArgumentParser) -> None:
    command.add_argument("--data", type=Path, required=True, help="data folder of the store")
    command.add_argument("--shard", type=int, help="only this one; else every shard that is damaged")
    command.add_argument("--yes", action="store_true", help="do it")
    _json(_config(command)).set_defaults(command="repair")


def _config(command: argparse.ArgumentParser) -> argparse.ArgumentParser:
    command.add_argument("--config", type=Path, help="TOML file of settings, as the service has it")
    return command


def _queries(command: argparse.ArgumentParser) -> None:
    """Where the queries come from."""
    source = command.add_mutually_exclusive_group(required=True)
    source.add_argument("--data", type=Path, help=QUERIES_HELP)
    source.add_argument("--golden", action="store_true", help="the golden queries that the service holds for the key")


def _recall(command: argparse.ArgumentParser) -> None:
    command.description = RECALL_FORM
    _queries(command)
    command.add_argument("--mode", choices=("hybrid", "dense", "lexical"), default="hybrid", help=MODE_HELP)
    command.add_argument("--only", action="store_true", help="only the service as it is, without the other rows")
    command.add_argument(
        "--leave-one-out",
        action="store_true",
        help="also train a ranker on all conversations but one and test it on that one, in turn; nothing of it is kept",
    )
    command.set_defaults(command="bench recall")


def _lexical(command: argparse.ArgumentParser) -> None:
    command.add_argument("--data", type=Path, help=CORE_DATA_HELP)
    command.add_argument("--lang", default="zh", help="language of the conversations")
    command.set_defaults(command="bench lexical")


def _train(command: argparse.ArgumentParser) -> None:
    _queries(command)
    command.add_argument("--user", help="with --golden: of this user alone")
    command.add_argument("--out", type=Path, metavar="FILE", help="file to write; else only the figures are given")
    command.add_argument("--folds", default="part", metavar="part|conversation|N", help=FOLDS_HELP)
    command.add_argument("--joined", type=int, default=0, metavar="N", help=JOINED_HELP)
    command.add_argument("--keep", action="store_true", help="leave the users that are written")
    command.set_defaults(command="train-ranker")


def _latency(command: argparse.ArgumentParser) -> None:
    command.add_argument("--turns", type=int, default=5_000, help="length of the long session")
    command.add_argument("--repeats", type=int, default=200, help="requests of each kind")
    command.set_defaults(command="bench latency")


def _core(command: argparse.ArgumentParser) -> None:
    command.add_argument(
        "--engine",
        type=_engines,
        metavar="local,ray",
        help="engines, separated by commas; else local,ray, with --quick local",
    )
    command.add_argument("--data", type=Path, help=CORE_DATA_HELP)
    command.add_argument(
        "--url", help="measure a running service on this machine instead; start and memory are left out"
    )
    command.add_argument("--key", help="its API key; else MEMSTRATA_KEY")
    command.add_argument("--peers", metavar="PYTHON", help="interpreter that has the peers (docs/performance.md)")
    command.add_argument("--infinity", metavar="PROGRAM", help="infinity_emb, to compare embeddings with")
    command.add_argument(
        "--port", type=_port, default=0, help="first of the ports that are used (0: any that are free)"
    )
    command.add_argument("--quick", action="store_true", help="tiny sizes and no bars: whether it runs, not how fast")
    command.add_argument("--bars", action="store_true", help="exit 1 if a bar is missed")
    _json(command).set_defaults(command="bench core")


def _scale(command: argparse.ArgumentParser) -> None:
    command.add_argument("--users", type=int, default=5_000, help="users, each with as many turns")
    command.add_argument("--turns", type=int, default=1_000_000, help="turns of all users together")
    command.add_argument("--first", type=int, default=100_000, help="turns after which searches are timed first")
    command.add_argument("--clients", type=int, default=4, help="clients that write")
    command.add_argument(
        "--phases",
        type=lambda text: tuple(text.split(",")),
        default=",".join(SCALE_PHASES),
        metavar=",".join(SCALE_PHASES),
        help="what is measured, in this order",
    )
    command.add_argument("--data", type=Path, help="folder that stays, with scale.json; else one that goes")
    command.add_argument("--port", type=_port, default=0, help="first port that may be used (0: any that is free)")
    command.add_argument(
        "--quick", action="store_true", help="tiny sizes and no bars: whether it runs, not at what cost"
    )
    _json(command).set_defaults(command="bench scale")


def _large_user(command: argparse.ArgumentParser) -> None:
    command.add_argument("--turns", type=int, default=200_000, help="turns of the user")
    command.add_argument("--queries", type=int, default=150, help="of the shipped golden queries")
    command.add_argument(
        "--phases",
        type=lambda text: tuple(text.split(",")),
        default=",".join(LARGE_USER_PHASES),
        metavar=",".join(LARGE_USER_PHASES),
        help="what is measured, in this order; exact compares with what search found",
    )
    command.add_argument("--data", type=Path, help="folder that stays, with large_user.json; else one that goes")
    command.add_argument("--port", type=_port, default=0, help="first port that may be used (0: any that is free)")
    command.add_argument("--quick", action="store_true", help="tiny sizes: whether it runs, not at what cost")
    _json(command).set_defaults(command="bench large-user")


def _port(text: str) -> int:
    if not (text.isascii() and text.isdigit() and int(text) <= PORT_MAX):
        raise argparse.ArgumentTypeError(f"{text!r} is no port: a number from 0 to {PORT_MAX}")
    return int(text)


def _engines(text: str) -> tuple[str, ...]:
    engines = tuple(text.split(","))
    if not set(engines) <= {"local", "ray"}:
        raise argparse.ArgumentTypeError("local, ray, or both separated by a comma")
    return engines


def _asked(command: argparse.ArgumentParser) -> None:
    """Who asks what."""
    command.add_argument("--user", required=True, help="whose turns")
    command.add_argument("--session", help="session of the user")
    command.add_argument("query", help="the text to find turns for")


def _remote(command: argparse.ArgumentParser, data_help: str = DATA_HELP) -> argparse.ArgumentParser:
    """Of every command that talks to a running service."""
    _service(command)
    command.add_argument("--key", help="API key; else MEMSTRATA_KEY, else the one in --data")
    command.add_argument("--data", type=Path, help=data_help)
    return _json(command)


def _measured(command: argparse.ArgumentParser) -> argparse.ArgumentParser:
    """Of every suite: which service, and with which key."""
    _service(command)
    command.add_argument("--key", help="API key; else MEMSTRATA_KEY")
    return _json(command)


def _service(command: argparse.ArgumentParser) -> None:
    command.add_argument(
        "--url", default=os.environ.get("MEMSTRATA_URL", DEFAULT_URL), help="the service; else MEMSTRATA_URL"
    )


def _json(command: argparse.ArgumentParser) -> argparse.ArgumentParser:
    command.add_argument("--json", action="store_true", help="print one JSON object last")
    return command
