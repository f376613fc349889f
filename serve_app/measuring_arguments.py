"""The arguments of `train-ranker` and of the suites of `bench`. Pure, like those of the other commands."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from serve_app.options import MODE_HELP, at_least, json_too, measured, part, port, rate, seconds, setting

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

DIALOGUES_HELP = """\
file of dialogues, or folder with constraints*.jsonl or conversations.jsonl; else the shipped data set"""
CONTEXTS_HELP = """\
also contexts for so long, with summaries made beside them and without in turn; needs an admin's key"""
COMPRESS_FORM = """\
Compresses dialogues by the service, again and again and in another order each time. Users that are written, with
--replay and --contexts, are erased at the end."""

MIGRATION_FORM = """\
Migrates a running service to another encoder while clients append, edit, delete and search, and holds it to bars:
nothing fails, nothing is lost, nothing comes back, no score is of two versions. Needs an operator's key; what it writes
is erased at the end. The service itself is changed by it: unless it goes back, it has the new encoder then."""
SETTING_HELP = "another option of the new encoder, as its section of the settings has it; may be repeated"
TERMS_HELP = "of the policy migration, like soak_s=5; may be repeated"
THEN_HELP = """\
done: to its end; soak: up to there, then back; rollback: from soak back, with contexts compared; stopped: it must turn
back by itself before all are served by the new one"""

SCALE_PHASES = ("ingest", "restart", "memory", "compact", "erase")
LARGE_USER_PHASES = ("fill", "search", "restart", "exact")
LARGE_USER_FORM = """\
Starts a service on a store of its own, with an encoder that costs next to nothing, writes turns of one user, and
compares what a search finds with what one finds that keeps every turn in memory (docs/measurements.md)."""
SCALE_FORM = """\
Starts a service on a store of its own, with an encoder that costs next to nothing, and fills it. On two busy cores a
million turns took over twenty minutes to write, and four gigabytes of disk (docs/measurements.md). Each phase is kept
in scale.json as soon as it is done. Beside some figures stands a bar: the most that they should be."""

SIMULATE_FORM = """\
Says how many replicas hold a load, what they wait for and cost: by a model of the cluster whose service times were
measured. With --rounds it measures them first, on a service of its own, and holds the model against open loops that it
was not fitted to; exit 1 where a figure is more than 15 % off, or a goal is not held (docs/simulation.md)."""


def add_measuring(commands: Any) -> None:
    """To the subparsers of the whole."""
    _train(
        measured(
            commands.add_parser(
                "train-ranker", help="learn a ranker from queries with known answers", description=TRAIN_FORM
            )
        )
    )
    suites = commands.add_parser("bench", help="measure a service").add_subparsers(required=True, metavar="suite")
    recall = suites.add_parser(
        "recall", help="how many of the turns that answer a query are found", description=RECALL_FORM
    )
    _recall(measured(recall))
    lexical = suites.add_parser(
        "lexical", help="ways to cut Chinese into words, side by side", description=LEXICAL_FORM
    )
    _lexical(measured(lexical))
    _latency(measured(suites.add_parser("latency", help="how long one client waits")))
    _context(measured(suites.add_parser("context", help="what a context of a long session takes, by stage")))
    _compress(measured(suites.add_parser("compress", help="what summaries keep and cost", description=COMPRESS_FORM)))
    migration = suites.add_parser(
        "migration", help="a change of the encoder under load, and whether anybody noticed", description=MIGRATION_FORM
    )
    _migration(measured(migration))
    _core(suites.add_parser("core", help="speed of each engine against the machine's ceiling", description=CORE_FORM))
    _scale(suites.add_parser("scale", help="what many turns of many users cost", description=SCALE_FORM))
    _large_user(suites.add_parser("large-user", help="what one very large user costs", description=LARGE_USER_FORM))
    _simulate(
        suites.add_parser("simulate", help="replicas, latency and cost of loads to come", description=SIMULATE_FORM)
    )


def _simulate(command: argparse.ArgumentParser) -> None:
    command.add_argument("--calibration", type=Path, metavar="FILE", help="measured times; --rounds writes them there")
    command.add_argument("--deployment", type=Path, metavar="FILE", help="TOML file of what is assumed, with prices")
    command.add_argument("--rates", type=_rates, metavar="N,N", help="requests a second; else those of the deployment")
    command.add_argument("--rounds", type=at_least(0), default=0, help="measure so many times first; medians count")
    command.add_argument("--seconds", type=seconds, help="of each open loop that the model is held against")
    command.add_argument("--port", type=port, default=0, help="first port that may be used (0: any that is free)")
    command.add_argument("--plot", type=Path, metavar="FILE", help="draw latency against load, as PNG")
    json_too(command).set_defaults(command="bench simulate")


def _rates(text: str) -> tuple[float, ...]:
    return tuple(rate(one) for one in text.split(","))


def _migration(command: argparse.ArgumentParser) -> None:
    command.add_argument("--data", type=Path, metavar="DIR", help=CORE_DATA_HELP)
    command.add_argument("--model", help="the new encoder; else that of the service, with what else is named")
    command.add_argument("--turns", choices=("contextual", "plain"), help="how it has turns written out")
    command.add_argument("--template", help="how it has texts written out")
    command.add_argument("--set", action="append", type=setting, metavar="NAME=VALUE", default=[], help=SETTING_HELP)
    command.add_argument("--replaces", metavar="VERSION", help="in whose place it comes; else the primary version")
    command.add_argument("--term", action="append", type=setting, metavar="NAME=VALUE", default=[], help=TERMS_HELP)
    command.add_argument("--then", choices=("done", "soak", "rollback", "stopped"), default="done", help=THEN_HELP)
    command.add_argument("--clients", type=at_least(1), default=3, help="clients that write and search meanwhile")
    command.add_argument("--rate", type=rate, default=2.0, help="requests a second of each of them")
    command.add_argument("--golden", type=at_least(0), default=300, help="queries of the data that are kept as golden")
    command.add_argument("--timeout", type=seconds, default=1_800.0, help="for each state that is waited for")
    command.add_argument("--runner", choices=("service", "none"), default="service", help="who starts the backfill")
    command.set_defaults(command="bench migration")


def _queries(command: argparse.ArgumentParser) -> None:
    """Where the queries come from."""
    source = command.add_mutually_exclusive_group(required=True)
    source.add_argument("--data", type=Path, help=QUERIES_HELP)
    source.add_argument("--golden", action="store_true", help="the golden queries that the service holds for the key")


def _recall(command: argparse.ArgumentParser) -> None:
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
    command.add_argument("--joined", type=at_least(0), default=0, metavar="N", help=JOINED_HELP)
    command.add_argument("--keep", action="store_true", help="leave the users that are written")
    command.set_defaults(command="train-ranker")


def _latency(command: argparse.ArgumentParser) -> None:
    command.add_argument("--turns", type=at_least(1), default=5_000, help="length of the long session")
    command.add_argument("--repeats", type=at_least(1), default=200, help="requests of each kind")
    command.set_defaults(command="bench latency")


def _context(command: argparse.ArgumentParser) -> None:
    command.add_argument("--data", type=Path, metavar="DIR", help=CORE_DATA_HELP)
    command.add_argument("--turns", type=at_least(1), default=2_000, help="length of the session")
    command.add_argument("--queries", type=at_least(1), default=60, help="different queries, each asked four times")
    command.add_argument("--budget", type=at_least(1), default=4_000, help="tokens of a context")
    command.set_defaults(command="bench context")


def _compress(command: argparse.ArgumentParser) -> None:
    command.add_argument("--data", type=Path, metavar="FILE|DIR", help=DIALOGUES_HELP)
    command.add_argument("--share", type=part, default=0.35, help="of a dialogue's tokens that its summary may take")
    command.add_argument("--repeats", type=at_least(1), default=3, help="times that each dialogue is compressed")
    command.add_argument(
        "--replay",
        type=at_least(0),
        nargs="?",
        const=1_000,
        default=0,
        metavar="N",
        help="also one conversation of N turns",
    )
    command.add_argument("--contexts", type=seconds, default=0.0, metavar="SECONDS", help=CONTEXTS_HELP)
    command.add_argument(
        "--summary-tokens", type=at_least(1), default=600, help="what the service holds summaries under"
    )
    command.set_defaults(command="bench compress")


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
    command.add_argument("--port", type=port, default=0, help="first of the ports that are used (0: any that are free)")
    command.add_argument("--quick", action="store_true", help="tiny sizes and no bars: whether it runs, not how fast")
    command.add_argument("--bars", action="store_true", help="exit 1 if a bar is missed")
    json_too(command).set_defaults(command="bench core")


def _scale(command: argparse.ArgumentParser) -> None:
    command.add_argument("--users", type=at_least(1), default=5_000, help="users, each with as many turns")
    command.add_argument("--turns", type=at_least(1), default=1_000_000, help="turns of all users together")
    command.add_argument(
        "--first", type=at_least(1), default=100_000, help="turns after which searches are timed first"
    )
    command.add_argument("--clients", type=at_least(1), default=4, help="clients that write")
    command.add_argument(
        "--phases",
        type=lambda text: tuple(text.split(",")),
        default=",".join(SCALE_PHASES),
        metavar=",".join(SCALE_PHASES),
        help="what is measured, in this order",
    )
    command.add_argument("--data", type=Path, help="folder that stays, with scale.json; else one that goes")
    command.add_argument("--port", type=port, default=0, help="first port that may be used (0: any that is free)")
    command.add_argument(
        "--quick", action="store_true", help="tiny sizes and no bars: whether it runs, not at what cost"
    )
    json_too(command).set_defaults(command="bench scale")


def _large_user(command: argparse.ArgumentParser) -> None:
    command.add_argument("--turns", type=at_least(1), default=200_000, help="turns of the user")
    command.add_argument("--queries", type=at_least(1), default=150, help="of the shipped golden queries")
    command.add_argument(
        "--phases",
        type=lambda text: tuple(text.split(",")),
        default=",".join(LARGE_USER_PHASES),
        metavar=",".join(LARGE_USER_PHASES),
        help="what is measured, in this order; exact compares with what search found",
    )
    command.add_argument("--data", type=Path, help="folder that stays, with large_user.json; else one that goes")
    command.add_argument("--port", type=port, default=0, help="first port that may be used (0: any that is free)")
    command.add_argument("--quick", action="store_true", help="tiny sizes: whether it runs, not at what cost")
    json_too(command).set_defaults(command="bench large-user")


def _engines(text: str) -> tuple[str, ...]:
    engines = tuple(text.split(","))
    if not set(engines) <= {"local", "ray"}:
        raise argparse.ArgumentTypeError("local, ray, or both separated by a comma")
    return engines
