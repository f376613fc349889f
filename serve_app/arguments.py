"""The arguments of every command: their names, defaults and help. Pure: a command line in, a namespace out.

`command` of the namespace names what to do ("serve", "keys create", "bench recall"); who does it is no matter here.
"""

from __future__ import annotations

import argparse
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from serve_app.layouts import QUERY_TYPES
from serve_app.measuring_arguments import add_measuring
from serve_app.options import MODE_HELP, at_least, json_too, port, remote, seconds, setting, share

DEFAULT_BUDGET_TOKENS = 2_000
PORT_WAIT_S = 10.0
"""A service that was just killed may hold its port for some seconds."""

ROLE_HELP = "app: turns, search, context; admin: also the keys of its tenant; operator: also tenants, and every key"
FILE_FORM = """\
Write a file of JSON lines, one turn a line: user_id, session_id, role, content, and id, created_at, speaker if known;
or conversation_id (the user), session, dia_id (the id), speaker, text, timestamp, as conversation data sets have it.
The answer of /v1/users/{user_id}/export can be read back, with its facts."""

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
START_FORM = """\
The new encoder is tried, what is written gets vectors of both, what was written before is embedded by a job, and then
users come to it by shares, as long as what they find is no worse; else it turns back by itself. Options that are not
named are as the settings' defaults have them, whatever is in force."""
SET_HELP = "another option of the section; may be repeated"
TERM_HELP = "like canary_s=600; may be repeated. What is not said is as the policy `migration` says"
RUNNER_HELP = "who starts the job that embeds: the service, or somebody else, by memstrata reembed"
REEMBED_FORM = """\
Every turn from before a migration began gets vectors of the new version, on Ray Data. Stopped, it is taken up where it
was. The cost is told before it begins."""
ACTORS_MAX = 64
SHARE_HELP = "percent of the budget for a zone; may be repeated; a zone without keeps what it has, or what default has"
AT_HELP = "state as of this moment (RFC 3339 with offset); else the newest"


PROFILE_HELP = "cluster: gateways, writers and Control as processes of their own, all on this host"


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
    demo = remote(commands.add_parser("demo", help="write a sample conversation and show a context for it"))
    demo.set_defaults(command="demo")
    _ingest(remote(commands.add_parser("ingest", help="write a file of turns (JSON lines)", description=FILE_FORM)))
    _search(remote(commands.add_parser("search", help="find turns of a user")))
    _context(remote(commands.add_parser("context", help="build a context for a query")))
    layouts = commands.add_parser("layouts", help="how token budgets are shared among the zones of a context")
    _layouts(layouts.add_subparsers(required=True, metavar="action"))
    migrations = commands.add_parser("migrations", help="change the encoder, the reranker or the compressor, and back")
    _migrations(migrations.add_subparsers(required=True, metavar="action"))
    _backup(commands.add_parser("backup", help="back a store up", description=BACKUP_FORM))
    _restore(commands.add_parser("restore", help="make a store from a backup, in a new place"))
    _verify(commands.add_parser("verify", help="check whether a store is whole; changes nothing"))
    _repair(commands.add_parser("repair", help="give up what is damaged in a log", description=REPAIR_FORM))
    reembed = commands.add_parser(
        "reembed", help="embed what a store held before a migration", description=REEMBED_FORM
    )
    add_reembed(reembed).set_defaults(command="reembed")
    add_measuring(commands)
    return whole


def _version() -> str:
    try:
        return version("memstrata")
    except PackageNotFoundError:
        return "of a source folder that is not installed"


def _serve(command: argparse.ArgumentParser) -> None:
    command.add_argument("--data", type=Path, required=True, help="folder of the store; made if it is not there")
    command.add_argument("--host", default="127.0.0.1", help="address to listen on (0.0.0.0: every interface)")
    command.add_argument("--port", type=port, default=8000, help="port to listen on")
    command.add_argument("--port-wait", type=seconds, default=PORT_WAIT_S, help="seconds to wait for a port in use")
    command.add_argument("--engine", choices=("ray", "local"), default="ray", help="Ray Serve, or one process")
    command.add_argument("--config", type=Path, help="TOML file of settings")
    command.add_argument(
        "--role", choices=("writer", "replica"), help="replica: read and follow a store, never write it"
    )
    command.add_argument(
        "--follow", type=Path, metavar="DIR", help="data folder of the writer to follow; makes this a replica"
    )
    command.add_argument("--profile", choices=("laptop", "cluster"), default="laptop", help=PROFILE_HELP)
    command.add_argument("--demo", action="store_true", help="take the demo's tour once ready, and go on serving")
    command.set_defaults(command="serve")


def _create_key(command: argparse.ArgumentParser) -> None:
    command.add_argument("--data", type=Path, required=True, help="data folder of the service; made if it is not there")
    command.add_argument("--tenant", required=True, help="tenant that the key is for")
    command.add_argument("--user", help="bind the key to one user")
    command.add_argument("--role", choices=("app", "admin", "operator"), default="app", help=ROLE_HELP)
    json_too(_config(command)).set_defaults(command="keys create")


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
    command.add_argument("--layout", help="name of the layout; else rules choose one")
    command.add_argument("--model", help="the model that will read it, as the rules of layouts name it")
    command.add_argument(
        "--format", choices=("openai", "anthropic", "text"), default="openai", help="whose messages, or one text"
    )
    command.set_defaults(command="context")


def _layouts(actions: Any) -> None:
    """`actions` takes the commands, as `add_subparsers` gives it."""
    remote(actions.add_parser("list", help="all layouts of the tenant")).set_defaults(command="layouts list")
    show = remote(actions.add_parser("show", help="one layout"))
    show.set_defaults(command="layouts show")
    change = remote(actions.add_parser("set", help="set a layout; it counts from the next context on"))
    change.add_argument("--share", action="append", type=share, metavar="ZONE=PERCENT", default=[], help=SHARE_HELP)
    change.add_argument("--model", action="append", metavar="PATTERN", help="for models of this name, like gpt-*")
    change.add_argument("--query-type", action="append", choices=QUERY_TYPES, help="for queries of this type")
    change.add_argument("--user-tier", action="append", metavar="TIER", help="for users of this tier")
    change.set_defaults(command="layouts set")
    remove = remote(actions.add_parser("remove", help="remove a layout; default becomes the built-in one"))
    remove.set_defaults(command="layouts remove")
    for named in (show, change, remove):
        named.add_argument("name", help="name of the layout")


def _migrations(actions: Any) -> None:
    """`actions` as above."""
    remote(actions.add_parser("list", help="all migrations, oldest first")).set_defaults(command="migrations list")
    start = remote(actions.add_parser("start", help="begin one", description=START_FORM))
    start.add_argument("--of", dest="section", choices=("encoder", "reranker", "compressor"), default="encoder")
    start.add_argument("--model", help="the new model, as the settings name it")
    start.add_argument("--turns", choices=("contextual", "plain"), help="how turns are written out for the encoder")
    start.add_argument("--template", help="what a text is put into, with {text}")
    start.add_argument("--set", action="append", type=setting, metavar="NAME=VALUE", default=[], help=SET_HELP)
    start.add_argument("--settings", type=Path, metavar="FILE", help="TOML file of settings to take the section from")
    start.add_argument("--replaces", metavar="VERSION", help="in whose place it comes; else the primary version")
    start.add_argument("--term", action="append", type=setting, metavar="NAME=VALUE", default=[], help=TERM_HELP)
    start.add_argument("--runner", choices=("service", "none"), default="service", help=RUNNER_HELP)
    start.set_defaults(command="migrations start")
    words = {
        "show": "one migration, and how far it is",
        "advance": "go on without waiting",
        "pause": "rest where it is",
        "resume": "end the rest",
        "rollback": "turn back to what served before",
        "report": "what its gates found",
    }
    for word, told in words.items():
        command = remote(actions.add_parser(word, help=told))
        command.add_argument("id", help="id of the migration")
        command.set_defaults(command=f"migrations {word}")
        if word == "report":
            command.add_argument("--html", type=Path, metavar="FILE", help="write it as a page, too")


def _backup(command: argparse.ArgumentParser) -> None:
    remote(command, BACKUP_DATA_HELP)
    command.add_argument("--to", metavar="URI", help=BACKUP_TO_HELP)
    command.add_argument("--incremental", action="store_true", help="only what is new since the last one; else all")
    _config(command).set_defaults(command="backup")


def _restore(command: argparse.ArgumentParser) -> None:
    command.add_argument("--from", dest="source", metavar="URI", required=True, help="where the backups are")
    command.add_argument("--backup", metavar="ID", help="which one; else the newest that reaches --at")
    command.add_argument("--at", metavar="TIME", help=AT_HELP)
    command.add_argument("--data", type=Path, required=True, help="data folder of the new store; must be empty")
    json_too(_config(command)).set_defaults(command="restore")


def _verify(command: argparse.ArgumentParser) -> None:
    command.add_argument("--data", type=Path, required=True, help="data folder of the store")
    command.add_argument(
        "--against", metavar="DIR|URI", help="data folder of another store, or address of backups, to hold the same"
    )
    command.add_argument("--backup", metavar="ID", help="which backup of --against; else the newest")
    command.add_argument("--against-config", type=Path, help="settings of the store of --against")
    command.add_argument("--url", help="a service that runs on the store, to compare its state with")
    command.add_argument("--key", help="its API key; else MEMSTRATA_KEY, else the one in --data")
    json_too(_config(command)).set_defaults(command="verify")


def _repair(command: argparse.ArgumentParser) -> None:
    command.add_argument("--data", type=Path, required=True, help="data folder of the store")
    command.add_argument("--shard", type=int, help="only this one; else every shard that is damaged")
    command.add_argument("--yes", action="store_true", help="do it")
    json_too(_config(command)).set_defaults(command="repair")


def add_reembed(command: argparse.ArgumentParser) -> argparse.ArgumentParser:
    """Those of the job itself, too."""
    command.add_argument("--url", required=True, help="the service that writes the store")
    command.add_argument("--data", type=Path, required=True, help="data folder of the store")
    command.add_argument("--migration", required=True, metavar="ID", help="the migration to be backfilled")
    command.add_argument("--key-file", type=Path, help="file of an operator's key; else the first key in --data")
    command.add_argument("--address", help="Ray cluster to run on; else RAY_ADDRESS, else a private one on this host")
    command.add_argument("--actors", type=_actors, help="encoders at most; else one a GPU, or one where there is none")
    return json_too(_config(command))


def _actors(text: str) -> int:
    number = at_least(1)(text)
    if number > ACTORS_MAX:
        raise argparse.ArgumentTypeError(f"{number} encoders; at most {ACTORS_MAX}")
    return number


def _config(command: argparse.ArgumentParser) -> argparse.ArgumentParser:
    command.add_argument("--config", type=Path, help="TOML file of settings, as the service has it")
    return command


def _asked(command: argparse.ArgumentParser) -> None:
    """Who asks what."""
    command.add_argument("--user", required=True, help="whose turns")
    command.add_argument("--session", help="session of the user")
    command.add_argument("query", help="the text to find turns for")
