"""Migrations of one service, put together: what they switch, who judges, who fills in, and the plan in force."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence

from serve_app.core import SECOND_US
from serve_app.errors import StoreUnavailable
from serve_app.memory.compressors import Compressors
from serve_app.memory.rerankers import Rerankers
from serve_app.memory.serving import Serving
from serve_app.migrate.backfill import BackfillShown
from serve_app.migrate.migration_file import MigrationFile
from serve_app.migrate.plan import plan_of
from serve_app.migrate.record import Migration, Migrations
from serve_app.migrate.trials import settled_plan
from serve_app.models.encoders import Encoders
from serve_app.observe.migrations import BackfillNow, MigrationNow
from serve_app.routing import Epoch
from serve_app.write.commit import ShardWriter

_log = logging.getLogger(__name__)

JOBLESS = "the service does not know its own address: start the job by hand, with memstrata reembed"


class NobodyRuns:
    """See `switching.Runner`."""

    def tend(self, migration: Migration) -> str:
        return JOBLESS

    def stop(self) -> None:
        """There is none."""


def readable(file: MigrationFile) -> Migrations:
    """What the file holds; nothing where it cannot be read. The base serves then, and each change is refused."""
    try:
        return file.read()
    except StoreUnavailable as error:
        _log.error("%s; no migration goes on, and what one has changed does not count", error)
        return Migrations()


def running_now(
    file: MigrationFile, progress: Callable[[Migration], BackfillShown] | None, clock: Callable[[], int]
) -> Iterator[MigrationNow]:
    """What `/metrics` tells of those that have not ended. Without `progress` nothing is known of backfills."""
    for one in readable(file).migrations:
        if one.ended:
            continue
        backfill = None
        if progress is not None and one.state == "backfill" and not one.paused:
            shown, waited_s = progress(one), (clock() - one.steps[-1].at) / SECOND_US
            silent_s = waited_s if shown.heard_s is None else shown.heard_s
            backfill = BackfillNow(shown.done, shown.total, shown.dead, silent_s)
        yield MigrationNow(one.kind, one.state, bool(one.trouble), backfill)


class InForce:
    """What the file of migrations says of who is served by what, as far as this service can serve it."""

    def __init__(
        self,
        serving: Serving,
        encoders: Encoders,
        writers: Sequence[ShardWriter],
        rerankers: Rerankers,
        compressors: Compressors,
        clock: Callable[[], int],
    ) -> None:
        """`first`, what serves where no migration ever changed it, is the base of the encoders at the start."""
        self.first = Epoch(encoders.base)
        self._serving = serving
        self._encoders = encoders
        self._writers = writers
        self._rerankers = rerankers
        self._compressors = compressors
        self._started = self.next_seqs(), clock()

    def publish(self, stored: Migrations) -> None:
        """Requests from here on are answered by what the file says."""
        opened = {version.name for version in self._encoders.versions}
        held = [version.name for version in next(iter(self._writers)).shard.versions if version.name in opened]
        plan = plan_of(stored, self.first, held)
        plan = settled_plan(plan, self._rerankers, self._compressors, *self._started)
        if plan != self._serving.plan:
            self._serving.change(plan)

    def next_seqs(self) -> tuple[int, ...]:
        """Of each shard, what the next record's seq is at the least."""
        here = {writer.shard.number: writer.shard.applied_seq + 1 for writer in self._writers}
        return tuple(here.get(number, 0) for number in range(len(self._writers)))
