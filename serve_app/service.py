"""One service, put together: stores, models, writers, memory, API. The composition root of both engines.

`start` recovers the shards; until it is done every route but `/healthz` says 503. The encoder is
loaded after that, while the service answers what it can; `/readyz` says 200 when that is done too.
`stop` lets the writers finish and lets go of the data folder.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import ExitStack, suppress
from functools import partial
from pathlib import Path
from typing import Any

from serve_app.api import http
from serve_app.api.admin import AdminRoutes
from serve_app.api.app import Api
from serve_app.api.auth import FIRST_KEY_FILE, KeyFile
from serve_app.api.backfill import BackfillRoutes
from serve_app.api.forwarding import Forwarding, Upstream
from serve_app.api.golden import GoldenRoutes
from serve_app.api.migrations import MigrationRoutes
from serve_app.api.problems import problem
from serve_app.api.routes import Routes
from serve_app.api.sent_hits import SentHits, note_sent_hits
from serve_app.asgi import NOTE_HITS, Answered, Receive, Scope, Send
from serve_app.backup.layout import below
from serve_app.backup.runner import BackupRunner
from serve_app.backup.take import ShardHolds
from serve_app.breaker import Breaker
from serve_app.compress.topics import topic_lengths
from serve_app.config import Settings
from serve_app.context.tokens import open_tokenizers, tokenizer_of
from serve_app.errors import HotShardUnavailable, InvalidRequest, StoreUnavailable
from serve_app.memory.compressing import Compressing
from serve_app.memory.compressors import Compressors, Opens, opening
from serve_app.memory.encoding import Encoding
from serve_app.memory.expansion import RULES_VERSION, Understanding
from serve_app.memory.following import FollowingOperator
from serve_app.memory.golden import GoldenSets
from serve_app.memory.hot_reads import HotReads
from serve_app.memory.hot_shards import HotShardCalls, HotShards
from serve_app.memory.logged import SearchLog
from serve_app.memory.measures import SummaryMeasures
from serve_app.memory.memory import Memory
from serve_app.memory.operator import Operator, WritingOperator
from serve_app.memory.pools import Pools
from serve_app.memory.refresher import Refresher
from serve_app.memory.relevance import Relevance
from serve_app.memory.rerankers import Rerankers
from serve_app.memory.retrievals import Retrievals
from serve_app.memory.serving import Serving
from serve_app.memory.sweep import SummarySweep
from serve_app.migrate.backfill import Backfills
from serve_app.migrate.compressed import open_compressor_gates
from serve_app.migrate.control import Control, ControlBounds, Parts
from serve_app.migrate.following import PlanFollower
from serve_app.migrate.gate import Gates, open_gates
from serve_app.migrate.migrating import Migrating
from serve_app.migrate.migration_file import MigrationFile
from serve_app.migrate.pace import Pace
from serve_app.migrate.page import Pages
from serve_app.migrate.record import Kind, Migration
from serve_app.migrate.reranked import open_reranker_gates
from serve_app.migrate.runner import JobPlace, JobRunner
from serve_app.migrate.switch import EncoderSwitch
from serve_app.migrate.switching import Gates as AnyGates
from serve_app.migrate.switching import Switch
from serve_app.migrate.trials import CompressorTrials, RerankerTrials, adopted, resumed, settled_plan
from serve_app.migrations import InForce, NobodyRuns, readable, running_now
from serve_app.models.embed import EncoderOptions, open_embedder
from serve_app.models.encoders import Encoders, Queues
from serve_app.models.expand import open_expander
from serve_app.models.rerank import OpenReranker, open_reranker
from serve_app.models.summarise import OpenSummarisers, open_summarisers
from serve_app.observe.metrics import Breakers, Gauges, Metrics
from serve_app.observe.migrations import MigrationFigures
from serve_app.ports import Embedder, Expander, HotProducts, Tokenizer, Vectors
from serve_app.records import Record
from serve_app.routing import VersionPlan
from serve_app.shards import (
    OpenColdTable,
    Openers,
    OpenReader,
    OpenRelay,
    OpenSegments,
    OpenTable,
    StoreIdentity,
    identity_of,
    open_followed,
    open_written,
    read_identity,
)
from serve_app.stores.cold import ColdTable
from serve_app.stores.folder_lock import lock_folder
from serve_app.stores.golden_file import GoldenFiles
from serve_app.stores.lance import RecordTable
from serve_app.stores.layout_file import LayoutFile
from serve_app.stores.policy_file import PolicyFile
from serve_app.stores.relay import SegmentRing
from serve_app.stores.segments_object import open_reader, open_segments
from serve_app.versions import Opened, StoredVersions, open_versions, reopened
from serve_app.write.archiving import Archiver
from serve_app.write.commit import ShardWriter, microseconds
from serve_app.write.dual import DualWrite
from serve_app.write.expire import Expirer
from serve_app.write.follow import Follower
from serve_app.write.golden import GoldenUpkeep
from serve_app.write.hits import Noted, WriteHits
from serve_app.write.housekeeping import Duty, Housekeeper
from serve_app.write.indexer import Indexer
from serve_app.write.lifecycle import Demote
from serve_app.write.rescan import Rescan
from serve_app.write.shard import Shard
from serve_app.write.shown import Shown

WARM_UP = "warm up"
"""The text that is embedded first: the encoder loads its weights for it, while the service answers already."""

TABLES_WAIT_S = 60.0
"""In a gateway's start, for the writers of a new store to make their tables."""

TABLES_LOOK_S = 0.25

DRAIN_S = 10.0
"""At a gateway's end, for the requests that it has taken."""

DRAIN_LOOK_S = 0.02


class Service:
    """`encoder`, `reranker`, `compressor`, `summarisers`, `segments`, `table`, `cold` and `reader` open the models and
    the stores, `clock` gives the time; others than the defaults are for tests, and for models in deployments.

    `queues` is the way to encoders in deployments of their own; without it the encoders run in this process. `job` says
    how a job on this machine reaches the service; without it none is started. `control` bounds migrations. With
    `only` the service writes the shards of these numbers, of a store whose others are written elsewhere; then it takes
    no backups and drives no migrations. `upstream` is a gateway's way to them, started and stopped with it;
    `hot_shards` is its way to those, which whoever made it ends.

    `ring` is where the newest segments of a shard that is written here are kept, `relay` the way to those of a shard
    that is written elsewhere; without it they are read in the store alone.
    """

    def __init__(
        self,
        settings: Settings,
        *,
        encoder: Callable[[EncoderOptions], Embedder] = open_embedder,
        reranker: OpenReranker = open_reranker,
        compressor: Opens | None = None,
        summarisers: OpenSummarisers = open_summarisers,
        segments: OpenSegments = open_segments,
        table: OpenTable = RecordTable,
        cold: OpenColdTable = ColdTable,
        reader: OpenReader = open_reader,
        relay: OpenRelay | None = None,
        ring: Callable[[int], SegmentRing] | None = None,
        queues: Callable[[Sequence[Embedder]], Queues] | None = None,
        clock: Callable[[], int] = microseconds,
        job: JobPlace | None = None,
        control: ControlBounds | None = None,
        only: Collection[int] | None = None,
        upstream: Upstream | None = None,
        hot_shards: HotShardCalls | None = None,
    ) -> None:
        apart = settings.hot.placement == "deployment"
        asks = apart and settings.role == "gateway"
        if apart and (hot_shards is None if asks else only is None):
            raise InvalidRequest('hot: placement = "deployment" is for clusters: a gateway needs a way to hot shards')
        if (settings.role == "gateway") != (upstream is not None):
            raise InvalidRequest('role = "gateway" is for clusters: it needs a way to the writers, others have none')
        self._settings = settings
        self._relay = relay
        self._upstream = upstream
        self._hot_shards = HotShards(hot_shards, settings.hot, settings.memory.rest_s) if asks and hot_shards else None
        self._sent_hits: SentHits | None = None
        """Of a gateway."""
        self._answering = 0
        self._job = job
        self._control = control
        self._only = only
        self._folder = Path(settings.data)
        self._open_encoder = encoder
        self._open_reranker = reranker
        self._open_compressor = compressor or opening(settings.tokenizers, settings.memory.summary.apart, summarisers)
        self._openers = Openers(segments, table, cold, ring)
        self._open_reader = reader
        self._queues_beside = queues
        self._clock = clock
        self._api: Api | None = None
        self._closing = ExitStack()
        self._writers: Sequence[ShardWriter] = ()
        self._followers: list[Follower] = []
        self._upkeep: GoldenUpkeep | None = None
        """Of golden queries; None in a replica."""
        self._expander: Expander | None = None
        self._noted: Mapping[int, Noted] = {}
        self.gates: Gates | None = None
        """Of migrations; there once the service has started."""
        self.backfills: Backfills | None = None
        """None before the start, and in a replica."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == NOTE_HITS:
            await note_sent_hits(self._noted, receive, send)
            return
        if self._api is not None:
            self._answering += 1
            try:
                await self._api(scope, receive, send)
            finally:
                self._answering -= 1
            return
        alive = scope["path"] == "/healthz"
        starting = http.problem_response(problem("not_ready", "the service is starting"), 1.0)
        await http.send_response(send, http.json_response({"status": "alive"}) if alive else starting, b"-")

    @property
    def fenced(self) -> bool:
        """Whether another service has taken over a shard that this one wrote."""
        return any(writer.shard.log.fenced for writer in self._writers)

    def refusal(self, path: bytes) -> Answered | None:
        """See `AsgiService`."""
        return None if self._api is None else self._api.refusal(path)

    async def start(self) -> None:
        """Raises MemstrataError where the store cannot be opened or the encoder not loaded; nothing runs then."""
        if self._upstream is None:
            await asyncio.to_thread(self._start)
        else:
            await self._start_gateway(self._upstream)

    async def _start_gateway(self, upstream: Upstream) -> None:
        """As soon as the writers have made the tables of every shard."""
        await upstream.start()
        try:
            await self._start_once_there()
        except BaseException:
            await upstream.stop()
            raise
        self._sent_hits = SentHits(self._noted, upstream, self._settings.forward.hits_s)
        self._sent_hits.start()

    async def _start_once_there(self) -> None:
        ends = time.monotonic() + TABLES_WAIT_S
        while True:
            try:
                return await asyncio.to_thread(self._start)
            except StoreUnavailable:
                if time.monotonic() > ends:
                    raise
            await asyncio.sleep(TABLES_LOOK_S)

    def _start(self) -> None:
        with ExitStack() as opened:
            self._api = self._opened_api(opened)
            self._closing = opened.pop_all()

    def _opened_api(self, opened: ExitStack) -> Api:
        """Everything, from the lock to the API. What has to be ended is left on the stack, in the order of opening."""
        settings = self._settings
        opened.callback(os.close, lock_folder(self._folder))
        files = settings.files
        keys = KeyFile(files)
        self._expander = open_expander(settings.expand)
        policies, layouts = PolicyFile(files), LayoutFile(files, self._clock)
        for file in (keys, policies, layouts):
            with suppress(StoreUnavailable):  # reads go on without; each write is refused and says why
                file.refresh()
        migration_file = MigrationFile(files, self._clock)
        migrations = readable(migration_file)
        embedders = open_versions(settings, migrations.encoders, self._open_encoder)
        identity = identity_of(settings, [embedder.version for embedder in embedders.base])
        tokenizers = open_tokenizers(settings.tokenizers)
        tokenizer = tokenizer_of(tokenizers, settings.memory.tokenizer)
        self._pools = Pools.opened(settings.memory.threads, settings.memory.store_threads, opened)
        metrics = Metrics(settings.prices)
        encoders = self._open_encoders(embedders, metrics)
        opened.callback(encoders.close)
        self._indexer = Indexer(encoders, meter=metrics)
        self._dual = DualWrite(encoders)
        pace = Pace()
        compressors = Compressors(adopted("compressor", settings.compress, migrations), self._open_compressor)
        opened.callback(compressors.close)
        self._measures = SummaryMeasures(compressors, tokenizer, metrics.summaries, settings.memory.summary.deadline_s)
        self._refresher = Refresher(
            compressors,
            tokenizer,
            settings.memory.summary,
            self._clock,
            policies,
            metrics.summaries,
            self._measures.made,
            compressors.computed_s,
        )
        rerank = adopted("reranker", settings.rerank, migrations)
        rerankers = Rerankers(rerank, encoders.version, metrics, settings.memory.rest_s, self._open_reranker)
        opened.callback(rerankers.close)
        resumed(rerankers, compressors, migrations)
        noted = self._noted = {number: Noted() for number in range(identity.shards)}
        rescan = Rescan(policies, files, identity.shards)
        golden_files, self._searches = GoldenFiles(files), SearchLog(policies, self._clock)
        if settings.role != "writer":
            operator = self._start_following(identity, encoders, metrics, opened)
        else:
            golden_files.clear_leftovers()
            self._upkeep = GoldenUpkeep(golden_files, policies, identity.shards, self._clock)
            duties: list[Duty] = [rescan, self._upkeep]
            operator = self._start_writing(identity, encoders, metrics, policies, noted, duties, opened)
        encoding = Encoding(encoders, self._pools.memory, settings.memory.rest_s)
        plan = VersionPlan.of([version.name for version in identity.versions])
        serving = Serving(
            settled_plan(plan, rerankers, compressors),
            rerankers,
            compressors,
            (RULES_VERSION, tokenizer.name),
        )
        in_force = InForce(serving, encoders, self._writers, rerankers, compressors, self._clock)
        in_force.publish(migrations)
        serving.of("")  # opened here and now: a ranker's file that is none ends the start
        memory = Memory(
            self._writers,
            self._indexer,
            self._refresher,
            encoding,
            tokenizers,
            self._pools,
            settings.memory,
            self._clock,
            serving,
            policies,
            settings.limits.user_turns,
            Retrievals(noted, metrics),
            Understanding(policies, self._expander),
            Relevance(encoding, rerankers.model, self._pools.memory),
            layouts,
            self._open_shown(),
            self._hot_shards,
        )
        self._hot_reads = HotReads([writer.shard for writer in self._writers], self._pools.stores)
        golden = GoldenSets(
            self._writers,
            golden_files,
            self._upkeep,
            policies,
            self._pools.stores,
            self._clock,
            self._searches,
            self._caught_up,
        )
        operator.watch(keys, policies, layouts, golden_files, migration_file, models=compressors.models)
        self.serving, self.rerankers, self.compressors = serving, rerankers, compressors
        self._open_gates(encoders, golden_files, tokenizer, metrics, opened)
        metrics.watch(Gauges(self._gauges))
        breakers = self._breakers(encoding, serving, compressors)
        metrics.watch(Breakers(breakers))
        operator.watch_breakers(breakers)
        if self._hot_shards is not None:
            operator.watch_hot_shards(self._hot_shards.troubles)
            metrics.watch(Gauges(self._hot_shards.figures))
        self._show_first_key(keys)
        compressing = Compressing(
            compressors.makes,
            memory.tokenizer,
            policies,
            self._clock,
            settings.memory.summary.ttl_s,
            metrics.summaries,
        )
        opened.callback(compressing.close)
        opened.callback(compressors.close)  # once more, to end first: who waits for one would hold up the rest
        opened.callback(self._refresher.end)
        routes = Routes(memory, compressing, operator, golden)
        admin = AdminRoutes(memory, operator, keys, policies, rescan, layouts, files.settles_s)
        switches: Mapping[Kind, Switch] = {}
        if settings.role != "writer":
            self._follow_migrations(migration_file, encoders, in_force, operator, opened)
        elif self._only is None:
            switches = self._switches(migration_file, encoders)
            self.backfills = Backfills(migration_file, files, self._writers, operator.fold, pace.rest_s)
            self._start_control(migration_file, switches, keys, in_force, operator, opened)
        told = None if self.backfills is None else self.backfills.progress
        metrics.watch(MigrationFigures(partial(running_now, migration_file, told, self._clock)))
        migrating = MigrationRoutes(Migrating(migration_file, switches, policies), self._progress, Pages())
        backfill = BackfillRoutes(self.backfills, self._pools.stores)
        return Api(
            routes,
            admin,
            GoldenRoutes(golden),
            migrating,
            backfill,
            keys,
            operator,
            metrics,
            settings.limits,
            pace,
            read_only=settings.role == "replica",
            forwarding=self._open_forwarding(identity.shards, operator, metrics),
        )

    def _open_shown(self) -> Shown:
        """By those who follow the shards that are written here."""
        ring = self._openers.ring if self._settings.role == "writer" else None
        numbers = [writer.shard.number for writer in self._writers]
        return Shown({} if ring is None else {one: ring(one) for one in numbers}, self._settings.follow.stale_s)

    def _open_forwarding(self, shards: int, operator: Operator, metrics: Metrics) -> Forwarding | None:
        """In a gateway."""
        if self._upstream is None:
            return None
        writers = self._writers
        applied = lambda shard: writers[shard].shard.applied_seq  # noqa: E731
        forwarding = Forwarding(self._upstream, shards, applied, self._settings.forward, metrics)
        metrics.watch(Gauges(self._upstream.figures))
        operator.watch_upstream(forwarding.troubles)
        return forwarding

    def _caught_up(self, shard: int) -> None:
        """Where another process writes the shard, wait until it shows all that is durable. Raises StoreUnavailable."""
        if self._followers:
            self._followers[shard].catch_up()

    def _start_writing(
        self,
        identity: StoreIdentity,
        encoders: Encoders,
        metrics: Metrics,
        policies: PolicyFile,
        noted: Mapping[int, Noted],
        more_duties: Sequence[Duty],
        opened: ExitStack,
    ) -> Operator:
        """Take the shards over, and start whatever works on them in the background."""
        settings = self._settings
        self._writers, damages = open_written(
            settings, identity, self._openers, self._committed, self._clock, metrics, opened, self._only
        )
        self._indexer.start(self._writers)
        opened.callback(self._indexer.close)
        opened.callback(self._dual.close)
        opened.callback(encoders.close)  # before the indexers: it fails the passages that they wait for
        self._refresher.start(self._writers)
        opened.callback(self._refresher.close)
        self._measures.start()
        opened.callback(self._measures.close)
        duties: list[Duty] = [
            Expirer(self._clock, settings.fold.expire_every_s),
            WriteHits(noted),
            Demote(policies, self._clock, noted, topic_lengths),
            *more_duties,
            SummarySweep(self._refresher, self._clock, settings.memory.summary.ttl_s),
            Archiver(),
        ]
        assert self._upkeep is not None
        housekeeper = Housekeeper(self._writers, settings.fold, duties, self._upkeep.finish)
        opened.callback(housekeeper.close)
        backups = self._open_backups(policies, opened) if self._only is None else None
        warm = encoders.query(encoders.base.primary, WARM_UP)
        return WritingOperator(
            self._writers,
            housekeeper,
            self._indexer,
            self._dual,
            self._refresher,
            self._pools.stores,
            damages,
            warm,
            backups,
        )

    def _open_backups(self, policies: PolicyFile, opened: ExitStack) -> BackupRunner:
        settings = self._settings
        holds = ShardHolds([writer.shard for writer in self._writers])
        backups = BackupRunner(
            settings.layout, settings.backup, settings.backup_connection, policies, holds, self._clock
        )
        opened.callback(backups.close)
        return backups

    def _open_gates(
        self, encoders: Encoders, golden: GoldenFiles, tokenizer: Tokenizer, metrics: Metrics, opened: ExitStack
    ) -> None:
        """What judges migrations of each kind, by what serves and what is tried."""
        prices, serving = self._settings.prices, self.serving
        self.gates = open_gates(
            self._writers, encoders, golden, self._searches, serving, self.rerankers.model, self._clock
        )
        opened.callback(self.gates.close)
        self.reranker_gates = open_reranker_gates(self.gates, self._writers, encoders, serving, self._clock, prices)
        self.compressor_gates = open_compressor_gates(
            self.compressors, self._writers, golden, tokenizer, self._clock, prices
        )
        serving.searched = self.gates.shadow.searched
        metrics.watch(Gauges(self.gates.gauges))

    def _switches(self, file: MigrationFile, encoders: Encoders) -> Mapping[Kind, Switch]:
        versions = StoredVersions(self._settings.files)
        return {
            "embedding": EncoderSwitch(
                file, versions, self._open_encoder, encoders, self._writers, self._indexer, self._dual
            ),
            "reranker": RerankerTrials(self.rerankers),
            "compressor": CompressorTrials(self.compressors),
        }

    def _start_control(
        self,
        file: MigrationFile,
        switches: Mapping[Kind, Switch],
        keys: KeyFile,
        in_force: InForce,
        operator: Operator,
        opened: ExitStack,
    ) -> None:
        """What takes migrations on, and the job that it starts."""
        assert self.gates is not None
        assert self.backfills is not None
        gates: dict[Kind, AnyGates] = {
            "embedding": self.gates,
            "reranker": self.reranker_gates,
            "compressor": self.compressor_gates,
        }
        done = self.backfills.ranges_done
        runner = NobodyRuns() if self._job is None else JobRunner(self._folder, self._job, keys, done)
        parts = Parts(switches, gates, {"embedding": self.gates}, self.backfills, runner)
        first, publish, seqs = in_force.first, in_force.publish, in_force.next_seqs
        control = Control(file, parts, publish, first, seqs, self._clock, self._control)
        operator.watch_migrations(control.shown_troubles)
        control.start()
        opened.callback(control.close)

    def _follow_migrations(
        self, file: MigrationFile, encoders: Encoders, in_force: InForce, operator: Operator, opened: ExitStack
    ) -> None:
        """Where the writer's files can be seen; else the replica is as its settings say."""
        files = self._settings.files
        if read_identity(files) is None:
            return
        reopen = partial(reopened, open_one=self._open_encoder)
        shards = [writer.shard for writer in self._writers]
        follower = PlanFollower(file, StoredVersions(files), reopen, encoders, shards, in_force.publish)
        operator.watch_migrations(follower.troubles)
        follower.start()
        opened.callback(follower.close)

    def _progress(self, migration: Migration) -> dict[str, Any] | None:
        """How far the state is that takes long."""
        if migration.state == "backfill" and self.backfills is not None:
            return self.backfills.progress(migration)._asdict()
        if migration.state in ("verify", "canary") and migration.kind == "embedding" and self.gates is not None:
            asked, of = self.gates.progress
            return {"asked": asked, "of": of, "reads": self.gates.reads}
        return None

    def _start_following(
        self, identity: StoreIdentity, encoders: Encoders, metrics: Metrics, opened: ExitStack
    ) -> Operator:
        """Nothing is written here, so no vectors, no summaries and no maintenance are made either."""
        self._writers, self._followers = open_followed(
            self._settings, identity, self._open_reader, metrics, opened, self._searches.committed, self._relay
        )
        return FollowingOperator(
            self._writers, self._followers, self._pools.stores, encoders.query(encoders.base.primary, WARM_UP)
        )

    def _open_encoders(self, embedders: Opened, metrics: Metrics) -> Encoders:
        """Those of the versions that the store has."""
        queues = None if self._queues_beside is None else self._queues_beside(embedders.base)
        if queues is None and self._settings.encoder.placement == "deployment":
            raise InvalidRequest('encoder: placement = "deployment" needs the Ray engine; the local one has none')
        encoders = Encoders(embedders.base, queues, spent=metrics.costs.embedded)
        for embedder in embedders.beside:
            encoders.add(embedder)
        return encoders

    def _show_first_key(self, keys: KeyFile) -> None:
        """Who shares a writer's keys, or writes a part of the store, makes none."""
        files_uri = self._settings.files_uri
        foreign = self._settings.role != "writer" and files_uri != self._settings.data
        key = None if foreign or self._only is not None else keys.ensure_first()
        if key is not None:
            print(f"first start: operator key of tenant default: {key}", flush=True)
            print(f"it is kept in {below(files_uri, FIRST_KEY_FILE)}", flush=True)

    def _committed(self, shard: Shard, records: list[Record]) -> None:
        self._indexer.committed(shard, records)
        self._dual.committed(shard, records)
        self._refresher.committed(shard, records)
        self._measures.committed(records)
        self._searches.committed(records)
        if self._upkeep is not None:
            self._upkeep.committed(shard, records)

    def _breakers(self, encoding: Encoding, serving: Serving, compressors: Compressors) -> Callable[[], list[Breaker]]:
        """Of all that may hang."""
        shards = [writer.shard for writer in self._writers]
        guards = [guard for shard in shards for guard in (shard.reads.guard, shard.cold_reads.guard)]
        fixed = [*(one.breaker for one in filter(None, [self._expander])), *(guard.breaker for guard in guards)]
        fixed += [writer.breaker for writer in self._writers]
        return lambda: [
            *encoding.breakers.values(),
            *(one.breaker for one in serving.seconds()),
            *compressors.breakers(),
            *fixed,
        ]

    def _gauges(self) -> Iterable[tuple[str, str, float]]:
        shards = [writer.shard for writer in self._writers]
        counts = [shard.block_counts() for shard in shards]
        yield "memstrata_pending_vectors", "Turns whose vectors are still to come.", sum(len(s.pending) for s in shards)
        yield "memstrata_pending_vectors_target", "The same of the version that a migration brings.", self._dual.waiting
        yield "memstrata_write_queue", "Turns that wait for a writer.", sum(writer.waiting for writer in self._writers)
        yield "memstrata_log_tail_records", "Records not folded yet.", sum(shard.tail_length() for shard in shards)
        yield "memstrata_log_segments", "Segments of all logs.", sum(shard.log.segment_count for shard in shards)
        yield "memstrata_owners_in_memory", "Users whose block is in memory.", sum(owners for owners, _ in counts)
        yield "memstrata_turns_in_memory", "Turns whose content is in memory.", sum(turns for _, turns in counts)
        yield "memstrata_block_loads", "Blocks loaded from the tables.", sum(shard.loads for shard in shards)
        devices = shards[0].hot.on_devices().values() if shards else ()
        yield (
            "memstrata_hot_devices_lost",
            "Hot indexes whose device is lost.",
            sum(one.bounded.trouble is not None for one in devices),
        )
        yield (
            "memstrata_hot_users_refused",
            "Users for whom a hot index had no room.",
            sum(one.refused for one in devices),
        )
        yield "memstrata_summaries_waiting", "Sessions that wait for a summary.", self._refresher.waiting
        age = self._indexer.oldest_age_s
        yield "memstrata_oldest_pending_turn_age_seconds", "Age of the turn that has waited longest for vectors.", age
        behind = max((follower.behind_s or 0.0 for follower in self._followers), default=0.0)
        yield "memstrata_replica_behind_seconds", "How old what a replica shows may be; 0 for a writer.", behind
        yield "memstrata_embed_failures", "Rounds of the indexer that failed.", self._indexer.failures
        yield "memstrata_embed_failures_target", "The same of the version that a migration brings.", self._dual.failures

    async def hot_products(self, shard: int, owner: str, version: str, query: Vectors) -> HotProducts | None:
        """What a hot shard is asked for, see `HotReads`. Raises StorageTrouble, NotFound, HotShardUnavailable."""
        if self._api is None:
            raise HotShardUnavailable("the hot shard is starting")
        return await self._hot_reads.products(shard, owner, version, query)

    @property
    def devices_lost(self) -> list[str]:
        """Of the hot indexes: which, and why."""
        here = next(iter(self._writers), None)  # all shards of a process have the same
        return here.shard.hot.lost() if here is not None else []

    async def stop(self) -> None:
        """Nothing acknowledged depends on this; it only ends the threads in order. A second call does nothing."""
        self._api = None
        if self._upstream is not None:
            await self._leave(self._upstream)
        if self._expander is not None:
            await self._expander.close()
        await asyncio.to_thread(self._closing.close)

    async def _leave(self, upstream: Upstream) -> None:
        """A gateway finishes what it has taken, and sends its hits."""
        ends = time.monotonic() + DRAIN_S
        while self._answering and time.monotonic() < ends:  # noqa: ASYNC110 - a last while, once
            await asyncio.sleep(DRAIN_LOOK_S)
        sent_hits, self._sent_hits = self._sent_hits, None
        if sent_hits is not None:
            await sent_hits.stop()
        await upstream.stop()
