"""A follower of the one shard of `tests/write/shards.py`, on the same folder, with rounds as short as they can be."""

from __future__ import annotations

from collections.abc import Callable

from serve_app.ports import WatchedSegments
from serve_app.stores.block import Block
from serve_app.stores.followed import FollowedLog
from serve_app.stores.hot_indexes import HotIndexes
from serve_app.stores.lance_followed import FollowedColdTable, FollowedTable
from serve_app.stores.relay import Relayed, SegmentRelay
from serve_app.stores.segments_disk import DiskReader
from serve_app.write.follow import Follower, FollowOptions
from serve_app.write.shard import Shard
from tests.write.shards import OneShard

QUICK = FollowOptions(poll_s=0.002, look_s=0.02)


class Followed:
    """Started by `__init__`. `owner_turns_resident` as in `OneShard`."""

    def __init__(
        self,
        store: OneShard,
        options: FollowOptions = QUICK,
        segments: Callable[[WatchedSegments], WatchedSegments] = lambda segments: segments,
        owner_turns_resident: int = 4096,
        relay: SegmentRelay | None = None,
    ) -> None:
        self.table = FollowedTable(str(store.folder / "tables"), "shard-0000", store.versions, {})
        relayed = None if relay is None else Relayed(options.stale_s)
        self.log = FollowedLog(segments(DiskReader(store.folder / "log")), options.stale_s, relayed=relayed)
        hot = HotIndexes()
        cold = FollowedColdTable(str(store.folder / "cold"), "shard-0000", {})
        self.shard = Shard(0, self.log, self.table, store.versions, hot, 200_000, owner_turns_resident, cold=cold)
        self.follower = Follower(self.shard, self.log, self.table, options, relay=relay)
        self.follower.start()

    def block(self, owner: str) -> Block:
        return self.shard.block(owner)

    def contents(self, owner: str, session: str) -> list[str]:
        index = self.block(owner).sessions.get(session)
        return [turn.content for turn in self.shard.turns(owner, index.seqs)] if index else []

    def close(self) -> None:
        self.follower.close()
