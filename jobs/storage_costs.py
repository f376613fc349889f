"""What vectors and tokens cost a shard: ingest, bytes on disk, bytes in memory, the first touch, and late interaction.

    python -m jobs.storage_costs [--versions 2] [--embedded 1] [--tokens 30] [--owners 50] [--turns 400]

Prints one JSON object. The encoder gives random vectors at once, so that the store alone is measured. Run it once for
each row of a table: memory is that of a process which has loaded every user once.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import statistics
import subprocess
import sys
import tempfile
import time
import uuid
from collections.abc import Sequence
from concurrent.futures import Future
from pathlib import Path
from typing import Any

import numpy as np

from serve_app.core import EmbeddingVersion, Owner, TurnForm
from serve_app.ports import TOKEN_DIMENSION, Encodings
from serve_app.records import Record, decode_record
from serve_app.stores.cold import ColdTable
from serve_app.stores.hot_indexes import HotIndexes
from serve_app.stores.lance import RecordTable
from serve_app.stores.log import ShardLog
from serve_app.stores.segments_disk import DiskSegments
from serve_app.write.commit import ShardWriter, microseconds
from serve_app.write.fold import fold
from serve_app.write.indexer import Indexer
from serve_app.write.operations import AppendTurns, NewTurn
from serve_app.write.shard import Shard

DIMENSION = 384
WORDS_A_TURN = 22
APPEND_TURNS = 20
CANDIDATES = 100
CALLS = 200
WORDS = [f"word{number}" for number in range(20_000)]


class RandomEncoders:
    """The first of the versions for every turn, and at once."""

    def __init__(self, versions: Sequence[EmbeddingVersion], embedded: int, tokens: int) -> None:
        self._names = tuple(version.name for version in versions[:embedded])
        self._tokens = tokens
        chance = np.random.default_rng(1)
        self._vectors = chance.standard_normal((4_096, DIMENSION), np.float32) / DIMENSION**0.5
        self._codes = chance.integers(-60, 60, (4_096, TOKEN_DIMENSION), np.int8)

    def of_turn(self, text: str, mixed: bool) -> tuple[str, ...]:
        return self._names

    def form(self, version: str) -> TurnForm:
        return "contextual"

    def chunks(self, version: str, text: str) -> list[str]:
        return [text]

    def passages(self, version: str, texts: Sequence[str]) -> Future[Encodings]:
        starts = [hash(text) % (4_096 - self._tokens) for text in texts]
        tokens = [self._codes[start : start + self._tokens] for start in starts] if self._tokens else None
        made: Future[Encodings] = Future()
        made.set_result(Encodings(self._vectors[starts], [self._tokens] * len(texts), tokens))
        return made


class Store:
    """One shard in a folder, as a service opens it."""

    def __init__(self, folder: Path, versions: Sequence[EmbeddingVersion], encoders: RandomEncoders) -> None:
        table = RecordTable(str(folder / "tables"), "shard-0000", versions, {})
        log, found = ShardLog.open(
            DiskSegments(folder / "log"), folded_seq=table.folded_seq(), writer_id=uuid.uuid4().hex
        )
        cold = ColdTable(str(folder / "cold"), "shard-0000", {})
        self.shard = Shard(0, log, table, versions, HotIndexes(), 10**6, cold=cold)
        self.shard.recover([decode_record(entry.payload) for entry in found.entries], table.folded_seq())
        self.indexer = Indexer(encoders)
        self.writer = ShardWriter(self.shard, microseconds, self._committed)
        self.indexer.start([self.writer])

    def _committed(self, shard: Shard, records: list[Record]) -> None:
        self.indexer.committed(shard, records)

    def close(self) -> None:
        self.indexer.close()
        self.writer.close()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name, default in (("versions", 1), ("embedded", 1), ("tokens", 30), ("owners", 50), ("turns", 400)):
        parser.add_argument(f"--{name}", type=int, default=default)
    parser.add_argument("--read", type=Path, help=argparse.SUPPRESS)
    asked = parser.parse_args()
    versions = [_version(number) for number in range(asked.versions)]
    owners = [Owner("t", f"user{number}").key for number in range(asked.owners)]
    encoders = RandomEncoders(versions, asked.embedded, asked.tokens)
    if asked.read is not None:
        print(json.dumps(_read(Store(asked.read, versions, encoders), owners, versions[0].name)))
        return
    with tempfile.TemporaryDirectory() as folder:
        written = _written(Store(Path(folder), versions, encoders), Path(folder), owners, asked.turns)
        reading = [sys.executable, "-m", "jobs.storage_costs", *sys.argv[1:], "--read", folder]  # in fresh memory
        read = json.loads(subprocess.run(reading, check=True, capture_output=True).stdout)
    said = {name: getattr(asked, name) for name in ("versions", "embedded", "tokens")}
    print(json.dumps({**said, **written, **read}))


def _version(number: int) -> EmbeddingVersion:
    return EmbeddingVersion(f"v{number}", "random", "1", "mean", "{text}", DIMENSION, 256)


def _written(store: Store, folder: Path, owners: Sequence[str], turns: int) -> dict[str, Any]:
    count = len(owners) * turns
    began = time.monotonic()
    _write(store, owners, turns)
    ingest_s = time.monotonic() - began
    log_bytes = store.shard.log.bytes
    began = time.monotonic()
    fold(store.shard)
    fold_s = time.monotonic() - began
    store.shard.table.purge(store.shard.folded_seq)
    store.close()
    return {
        "turns": count,
        "ingest_turns_per_s": round(count / ingest_s),
        "fold_turns_per_s": round(count / fold_s),
        "log_bytes_per_turn": round(log_bytes / count),
        "table_bytes_per_turn": round(_bytes_below(folder / "tables") / count),
    }


def _read(store: Store, owners: Sequence[str], version: str) -> dict[str, Any]:
    for owner in owners[:2]:  # what is read once, whoever comes first
        store.shard.block(owner)
    before, began_cpu, touches = _resident_bytes(), time.process_time(), []
    for owner in owners[2:]:
        began = time.perf_counter()
        store.shard.block(owner)
        touches.append(1e3 * (time.perf_counter() - began))
    cpu_ms = 1e3 * (time.process_time() - began_cpu) / len(touches)
    held = _resident_bytes() - before
    turns = sum(len(store.shard.block(owner).turns) for owner in owners[2:])
    found = {
        "memory_bytes_per_turn": round(held / turns),
        "first_touch_ms_p50": round(statistics.median(touches), 1),
        "first_touch_ms_p95": round(statistics.quantiles(touches, n=20)[-1], 1),
        "first_touch_cpu_ms": round(cpu_ms, 1),
        "tokens_of_candidates_us": round(_late(store, owners[-1], version), 1),
    }
    store.close()
    return found


def _write(store: Store, owners: Sequence[str], turns: int) -> None:
    """Until every turn has its vectors."""
    chance = random.Random(1)
    waiting: list[Future[Any]] = []
    for _ in range(0, turns, APPEND_TURNS):
        for owner in owners:
            said = [" ".join(chance.choices(WORDS, k=WORDS_A_TURN)) for _ in range(APPEND_TURNS)]
            waiting.append(store.writer.submit(AppendTurns(owner, "s", [NewTurn("user", one) for one in said])))
        for one in waiting:
            one.result()
        waiting.clear()
    while store.shard.pending:
        time.sleep(0.001)


def _late(store: Store, owner: str, version: str) -> float:
    """Microseconds to have the tokens of as many candidates as are reranked."""
    block = store.shard.block(owner)
    seqs = random.Random(2).sample(list(block.turns), min(CANDIDATES, len(block.turns)))
    began = time.perf_counter()
    for _ in range(CALLS):
        with block.lock:
            block.tokens(version, seqs, None)
    return 1e6 * (time.perf_counter() - began) / CALLS


def _resident_bytes() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def _bytes_below(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())


if __name__ == "__main__":
    main()
