"""Looks for personal data in a store that its privacy policies do not allow there:

    python -m jobs.pii_rescan --data DIR [--level secrets|strict] [--url URL --key KEY [--apply]] [--json]

Ray Data reads the warm and the cold tables by ranges and runs the redactor over contents, data, metadata, facts and
summaries. Each tenant is held to its own policy, or with `--level` all of them to that. Told are counts by kind, tenant
and shard; no text leaves the task that read it. `--apply` has the service, through its writer, redact what was found,
waits for that, and looks again. Exits 1 where something is found that is still there at the end.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple

import msgspec
from tqdm import tqdm

from jobs.command import Session, ended
from jobs.pii_findings import TYPES, found_in
from jobs.session import ray_session
from jobs.stored_rows import Source, StoredTable, Stretch, folded_seqs, stretches
from serve_app.backup.layout import TABLES
from serve_app.client.http import Client
from serve_app.config import load_settings
from serve_app.core import Owner
from serve_app.errors import InvalidRequest
from serve_app.options import DEFAULT_URL, seconds
from serve_app.policies import PRIVACY_LEVELS, PrivacyLevel, PrivacyPolicy
from serve_app.stores.policy_file import PolicyFile
from serve_app.stores.rows import COLD

READERS: Final = 2
"""Stretches that are read at once."""

TENANTS_A_CALL: Final = 1_000
PATIENCE_S: Final = 3_600.0
POLL_S: Final = 0.5
ALL_TENANTS: Final = ""
"""In place of a tenant: the level of those that have set no policy."""


class Finding(NamedTuple):
    """Rows of one kind that hold personal data."""

    tenant: str
    shard: int
    root: str
    row: str
    """turn, fact or summary."""
    kind: str
    """Of personal data; empty in the line that counts the rows."""


def main(arguments: Sequence[str] | None = None, *, session: Session = ray_session) -> int:
    return ended("pii_rescan", _arguments(arguments), PiiRescan, session, _table, "clean")


def _arguments(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m jobs.pii_rescan", description=__doc__.partition("\n")[0])
    parser.add_argument("--data", type=Path, required=True, help="data folder of the store")
    parser.add_argument("--config", type=Path, help="TOML file of settings, as the service has it")
    parser.add_argument("--level", choices=PRIVACY_LEVELS[1:], help="for all tenants; else the policy of each")
    parser.add_argument("--apply", action="store_true", help="have the service redact what is found")
    parser.add_argument("--url", default=os.environ.get("MEMSTRATA_URL"), help=f"the service, like {DEFAULT_URL}")
    parser.add_argument("--key", default=os.environ.get("MEMSTRATA_KEY"), help="an operator's; else MEMSTRATA_KEY")
    parser.add_argument("--patience", type=seconds, default=PATIENCE_S, help="seconds to wait for the service's part")
    parser.add_argument("--address", help="of a Ray cluster; else one is started on this host")
    parser.add_argument("--json", action="store_true", help="print one JSON object last")
    return parser.parse_args(arguments)


class PiiRescan:
    """Raises MemstrataError where it cannot be begun, or not go on."""

    def __init__(self, args: argparse.Namespace) -> None:
        if args.apply and not (args.url and args.key):
            raise InvalidRequest("--apply: the service does it; give --url and --key")
        settings = load_settings(args.data, args.config)
        self._args = args
        self._shards = settings.layout.shape().shards
        self._source = Source(settings.layout)
        self._policies = PolicyFile(settings.files)
        self._client = Client(args.url, args.key) if args.url and args.key else None

    def run(self) -> dict[str, Any]:
        """What is there; with `--apply`, what was there, and what is there now."""
        result = self._looked("looking")
        if not self._args.apply or result["clean"]:
            return result
        found = {one["tenant"] for one in result["findings"]}
        looser = {tenant for tenant in found if not self._covered(tenant)}
        self._apply(sorted(found - looser))
        now = self._looked("looking again")
        return now | {"before": result["findings"], "looser_policy": sorted(looser), "applied": sorted(found - looser)}

    def _looked(self, what: str) -> dict[str, Any]:
        if self._client is not None:
            self._client.maintain("fold")  # all that is acknowledged is in the tables then
        ends = folded_seqs(self._source, self._shards)
        pieces, counts = stretches(ends), Counter[Finding]()
        rows = 0
        with tqdm(total=len(pieces), unit=" ranges", desc=what, disable=None) as bar:
            for read, found in _scanned(self._source, pieces, self._levels()):
                counts.update(found)
                rows += read
                bar.update(1)
        return {
            "clean": not counts,
            "rows": rows,
            "folded_seqs": ends,
            "tail_included": self._client is not None,
            "findings": _shown(counts),
        }

    def _levels(self) -> dict[str, PrivacyLevel]:
        if self._args.level:
            return {ALL_TENANTS: self._args.level}
        return {name: self._policies.of(name, PrivacyPolicy).level for name in self._policies.tenants()} | {
            ALL_TENANTS: PrivacyPolicy().level
        }

    def _covered(self, tenant: str) -> bool:
        """Whether the tenant's policy is as tight as what was looked for: the service goes by that."""
        wanted = self._args.level or self._policies.of(tenant, PrivacyPolicy).level
        return PRIVACY_LEVELS.index(self._policies.of(tenant, PrivacyPolicy).level) >= PRIVACY_LEVELS.index(wanted)

    def _apply(self, tenants: Sequence[str]) -> None:
        """Have them looked through anew by the service, and wait until it is done and the old bytes have gone."""
        assert self._client is not None
        for start in range(0, len(tenants), TENANTS_A_CALL):
            self._client.maintain("rescan", tenants[start : start + TENANTS_A_CALL])
        ends = time.monotonic() + self._args.patience
        with tqdm(total=len(tenants), unit=" tenants", desc="the service redacts", disable=None) as bar:
            while left := [name for name in tenants if name in self._policies.lagging()]:
                bar.update(len(tenants) - len(left) - bar.n)
                if time.monotonic() > ends:
                    raise InvalidRequest(f"the service is not done after {self._args.patience:.0f} s; run this again")
                time.sleep(POLL_S)
            bar.update(len(tenants) - bar.n)
        if tenants:
            self._client.maintain("compact")


def _scanned(
    source: Source, pieces: Sequence[Stretch], levels: Mapping[str, PrivacyLevel]
) -> Iterator[tuple[int, Counter[Finding]]]:
    """Rows read and what was found, stretch by stretch."""
    import ray

    given = {"source": source, "pieces": ray.put(list(pieces)), "levels": dict(levels)}
    numbers = ray.data.range(len(pieces), override_num_blocks=len(pieces))
    found = numbers.map_batches(_scan, batch_size=1, concurrency=min(READERS, len(pieces)), fn_kwargs=given)
    for row in found.iter_rows():
        counted = msgspec.msgpack.decode(row["found"], type=list[tuple[Finding, int]])
        yield row["rows"], Counter(dict(counted))


def _scan(
    batch: dict[str, Any], source: Source, pieces: Any, levels: Mapping[str, PrivacyLevel]
) -> Iterator[dict[str, Any]]:
    import ray

    for number in batch["id"]:
        rows, found = scan(source, ray.get(pieces)[int(number)], levels)
        yield {"rows": [rows], "found": [msgspec.msgpack.encode(list(found.items()))]}


def scan(source: Source, piece: Stretch, levels: Mapping[str, PrivacyLevel]) -> tuple[int, Counter[Finding]]:
    """How many rows of the stretch hold somebody's words, and what is found in them."""
    rows, found = 0, Counter[Finding]()
    columns = ["owner", "kind", "body", *(["tier"] if piece.root == TABLES else [])]
    for part in StoredTable(source, piece.shard, piece.root).ranges(piece.first, piece.last, columns, tuple(TYPES)):
        for row in part.to_pylist():
            if piece.root == TABLES and row["kind"] == "turn" and row["tier"] == COLD:
                continue  # a stub: what it stands for is in the cold table
            rows += 1
            tenant = Owner.from_key(row["owner"]).tenant
            kinds = found_in(row["kind"], row["body"], levels.get(tenant, levels[ALL_TENANTS]))
            place = Finding(tenant, piece.shard, piece.root, row["kind"], "")
            found.update({place._replace(kind=kind): count for kind, count in kinds.items()})
            found[place] += bool(kinds)
    return rows, +found


def _shown(counts: Counter[Finding]) -> list[dict[str, Any]]:
    """By tenant, shard, table and kind of row: how many rows, and how much of what."""
    places: dict[tuple[str, int, str, str], dict[str, Any]] = {}
    for one, count in sorted(counts.items()):
        place = places.setdefault(one[:4], {**one._asdict(), "rows": 0, "kinds": {}})
        place.pop("kind", None)
        if one.kind:
            place["kinds"][one.kind] = count
        else:
            place["rows"] = count
    return list(places.values())


def _table(result: dict[str, Any]) -> str:
    lines = [f"{result['rows']} rows looked at"]
    lines += [_line(one) for one in result["findings"]] or ["nothing found"]
    for tenant in result.get("looser_policy", ()):
        lines.append(f"{tenant}: its policy is looser than that; set it (policy privacy), and the service follows")
    if not result["tail_included"]:
        lines.append("only what is folded was looked at: with --url and --key the service folds first")
    return "\n".join(lines)


def _line(one: dict[str, Any]) -> str:
    kinds = ", ".join(f"{count} {kind}" for kind, count in one["kinds"].items())
    place = "cold" if one["root"] != TABLES else "warm"
    return f"{one['tenant']}  shard {one['shard']}  {place}  {one['rows']} {one['row']}s: {kinds}"


if __name__ == "__main__":
    sys.exit(main())
