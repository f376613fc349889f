"""What is done to a store as a whole: `backup`, `restore`, `verify`, `repair`.

Each command gives what it found, and whether it did what it was asked to do.
"""

from __future__ import annotations

import argparse
import os
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import msgspec
from tqdm import tqdm

from serve_app.api.times import format_time, parse_time
from serve_app.backup import catalogue, repair
from serve_app.backup.compare import compare
from serve_app.backup.copying import Pace
from serve_app.backup.findings import Report
from serve_app.backup.layout import Layout, below, log_folder, table_name
from serve_app.backup.manifest import Manifest
from serve_app.backup.plan import plan
from serve_app.backup.restore import Restorer, choose, until
from serve_app.backup.store_id import StoreRecord
from serve_app.backup.take import NobodyWrites, Taker
from serve_app.backup.verify import verify
from serve_app.client.http import Client, Unreachable
from serve_app.config import Settings, load_settings
from serve_app.errors import InvalidRequest, MemstrataError, StoreUnavailable
from serve_app.stores.addresses import given_address
from serve_app.stores.folder_lock import lock_folder
from serve_app.stores.places import open_place
from serve_app.stores.segments_object import open_segments
from serve_app.write.commit import microseconds

KEY_FILE = "admin.key"
POLL_S = 0.25
DAMAGED = "damaged"
"""Folder of a store where a repair keeps what it took out of the log."""

FINDINGS_SHOWN = 50


class Done(NamedTuple):
    """The one JSON object, the same for people, and whether what was asked was done."""

    result: dict[str, Any]
    text: str
    done: bool = True


class Bar(Protocol):
    """Progress: more to come, and so much done."""

    total: float | None

    def update(self, count: float) -> object: ...


@contextmanager
def bar(command: str) -> Iterator[Bar]:
    """Of bytes, or of users where owners are gone through. On standard error, where that is a terminal."""
    if command in ("backup", "restore"):
        with tqdm(total=0, unit="B", unit_scale=True, disable=None) as shown:
            yield shown
    else:
        with tqdm(total=0, unit=" users", disable=None) as shown:
            yield shown


def _expect(shown: Bar) -> Callable[[int], None]:
    def more(count: int) -> None:
        shown.total = (shown.total or 0) + count

    return more


def _step(shown: Bar) -> Callable[[int], None]:
    def done(count: int) -> None:
        shown.update(count)

    return done


# ---- backup


def backup(args: argparse.Namespace, key: str | None, shown: Bar) -> Done:
    kind = "incremental" if args.incremental else "full"
    if args.data is not None and (lock := _lock_if_free(args.data)) is not None:
        try:
            return _offline(load_settings(args.data, args.config), args.to, kind, shown)
        finally:
            os.close(lock)
    with Client(args.url, key or _kept_key(args.data)) as client:
        try:
            return _online(client, args.to, kind, shown)
        except Unreachable as error:
            raise error if args.data is None else Unreachable(_other_address(args.data, error)) from error


def _other_address(folder: Path, error: Unreachable) -> str:
    return f"{folder} is in use: give the address of its service with --url; {error}"


def _offline(settings: Settings, to: str | None, kind: Any, shown: Bar) -> Done:
    uri = settings.backup.uri if to is None else given_address(to, settings.layout.folder)
    if not uri:
        raise InvalidRequest("where to? give --to, or set [backup] uri")
    place, layout = open_place(uri, settings.backup_connection), settings.layout
    layout.shape()
    record = StoreRecord(layout.documents)
    known = record.store_id
    planned = plan(catalogue.look(place, known, {}), kind, known, microseconds())
    base = None if planned.base is None else catalogue.read_manifest(place, planned.base.id)
    taker = Taker(layout, place, NobodyWrites(), Pace(None, _step(shown)), microseconds, _expect(shown))
    made = taker.take(planned.begun, base)
    return _backed_up(uri, _of_manifest(made))


def _of_manifest(made: Manifest) -> dict[str, Any]:
    span = made.reachable
    return {
        "id": made.begun.id,
        "kind": made.begun.kind,
        "base": made.begun.base,
        "state": "finished",
        "bytes": made.total_bytes,
        "own_bytes": made.own_bytes,
        "reachable": None if span is None else {"from": format_time(span[0]), "until": format_time(span[1])},
    }


def _online(client: Client, to: str | None, kind: str, shown: Bar) -> Done:
    begun = client.begin_backup(kind, to)
    seen = 0
    while True:
        found = next((one for one in client.backups() if one["id"] == begun["id"]), None)
        if found is None:
            raise StoreUnavailable(f"the service has lost backup {begun['id']}; see its /readyz")
        shown.total = found.get("planned_bytes") or found.get("own_bytes", 0)
        copied = int(found.get("copied_bytes") or found.get("own_bytes") or 0)
        shown.update(max(0, copied - seen))
        seen = max(seen, copied)
        if found["state"] == "finished":
            return _backed_up(to or "the service's address", found)
        if found["state"] != "running":
            return Done(found, f"backup {begun['id']} {found['state']}: {found.get('error')}", done=False)
        time.sleep(POLL_S)


def _backed_up(uri: str, made: dict[str, Any]) -> Done:
    copied = f"backup {made['id']} ({made['kind']}) at {uri}: {made['own_bytes']:,} bytes copied of {made['bytes']:,}"
    return Done(made, f"{copied}\n{_span_told(made['reachable'])}")


def _span_told(span: dict[str, str] | None) -> str:
    if span is None:
        return "a restore gives each shard as it was copied; there is no one moment that all of them reach (--at)"
    return f"a restore can go to any moment from {span['from']} until {span['until']}"


# ---- restore


def restore(args: argparse.Namespace, key: str | None, shown: Bar) -> Done:
    settings = load_settings(args.data, args.config)
    place = open_place(given_address(args.source), settings.backup_connection)
    at = None if args.at is None else parse_time(args.at, "--at")[0]
    unreadable: list[str] = []
    chosen = choose(place, args.backup, at, unreadable.append)
    for newer in unreadable:
        print(f"backup {newer} is newer, but damaged: it is passed over", file=sys.stderr)
    wanted = [segment.file.size for shard in chosen.shards for segment in until(shard, at)]
    tables = [file.size for shard in chosen.shards for table in shard.tables for file in table.files]
    _expect(shown)(sum(wanted) + sum(tables) + sum(file.size for file in chosen.small))
    done = Restorer(place, settings.layout, Pace(None), _step(shown)).restore(chosen, at)
    made = _of_manifest(chosen)
    result = {
        "backup": made["id"],
        "at": None if at is None else format_time(at),
        "reachable": made["reachable"],
        "passed_over": unreadable,
        "data": str(args.data),
        "shards": [{"shard": number, "seq": seq} for number, seq in enumerate(done.seqs)],
        "files": done.files,
        "bytes": done.bytes,
    }
    text = (
        f"restored {made['id']} into {args.data}: {done.files} files, {done.bytes:,} bytes, checksums right\n"
        f"state as of {result['at'] or _end_of(made)}; keys are those of the backup"
    )
    return Done(result, text)


def _end_of(made: dict[str, Any]) -> str:
    return str(made["reachable"]["until"]) if made["reachable"] else "when each shard was copied"


# ---- verify


def verify_store(args: argparse.Namespace, key: str | None, shown: Bar) -> Done:
    if args.backup is not None and args.against is None:
        raise InvalidRequest("--backup says which one of --against: name the address of the backups with it")
    layout, report = load_settings(args.data, args.config).layout, Report()
    verify(layout, report, _step(shown), _expect(shown))
    if args.url is not None:
        with Client(args.url, key or _kept_key(args.data)) as client:
            _compare_with_service(client.stats(), layout, report)
    if args.against is not None:
        with _other_store(args) as other:
            compare(layout, other, report, _step(shown), _expect(shown))
    result = {
        "sound": report.sound,
        "faults": report.faults,
        "leftovers": report.leftovers,
        "checked": report.counts,
        "findings": [msgspec.to_builtins(one) for one in report.findings],
    }
    return Done(result, _told(report), done=report.sound)


def _told(report: Report) -> str:
    counts = ", ".join(f"{count:,} {what}" for what, count in report.counts.items())
    lines = [f"{one.severity}: shard {one.shard}: {one.kind}: {one.what}" for one in report.findings[:FINDINGS_SHOWN]]
    verdict = "the store is whole" if report.sound else f"{report.faults} faults"
    return "\n".join([*lines, f"looked at {counts}", f"{verdict}; {report.leftovers} leftovers"])


def _compare_with_service(stats: dict[str, Any], layout: Layout, report: Report) -> None:
    """The service has read at least what the store holds: its state is taken after the store was looked at."""
    shape = layout.shape()
    for line in stats["shards"]:
        reader = layout.reader(shape, line["shard"])
        if line["folded_seq"] > reader.folded_seq():
            report.fault("memory", line["shard"], "the service believes that more is folded than the table holds")
        if line["seq"] < line["folded_seq"]:
            report.fault("memory", line["shard"], "the service is behind its own table")
        for damage in line["damage"]:
            report.fault("memory", line["shard"], damage)


@contextmanager
def _other_store(args: argparse.Namespace) -> Iterator[Layout]:
    """A data folder as it is; a backup restored into a folder that goes afterwards."""
    folder = Path(args.against)
    if "://" not in args.against and (folder / "store.json").exists():
        yield load_settings(folder, args.against_config).layout
        return
    place = open_place(given_address(args.against), load_settings(args.data, args.config).backup_connection)
    chosen = choose(place, args.backup, None)
    scratch = Path(tempfile.mkdtemp(prefix="memstrata-verify-"))
    try:
        layout = Layout.of(scratch, "", "", {})
        Restorer(place, layout, Pace(None)).restore(chosen, None)
        yield layout
    finally:
        shutil.rmtree(scratch, ignore_errors=True)


# ---- repair


def repair_store(args: argparse.Namespace, key: str | None, shown: Bar) -> Done:
    layout = load_settings(args.data, args.config).layout
    layout.shape()  # before the lock, which would make the folder
    lock = lock_folder(args.data)
    try:
        return _repair(layout, args.shard, args.yes)
    finally:
        os.close(lock)


def _repair(layout: Layout, only: int | None, do: bool) -> Done:
    shape = layout.shape()
    if only is not None and not 0 <= only < shape.shards:
        raise InvalidRequest(f"--shard: there are {shape.shards}, from 0 on")
    lines: list[dict[str, Any]] = []
    for number in range(shape.shards) if only is None else [only]:
        segments = open_segments(f"{layout.log_uri}/{log_folder(number)}", layout.options)
        reader = layout.reader(shape, number)
        changes = repair.work_out(segments, reader.folded_seq())
        if do:
            repair.apply(segments, changes, layout.home, f"{DAMAGED}/{table_name(number)}")
        lines += [_change(number, change) for change in changes]
    return Done({"repaired": do, "changes": lines}, _repair_told(layout, lines, do))


def _change(shard: int, change: repair.Change) -> dict[str, Any]:
    return {
        "shard": shard,
        "segment": change.segment,
        "reason": change.reason,
        "entries_kept": change.kept,
        "entries_lost": change.lost,
        "seqs_lost": change.seqs_lost,
    }


def _repair_told(layout: Layout, lines: list[dict[str, Any]], do: bool) -> str:
    if not lines:
        return "no log has a hole: there is nothing to repair"
    told = [
        f"shard {line['shard']}: segment {line['segment']} {line['reason']}: {line['entries_kept']} entries stay, "
        + (f"{line['entries_lost']} are lost" if line["entries_lost"] is not None else "all others are lost")
        for line in lines
    ]
    end = (
        f"repaired; the damaged segments are kept in {below(layout.files_uri, DAMAGED)}"
        if do
        else "give --yes to do it"
    )
    return "\n".join([*told, end])


COMMANDS: dict[str, Callable[[argparse.Namespace, str | None, Bar], Done]] = {
    "backup": backup,
    "restore": restore,
    "verify": verify_store,
    "repair": repair_store,
}


def _lock_if_free(folder: Path) -> int | None:
    """None where a service runs on the folder. Raises InvalidRequest where there is none."""
    if not folder.is_dir():
        raise InvalidRequest(f"{folder} holds no store")
    try:
        return lock_folder(folder)
    except StoreUnavailable:
        return None


def _kept_key(folder: Path | None) -> str:
    try:
        return (folder / KEY_FILE).read_text().strip() if folder is not None else _no_key()
    except OSError as error:
        raise InvalidRequest(f"no key: give --key or set MEMSTRATA_KEY; {error.filename} cannot be read") from error


def _no_key() -> str:
    raise NoKey("no key: give --key or set MEMSTRATA_KEY, or name the service's data folder with --data")


class NoKey(MemstrataError):
    code = "usage"
