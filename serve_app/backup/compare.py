"""Whether two stores hold the same: turns, facts, summaries and vectors of every owner, and the erasures.

How it is stored does not matter: one may have folded what the other still has in its log.
"""

from __future__ import annotations

import msgspec

from serve_app.backup.findings import Report
from serve_app.backup.layout import Layout
from serve_app.backup.verify import Told, nothing
from serve_app.backup.view import Content, ShardView, open_shard
from serve_app.core import Owner


def compare(one: Layout, other: Layout, report: Report, owners: Told = nothing, expected: Told = nothing) -> None:
    """Differences are faults of the report. Raises InvalidRequest, StorageTrouble."""
    shape = one.shape()
    if shape != other.shape():
        report.fault("differs", -1, "the stores differ in shards or embedding versions")
        return
    for number in range(shape.shards):
        _compare_shards(open_shard(one, shape, number), open_shard(other, shape, number), report, owners, expected)


def _compare_shards(one: ShardView, other: ShardView, report: Report, owners: Told, expected: Told) -> None:
    if one.erasures() != other.erasures():
        report.fault("differs", one.number, "the erasures differ")
    everybody = sorted({*one.owners(), *other.owners()})
    expected(len(everybody))
    for owner in everybody:
        parts = _differing(one.content(owner), other.content(owner))
        if parts:
            who = Owner.from_key(owner)
            report.fault("differs", one.number, f"user {who.user!r} of tenant {who.tenant!r}: {', '.join(parts)}")
        owners(1)


def _differing(one: Content, other: Content) -> list[str]:
    parts = []
    for name in Content.__struct_fields__:
        here, there = getattr(one, name), getattr(other, name)
        if msgspec.msgpack.encode(sorted(here.items())) != msgspec.msgpack.encode(sorted(there.items())):
            parts.append(f"{name} ({len(here)} here, {len(there)} there)")
    return parts
