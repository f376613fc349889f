"""Following a store that another service writes: a thread a shard that pulls the log and takes what is new.

Promises: a shard shows every record that was durable `behind_s` ago, and never a part of a batch; what it shows
of the tables is one version; nothing is written to the store. Where the store does not answer, the shard goes on
from what it has, and says so. The tail is forgotten up to the watermark of the newest version of the table. A
follower that comes so late that the segments it needs are folded and gone starts over from the table.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from typing import Annotated

import msgspec
from msgspec import Meta

from serve_app.errors import MemstrataError, StoreUnavailable
from serve_app.records import Record, decode_record
from serve_app.stores.followed import FollowedLog
from serve_app.stores.lance_followed import FollowedTable
from serve_app.stores.relay import Puller, SegmentRelay
from serve_app.stores.replay import HOLE_LOOKS
from serve_app.stores.segment import Entry
from serve_app.write.shard import Shard

_log = logging.getLogger(__name__)

JUDGE_AGAIN_S = 5.0
"""Pause before a log that is damaged here is read again as a whole."""

RETRY_S = 1.0
"""Pause after a store did not answer."""

CATCH_UP_S = 5.0
"""For who has to see all that was durable a moment ago."""

TAIL_RECORDS_MAX = 250_000
"""Records not folded yet that a follower holds; more than a writer lets come together, so that only a table that
cannot be read here comes to it. Beyond it the follower waits and falls behind."""

Seconds = Annotated[float, Meta(gt=0, le=60)]


class FollowOptions(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What a replica follows: the data folder of the writer (or a copy of its small files), and how closely."""

    data: str = ""
    poll_s: Seconds = 0.05
    look_s: Seconds = 1.0
    stale_s: Seconds = 0.2


class Follower:
    """Owns the shard's thread. `shard.log` and `shard.table` are the `log` and `table` given here."""

    def __init__(
        self,
        shard: Shard,
        log: FollowedLog,
        table: FollowedTable,
        options: FollowOptions,
        taken: Callable[[Sequence[Record]], None] = lambda records: None,
        relay: SegmentRelay | None = None,
    ) -> None:
        """`taken` is told of records once they are shown. `relay` is the way to the shard's writer, of a log that takes
        what is relayed.
        """
        self.shard = shard
        self._taken = taken
        self.trouble: str | None = None
        """Why the last round failed."""
        self.table_trouble: str | None = None
        self._store_log = log
        self._table = table
        self._options = options
        self._version = 0
        self._half_read = False
        """Whether the log's position is ahead of the shard: what came in between could not be taken."""
        self._looked_at = self._judged_at = float("-inf")
        self._sure_at = float("-inf")
        """When the round began that last heard of the store itself that the log ends here."""
        self._news = threading.Event()
        relayed = log.relayed
        self._puller = relay and relayed and Puller(relay, relayed, self._news.set, options.stale_s / 2)
        self._closing = threading.Event()
        self._thread = threading.Thread(target=self._run, name=f"follower-{shard.number}", daemon=True)

    def start(self) -> None:
        """Read the store once, then follow it. Raises StorageTrouble where it cannot be read."""
        began = time.monotonic()
        self._judge(restart=True)
        self._store_log.reached_at = self._sure_at = began
        self._thread.start()
        if self._puller:
            self._puller.start()

    @property
    def alive(self) -> bool:
        return self._thread.is_alive()

    @property
    def behind_s(self) -> float | None:
        return self._store_log.behind_s

    def catch_up(self) -> None:
        """Wait until everything is shown that was durable when this was called. Raises StoreUnavailable."""
        asked_at = time.monotonic()
        while self._sure_at < asked_at:
            if (relayed := self._store_log.relayed) is not None:
                relayed.ask_store()
                self._news.set()
            if time.monotonic() > asked_at + CATCH_UP_S or self._closing.wait(self._options.poll_s / 4):
                raise StoreUnavailable(f"shard {self.shard.number} cannot be followed: {self.trouble or 'it is late'}")

    def close(self) -> None:
        self._closing.set()
        self._news.set()
        if self._puller:
            self._puller.close()
        if self._thread.ident is not None:
            self._thread.join()

    def _run(self) -> None:
        while not self._closing.is_set():
            self._news.wait(self._round())
            self._news.clear()

    def _round(self) -> float:
        """One round; gives the pause before the next."""
        try:
            more = self._follow()
            self.trouble = None
            return 0.0 if more else self._options.poll_s
        except MemstrataError as error:
            self._failed(str(error))
        except msgspec.DecodeError as error:
            self._failed(f"the log holds what this release does not know: {error}")
        except Exception as error:  # noqa: BLE001 - a defect must not end the following for good
            _log.exception("following shard %d failed", self.shard.number)
            self._failed(f"defect: {type(error).__name__}")
        return RETRY_S

    def _failed(self, trouble: str) -> None:
        if self.trouble is None:
            _log.warning("shard %d cannot be followed, will be tried again: %s", self.shard.number, trouble)
        self.trouble = trouble

    def _follow(self) -> bool:
        """Take what is new, and now and then look at the table; whether more waits in the log."""
        began = time.monotonic()
        more = False
        if self._half_read:
            self._judge(restart=True)
        elif self._store_log.holed:
            if began - self._judged_at >= JUDGE_AGAIN_S:
                self._judge(restart=False)
        elif self.shard.tail_length() > TAIL_RECORDS_MAX:
            raise StoreUnavailable(f"{TAIL_RECORDS_MAX} records wait for a table that cannot be read: {self.trouble}")
        else:
            more = self._read_on()
        self._store_log.applied()
        if not (more or self._store_log.holed):
            self._ended(began)
        if began - self._looked_at >= self._options.look_s:
            self._looked_at = began
            self._look()
        return more

    def _ended(self, began: float) -> None:
        """All that was durable at some moment is shown: when this round began, or when the writer said so."""
        relayed = self._store_log.relayed
        if relayed is None or self._store_log.asked_store:
            self._store_log.reached_at = self._sure_at = began
        else:
            self._store_log.reached_at = min(began, relayed.answered_at)

    def _read_on(self) -> bool:
        progress = self._store_log.read_on()
        self._half_read = True
        self._take(_records(progress.entries))
        self._half_read = False
        if progress.where in ("stuck", "displaced"):
            self._judge(restart=progress.where == "displaced")
        return progress.where == "more"

    def _look(self) -> None:
        """Go on to the newest version of the table, and see whether the log has gone on elsewhere."""
        self.shard.evict()
        try:
            folded_seq = self._newest_table()
            self.table_trouble = None
        except MemstrataError as error:
            self.table_trouble = str(error)
            return
        overtaken = folded_seq > self.shard.applied_seq
        if (self._store_log.look_around() or overtaken) and not self._store_log.holed:
            self._judge(restart=False)

    def _newest_table(self) -> int:
        """The watermark of the newest version, which is read from now on; the tail up to it goes, if it was here."""
        with self.shard.merging:
            version = self._table.refresh()
            if version == self._version:
                return self.shard.folded_seq
            folded_seq = self._table.folded_seq()
            if self.shard.folded_seq < folded_seq <= self.shard.applied_seq:
                self.shard.folded(folded_seq)
            self._version = version
        return folded_seq

    def _judge(self, restart: bool) -> None:
        """Read table and log as a whole. What was read before stays where it is known to stand there still."""
        self._judged_at, self._version = time.monotonic(), 0
        self._half_read = True
        for _ in range(HOLE_LOOKS):
            self._table.refresh()
            folded_seq = self._table.folded_seq()
            records = _records(self._store_log.replay(folded_seq))
            if not self._store_log.holed:
                break
        if restart or folded_seq > self.shard.applied_seq:
            self.shard.restart(records, folded_seq)
            self._taken(records)
        else:
            applied_seq = self.shard.applied_seq
            self._take([record for record in records if record.seq > applied_seq])
            if folded_seq > self.shard.folded_seq:
                self.shard.folded(folded_seq)
        self._half_read = False

    def _take(self, records: Sequence[Record]) -> None:
        if records:
            self.shard.take(records)
            self._taken(records)


def _records(entries: Iterable[Entry]) -> Sequence[Record]:
    return [decode_record(entry.payload) for entry in entries]
