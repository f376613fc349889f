"""One service, put together: stores, models, writers, memory, API. The composition root of both engines.

`start` recovers the shards; until it is done every route but `/healthz` says 503. The encoder is
loaded after that, while the service answers what it can; `/readyz` says 200 when that is done too.
`stop` lets the writers finish and lets go of the data folder.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, suppress
from pathlib import Path

from serve_app.api import http
from serve_app.api.admin import AdminRoutes
from serve_app.api.app import Api
from serve_app.api.auth import FIRST_KEY_FILE, KeyFile
from serve_app.api.golden import GoldenRoutes
from serve_app.api.problems import problem
from serve_app.api.routes import Routes
from serve_app.asgi import Receive, Scope, Send
from serve_app.backup.runner import BackupRunner
from serve_app.backup.take import ShardHolds
from serve_app.compress.extractive import EXTRACTIVE_VERSION
from serve_app.compress.topics import topic_lengths
from serve_app.config import Settings
from serve_app.context.tokens import open_tokenizer
from serve_app.core import EmbeddingVersion
from serve_app.errors import InvalidRequest, StoreUnavailable
from serve_app.memory.encoding import Encoding
from serve_app.memory.expansion import Understanding
from serve_app.memory.following import FollowingOperator
from serve_app.memory.golden import GoldenSets
from serve_app.memory.logged import SearchLog
from serve_app.memory.memory import Memory
from serve_app.memory.operator import Operator, WritingOperator
from serve_app.memory.refresher import Refresher
from serve_app.memory.relevance import Relevance
from serve_app.memory.reranking import second_stage
from serve_app.memory.retrievals import Retrievals
from serve_app.models.embed import EncoderOptions, open_embedder
from serve_app.models.encoders import Encoders, Queues
from serve_app.models.expand import open_expander
from serve_app.models.rerank import CrossEncoding, ModelOptions, open_reranker
from serve_app.observe.metrics import Gauges, Metrics
from serve_app.ports import Embedder, Expander
from serve_app.records import Record
from serve_app.shards import OpenReader, OpenSegments, StoreIdentity, identity_of, open_followed, open_written
from serve_app.stores.folder_lock import lock_folder
from serve_app.stores.golden_file import GoldenFiles
from serve_app.stores.policy_file import PolicyFile
from serve_app.stores.segments_object import open_reader, open_segments
from serve_app.write.commit import ShardWriter, microseconds
from serve_app.write.expire import Expirer
from serve_app.write.follow import Follower
from serve_app.write.golden import GoldenUpkeep
from serve_app.write.hits import Noted, WriteHits
from serve_app.write.housekeeping import Duty, Housekeeper
from serve_app.write.indexer import Indexer
from serve_app.write.lifecycle import Demote
from serve_app.write.rescan import Rescan
from serve_app.write.shard import Shard

WARM_UP = "warm up"
"""The text that is embedded first: the encoder loads its weights for it, while the service answers already."""


class Service:
    """`encoder`, `reranker`, `segments` and `reader` open the models and the logs, `clock` gives the time; others than
    the defaults are for tests.

    `queues` is the way to encoders in a deployment of their own; without it the encoders run in this process.
    """

    def __init__(
        self,
        settings: Settings,
        *,
        encoder: Callable[[EncoderOptions], Embedder] = open_embedder,
        reranker: Callable[[ModelOptions], CrossEncoding | None] = open_reranker,
        segments: OpenSegments = open_segments,
        reader: OpenReader = open_reader,
        queues: Callable[[], Queues] | None = None,
        clock: Callable[[], int] = microseconds,
    ) -> None:
        self._settings = settings
        self._folder = Path(settings.data)
        self._open_encoder = encoder
        self._open_reranker = reranker
        self._open_segments = segments
        self._open_reader = reader
        self._queues_beside = queues
        self._clock = clock
        self._api: Api | None = None
        self._closing = ExitStack()
        self._writers: list[ShardWriter] = []
        self._followers: list[Follower] = []
        self._expander: Expander | None = None
