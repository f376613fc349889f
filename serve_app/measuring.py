"""What asks a service for figures: `train-ranker` and the suites of `bench`.

Each command gives a table, the same as one JSON object, and what is wrong with the figures, if anything. A suite is
imported when it is asked for.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple

from serve_app.client.http import Client

if TYPE_CHECKING:
    from benchmarks import core, recall

Key = Callable[[], str]
"""The key that was given; raises where there is none."""


class Measured(NamedTuple):
    result: dict[str, Any]
    table: str
    missed: Sequence[str] = ()
    """Bars that were to be met."""
    sound: bool = True
    """Whether everything that was to be measured was."""


def train_ranker(args: argparse.Namespace, key: Key) -> Measured:
    from serve_app import train_ranker as training

    options = training.Options(args.data, args.user, args.out, args.folds, args.keep, args.joined)
    with Client(args.url, key()) as client:
        result = training.run(client, options)
    return Measured(result, training.shown(result))


def bench_recall(args: argparse.Namespace, key: Key) -> Measured:
    from benchmarks import recall
    from serve_app.client.data_sets import read_data_set

    trainer: recall.Trainer | None = None
    if args.leave_one_out:
        from serve_app.train_ranker import taught_and_judged

        trainer = taught_and_judged
    given = key()
    data = None if args.golden else read_data_set(args.data)
    with Client(args.url, given) as client:
        result = recall.measure(client, data, recall.Options(args.mode, not args.only, trainer))
    return Measured(result, recall.table(result))


def bench_lexical(args: argparse.Namespace, key: Key) -> Measured:
    from benchmarks import core, lexical

    with Client(args.url, key()) as client:
        result = lexical.measure(client, args.data or core.GOLDEN, args.lang)
    return Measured(result, lexical.table(result))


def bench_latency(args: argparse.Namespace, key: Key) -> Measured:
    from benchmarks import latency

    with Client(args.url, key()) as client:
        result = latency.measure(client, args.turns, args.repeats)
    return Measured(result, latency.table(result))


def bench_context(args: argparse.Namespace, key: Key) -> Measured:
    from benchmarks import contexts, core

    with Client(args.url, key()) as client:
        result = contexts.measure(client, args.data or core.GOLDEN, args.turns, args.queries, args.budget)
    return Measured(result, contexts.table(result))


def bench_core(args: argparse.Namespace, key: Key) -> Measured:
    from benchmarks import core, report

    result = core.measure(_core_options(args, key))
    broken = report.failures(result) if args.quick else report.faults(result)
    missed = report.missed(result) if args.bars else ()
    return Measured(result, report.table(result), missed, not broken and not result["left_behind"])


def bench_compress(args: argparse.Namespace, key: Key) -> Measured:
    from benchmarks import compress, core

    options = compress.Options(args.share, args.repeats, args.replay, args.contexts, args.summary_tokens)
    with Client(args.url, key()) as client:
        result = compress.measure(client, args.data or core.GOLDEN, options)
    return Measured(result, compress.table(result))


def bench_scale(args: argparse.Namespace, key: Key) -> Measured:
    from benchmarks import scale, scale_table

    names = ("clients", "phases", "data", "port", *(() if args.quick else ("users", "turns", "first")))
    base = scale.QUICK if args.quick else scale.Options()
    result = scale.measure(scale.sized(base, **{name: getattr(args, name) for name in names}))
    return Measured(result, scale_table.table(result))


def bench_large_user(args: argparse.Namespace, key: Key) -> Measured:
    from benchmarks import large_user

    base = large_user.QUICK if args.quick else large_user.Options(turns=args.turns, queries=args.queries)
    result = large_user.measure(replace(base, phases=args.phases, data=args.data, port=args.port))
    return Measured(result, large_user.table(result))


def bench_migration(args: argparse.Namespace, key: Key) -> Measured:
    from benchmarks import core, migration, migration_table

    given = {name: getattr(args, name) for name in ("model", "turns", "template")}
    encoder = {name: value for name, value in given.items() if value is not None} | dict(args.set)
    options = migration.Options(
        data=args.data or core.GOLDEN,
        encoder=encoder,
        replaces=args.replaces,
        terms=dict(args.term),
        then=args.then,
        clients=args.clients,
        rate=args.rate,
        golden=args.golden,
        timeout_s=args.timeout,
        runner=args.runner,
    )
    with Client(args.url, key()) as client:
        result = migration.measure(client, key(), options)
    return Measured(result, migration_table.table(result), result["missed"])


def bench_simulate(args: argparse.Namespace, key: Key) -> Measured:
    from benchmarks.simulation import forecast

    names = ("calibration", "deployment", "rates", "rounds", "seconds", "port", "plot")
    given = {name: value for name in names if (value := getattr(args, name)) is not None}
    result = forecast.measure(forecast.Options(**given))
    return Measured(result, forecast.table(result), forecast.missed(result), not forecast.faults(result))


COMMANDS: dict[str, Callable[[argparse.Namespace, Key], Measured]] = {
    "train-ranker": train_ranker,
    "bench recall": bench_recall,
    "bench lexical": bench_lexical,
    "bench latency": bench_latency,
    "bench context": bench_context,
    "bench compress": bench_compress,
    "bench core": bench_core,
    "bench scale": bench_scale,
    "bench large-user": bench_large_user,
    "bench migration": bench_migration,
    "bench simulate": bench_simulate,
}


def _core_options(args: argparse.Namespace, key: Key) -> core.Options:
    from benchmarks import core

    engines = args.engine or (("local",) if args.quick else core.ENGINES)
    given = {"data": args.data, "peers": args.peers, "infinity": args.infinity, "port": args.port}
    if args.url:
        engines = (args.engine or ("service",))[:1]
        given |= {"url": args.url, "key": key()}
    sizes = core.QUICK if args.quick else core.FULL
    return core.Options(engines, sizes=sizes, **{name: value for name, value in given.items() if value})
