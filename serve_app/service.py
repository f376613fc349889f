"""One service, put together: stores, models, writers, memory, API. The composition root of both engines.

`start` recovers the shards; until it is done every route but `/healthz` says 503. The encoder is
loaded after that, while the service answers what it can; `/readyz` says 200 when that is done too.
`stop` lets the writers finish and lets go of the data folder.
"""

from __future__ import annotations

import asyncio
import fcntl
import logging
import os
import uuid
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import msgspec

from serve_app.api import http
from serve_app.api.app import Api
from serve_app.api.auth import FIRST_KEY_FILE, KeyFile, write_private
from serve_app.api.problems import problem
from serve_app.api.routes import Routes
from serve_app.asgi import Receive, Scope, Send
from serve_app.compress.extractive import EXTRACTIVE_VERSION
from serve_app.config import Settings
from serve_app.context.tokens import open_tokenizer
from serve_app.core import EmbeddingVersion
from serve_app.errors import InvalidRequest, StoreUnavailable
from serve_app.memory.memory import Memory
from serve_app.memory.operator import Operator
from serve_app.memory.refresher import Refresher
from serve_app.models.batching import EmbedService
from serve_app.models.embed import open_embedder
from serve_app.observe.metrics import Gauges, Metrics
from serve_app.records import Record, decode_record
from serve_app.stores.hot_faiss import FaissHotIndex
from serve_app.stores.lance import RecordTable
from serve_app.stores.log import ShardLog
from serve_app.stores.segments_object import open_segments
from serve_app.write.commit import ShardWriter, microseconds
from serve_app.write.housekeeping import Housekeeper
from serve_app.write.indexer import Indexer
from serve_app.write.shard import Shard

_log = logging.getLogger(__name__)

STORE_FILE = "store.json"
LOCK_FILE = "lock"
STORE_FORMAT = 1
WARM_UP = "warm up"
"""The text that is embedded first: the encoder loads its weights for it, while the service answers already."""


class StoreIdentity(msgspec.Struct, frozen=True):
    """What a store was created with and keeps: written once, checked at each start."""

    format: int
    shards: int
    version: EmbeddingVersion


class Service:
    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._folder = Path(settings.data)
        self._api: Api | None = None
        self._lock: int | None = None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if self._api is not None:
            await self._api(scope, receive, send)
            return
        alive = scope["path"] == "/healthz"
        starting = http.problem_response(problem("not_ready", "the service is starting"), 1.0)
        await http.send_response(send, http.json_response({"status": "alive"}) if alive else starting, b"-")

    async def start(self) -> None:
        """Raises MemstrataError where the store cannot be opened or the encoder not loaded."""
        await asyncio.to_thread(self._start)

    def _start(self) -> None:
        settings = self._settings
        self._folder.mkdir(parents=True, exist_ok=True)
        self._take_lock()
        keys = KeyFile(self._folder)
        first_key = keys.ensure_first()
        if first_key is not None:
            print(f"first start: operator key of tenant default: {first_key}", flush=True)
            print(f"it is kept in {self._folder / FIRST_KEY_FILE}", flush=True)
        embedder = open_embedder(settings.encoder)
        self._encoder = EmbedService(embedder)
        identity = self._identity(embedder.version)
        self._indexer = Indexer(self._encoder, embedder)
        tokenizer = open_tokenizer(settings.memory.tokenizer)
        self._refresher = Refresher(tokenizer, settings.memory.summary, microseconds)
        self._pool = ThreadPoolExecutor(settings.memory.threads, thread_name_prefix="read")
        damages = self._open_shards(identity)
        self._indexer.start(self._writers)
        self._refresher.start(self._writers)
        self._housekeeper = Housekeeper(self._writers, settings.fold)
        versions = (identity.version.name, EXTRACTIVE_VERSION, tokenizer.name)
        memory = Memory(
            self._writers,
            self._indexer,
            self._refresher,
            self._encoder,
            {tokenizer.name: tokenizer},
            self._pool,
            settings.memory,
            microseconds,
            versions,
        )
        warm = self._encoder.query(WARM_UP)
        operator = Operator(
            self._writers, self._housekeeper, self._indexer, self._refresher, embedder, self._pool, damages, warm
        )
        metrics = Metrics()
        metrics.watch(Gauges(self._gauges))
        self._api = Api(Routes(memory, operator, keys, self._encoder, embedder), keys, operator, metrics)

    def _take_lock(self) -> None:
        """One service a data folder. The lock goes with the process, however it ends."""
        self._lock = os.open(self._folder / LOCK_FILE, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            raise StoreUnavailable(f"{self._folder} is in use by another service") from error

    def _identity(self, version: EmbeddingVersion) -> StoreIdentity:
        """What this store is; a new one takes the settings."""
        path = self._folder / STORE_FILE
        if not path.exists():
            made = StoreIdentity(STORE_FORMAT, self._settings.store.shards, version)
            write_private(path, msgspec.json.format(msgspec.json.encode(made)).decode())
            return made
        found = msgspec.json.decode(path.read_bytes(), type=StoreIdentity)
        if found.format != STORE_FORMAT:
            raise InvalidRequest(f"{path}: store format {found.format}, this release reads {STORE_FORMAT}")
        if found.version != version:
            raise InvalidRequest(
                f"this store holds vectors of {found.version.name!r}; the settings ask for {version.name!r}"
            )
        return found

    def _open_shards(self, identity: StoreIdentity) -> list[tuple[int, str]]:
        """Open every shard and its writer; gives what was found damaged."""
        store = self._settings.store
        log_uri = store.log_uri or str(self._folder / "log")
        tables_uri = store.tables_uri or str(self._folder / "tables")
        hot = FaissHotIndex(identity.version.dimension)
        self._writers: list[ShardWriter] = []
        damages: list[tuple[int, str]] = []
        for number in range(identity.shards):
            table = RecordTable(tables_uri, f"shard-{number:04d}", identity.version, store.options)
            segments = open_segments(f"{log_uri}/{number:04d}", store.options)
            folded = table.folded_seq()
            log, recovery = ShardLog.open(segments, folded_seq=folded, writer_id=uuid.uuid4().hex)
            for damage in recovery.damages:
                _log.error("shard %d: %s", number, damage)
                damages.append((number, str(damage)))
            shard = Shard(number, log, table, identity.version, hot, self._settings.memory.turns_resident)
            shard.recover([decode_record(entry.payload) for entry in recovery.entries], folded)
            self._writers.append(ShardWriter(shard, microseconds, self._committed))
        return damages

    def _committed(self, shard: Shard, records: list[Record]) -> None:
        self._indexer.committed(shard, records)
        self._refresher.committed(shard, records)

    def _gauges(self) -> Iterable[tuple[str, str, float]]:
        shards = [writer.shard for writer in self._writers]
        counts = [shard.block_counts() for shard in shards]
        yield "memstrata_pending_vectors", "Turns whose vectors are still to come.", sum(len(s.pending) for s in shards)
        yield "memstrata_write_queue", "Turns that wait for a writer.", sum(writer.waiting for writer in self._writers)
        yield "memstrata_log_tail_records", "Records not folded yet.", sum(shard.tail_length() for shard in shards)
        yield "memstrata_log_segments", "Segments of all logs.", sum(shard.log.segment_count for shard in shards)
        yield "memstrata_owners_in_memory", "Users whose block is in memory.", sum(owners for owners, _ in counts)
        yield "memstrata_turns_in_memory", "Turns whose content is in memory.", sum(turns for _, turns in counts)
        yield "memstrata_block_loads", "Blocks loaded from the tables.", sum(shard.loads for shard in shards)
        yield "memstrata_summaries_waiting", "Sessions that wait for a summary.", self._refresher.waiting
        yield "memstrata_embed_failures", "Rounds of the indexer that failed.", self._indexer.failures

    async def stop(self) -> None:
        """Nothing acknowledged depends on this; it only ends the threads in order."""
        await asyncio.to_thread(self._stop)

    def _stop(self) -> None:
        if self._api is None:
            return
        self._api = None
        self._housekeeper.close()
        self._refresher.close()
        self._indexer.close()
        for writer in self._writers:
            writer.close()
        self._encoder.close()
        self._pool.shutdown()
        if self._lock is not None:
            os.close(self._lock)
