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
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import NamedTuple, Protocol

import msgspec

from serve_app.api import http
from serve_app.api.admin import AdminRoutes
from serve_app.api.app import Api
from serve_app.api.auth import FIRST_KEY_FILE, KeyFile
from serve_app.api.problems import problem
from serve_app.api.routes import Routes
from serve_app.asgi import Receive, Scope, Send
from serve_app.compress.extractive import EXTRACTIVE_VERSION
from serve_app.config import Settings
from serve_app.context.tokens import open_tokenizer
from serve_app.core import EmbeddingVersion
from serve_app.errors import InvalidRequest, StoreUnavailable
from serve_app.memory.encoding import Encoding, Queues
from serve_app.memory.memory import Memory
from serve_app.memory.operator import Operator
from serve_app.memory.refresher import Refresher
from serve_app.models.batching import EmbedService
from serve_app.models.embed import EncoderOptions, open_embedder
from serve_app.observe.metrics import Gauges, Metrics
from serve_app.ports import Embedder, SegmentStore
from serve_app.records import Record, decode_record
from serve_app.stores.hot_faiss import FaissHotIndex
from serve_app.stores.lance import RecordTable
from serve_app.stores.log import Recovery, ShardLog
from serve_app.stores.policy_file import PolicyFile
from serve_app.stores.private_file import write_private
from serve_app.stores.segments_object import open_segments
from serve_app.write.commit import ShardWriter, microseconds
from serve_app.write.housekeeping import Housekeeper
from serve_app.write.indexer import Indexer, PassageEncoder
from serve_app.write.rescan import Rescan
from serve_app.write.shard import Shard

_log = logging.getLogger(__name__)

STORE_FILE = "store.json"
LOCK_FILE = "lock"
STORE_FORMAT = 1
SHARDS = 4
"""Of a new store whose settings name no number."""

HOLE_LOOKS = 2
"""Times that a log with a hole is looked at before it is called damaged."""

WARM_UP = "warm up"
"""The text that is embedded first: the encoder loads its weights for it, while the service answers already."""


class EncoderQueues(Queues, PassageEncoder, Protocol):
    """What requests and the indexer ask of the encoder, and its end."""

    def close(self) -> None: ...


class StoreForm(msgspec.Struct, frozen=True):
    """The one part of a store's description that every release can read."""

    format: int


class StoreIdentity(msgspec.Struct, frozen=True):
    """What a store was created with and keeps: written once, checked at each start."""

    format: int
    shards: int
    version: EmbeddingVersion


class Stores(NamedTuple):
    """One shard's stores, opened: `recovery` is what the log holds after the table's `folded_seq`."""

    table: RecordTable
    folded_seq: int
    log: ShardLog
    recovery: Recovery


class Service:
    """`encoder` and `segments` open the models and the logs; other ones than these are for tests.

    `queues` is the way to an encoder in a deployment of its own; without it the encoder runs in this process.
    """

    def __init__(
        self,
        settings: Settings,
        *,
        encoder: Callable[[EncoderOptions], Embedder] = open_embedder,
        segments: Callable[[str, Mapping[str, str]], SegmentStore] = open_segments,
        queues: Callable[[Embedder], EncoderQueues] | None = None,
    ) -> None:
        self._settings = settings
        self._folder = Path(settings.data)
        self._open_encoder = encoder
        self._open_segments = segments
        self._queues_beside = queues
        self._api: Api | None = None
        self._closing = ExitStack()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if self._api is not None:
            await self._api(scope, receive, send)
            return
        alive = scope["path"] == "/healthz"
        starting = http.problem_response(problem("not_ready", "the service is starting"), 1.0)
        await http.send_response(send, http.json_response({"status": "alive"}) if alive else starting, b"-")

    async def start(self) -> None:
        """Raises MemstrataError where the store cannot be opened or the encoder not loaded; nothing runs then."""
        await asyncio.to_thread(self._start)

    def _start(self) -> None:
        with ExitStack() as opened:
            self._api = self._opened_api(opened)
            self._closing = opened.pop_all()

    def _opened_api(self, opened: ExitStack) -> Api:
        """Everything, from the lock to the API. What has to be ended is left on the stack, in the order of opening."""
        settings = self._settings
        opened.callback(os.close, _locked(self._folder))
        keys = KeyFile(self._folder)
        policies = PolicyFile(self._folder)
        with suppress(StoreUnavailable):  # reads go on without; each write is refused and says why
            policies.refresh()
        embedder = self._open_encoder(settings.encoder)
        identity = self._identity(embedder.version)
        tokenizer = open_tokenizer(settings.memory.tokenizer)
        self._pool = ThreadPoolExecutor(settings.memory.threads, thread_name_prefix="read")
        opened.callback(self._pool.shutdown)
        queues = self._open_queues(embedder)
        opened.callback(queues.close)
        metrics = Metrics()
        self._indexer = Indexer(queues, embedder, meter=metrics)
        self._refresher = Refresher(tokenizer, settings.memory.summary, microseconds)
        damages = self._open_shards(identity, metrics, opened)
        self._indexer.start(self._writers)
        opened.callback(self._indexer.close)
        opened.callback(queues.close)  # before the indexer: it fails the passages that the indexer waits for
        self._refresher.start(self._writers)
        opened.callback(self._refresher.close)
        rescan = Rescan(policies, self._folder, identity.shards)
        housekeeper = Housekeeper(self._writers, settings.fold, [rescan])
        opened.callback(housekeeper.close)
        memory = Memory(
            self._writers,
            self._indexer,
            self._refresher,
            Encoding(queues, embedder, self._pool),
            {tokenizer.name: tokenizer},
            self._pool,
            settings.memory,
            microseconds,
            (identity.version.name, EXTRACTIVE_VERSION, tokenizer.name),
            policies,
        )
        warm = queues.query(WARM_UP)
        operator = Operator(self._writers, housekeeper, self._indexer, self._refresher, self._pool, damages, warm)
        metrics.watch(Gauges(self._gauges))
        self._show_first_key(keys)
        return Api(
            Routes(memory, operator), AdminRoutes(memory, operator, keys, policies, rescan), keys, operator, metrics
        )

    def _open_queues(self, embedder: Embedder) -> EncoderQueues:
        if self._queues_beside is not None:
            return self._queues_beside(embedder)
        if self._settings.encoder.placement == "deployment":
            raise InvalidRequest('encoder: placement = "deployment" needs the Ray engine; the local one has none')
        return EmbedService(embedder)

    def _show_first_key(self, keys: KeyFile) -> None:
        key = keys.ensure_first()
        if key is not None:
            print(f"first start: operator key of tenant default: {key}", flush=True)
            print(f"it is kept in {self._folder / FIRST_KEY_FILE}", flush=True)

    def _identity(self, version: EmbeddingVersion) -> StoreIdentity:
        """What this store is; a new one takes the settings. Raises InvalidRequest where they do not fit it."""
        path = self._folder / STORE_FILE
        wanted = self._settings.store.shards
        if not path.exists():
            made = StoreIdentity(STORE_FORMAT, wanted or SHARDS, version)
            write_private(path, msgspec.json.format(msgspec.json.encode(made)).decode())
            return made
        try:
            form = msgspec.json.decode(path.read_bytes(), type=StoreForm).format
            if form != STORE_FORMAT:
                raise InvalidRequest(f"{path}: store format {form}; this release reads {STORE_FORMAT}")
            found = msgspec.json.decode(path.read_bytes(), type=StoreIdentity)
        except msgspec.DecodeError as error:
            raise InvalidRequest(f"{path}: this does not describe a store: {error}") from error
        if found.version != version:
            raise InvalidRequest(
                f"{path}: the store holds vectors of {found.version.name!r}; the settings ask for {version.name!r}"
            )
        if wanted not in (None, found.shards):
            raise InvalidRequest(f"{path}: the store has {found.shards} shards; the settings ask for {wanted}")
        return found

    def _open_shards(self, identity: StoreIdentity, metrics: Metrics, opened: ExitStack) -> list[tuple[int, str]]:
        """Open every shard and its writer; gives what was found damaged."""
        hot = FaissHotIndex(identity.version.dimension)
        self._writers: list[ShardWriter] = []
        damages: list[tuple[int, str]] = []
        for number in range(identity.shards):
            table, folded_seq, log, recovery = self._opened_stores(number, identity.version)
            for damage in recovery.damages:
                _log.error("shard %d: %s", number, damage)
                damages.append((number, str(damage)))
            memory = self._settings.memory
            shard = Shard(number, log, table, identity.version, hot, memory.turns_resident, memory.owner_turns_resident)
            shard.recover([decode_record(entry.payload) for entry in recovery.entries], folded_seq)
            self._writers.append(ShardWriter(shard, microseconds, self._committed, meter=metrics))
            opened.callback(self._writers[-1].close)
        return damages

    def _opened_stores(self, number: int, version: EmbeddingVersion) -> Stores:
        """A shard's table and log. Its last owner may fold, and drop segments, between a look at the one and the
        other: what looks like a hole then is none in the light of the table's new watermark.
        """
        store = self._settings.store
        log_uri = store.log_uri or str(self._folder / "log")
        tables_uri = store.tables_uri or str(self._folder / "tables")
        for _ in range(HOLE_LOOKS):
            table = RecordTable(tables_uri, f"shard-{number:04d}", version, store.connection)
            segments = self._open_segments(f"{log_uri}/{number:04d}", store.connection)
            folded_seq = table.folded_seq()
            log, recovery = ShardLog.open(segments, folded_seq=folded_seq, writer_id=uuid.uuid4().hex)
            if log.damage is None or log.damage.kind != "hole":
                break
        return Stores(table, folded_seq, log, recovery)

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
        age = self._indexer.oldest_age_s
        yield "memstrata_oldest_pending_turn_age_seconds", "Age of the turn that has waited longest for vectors.", age
        yield "memstrata_embed_failures", "Rounds of the indexer that failed.", self._indexer.failures

    async def stop(self) -> None:
        """Nothing acknowledged depends on this; it only ends the threads in order. A second call does nothing."""
        self._api = None
        await asyncio.to_thread(self._closing.close)


def _locked(folder: Path) -> int:
    """One service a data folder: a lock that goes with the process, however it ends. Gives its open file."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        lock = os.open(folder / LOCK_FILE, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except OSError as error:
        raise StoreUnavailable(f"{folder} cannot be a data folder: {error.strerror}") from error
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        os.close(lock)
        raise StoreUnavailable(f"{folder} is in use by another service") from error
    return lock
