"""Backfill of a migration: every turn from before it began gets vectors of the new version, by Ray Data.

    python -m jobs.reembed --url URL --data DIR [--config FILE] --migration ID --key-file FILE
        [--address RAY_ADDRESS] [--actors N] [--json]

Claims the migration at the service, reads the shards' tables by ranges of seqs (a unit each), embeds them in a pool of
actors, and sends the vectors to the service, which writes; a unit counts once the service has it durably. Whoever is
killed loses the units that it had in hand. The cost is told before it begins.

Exit 0 once nothing lacks vectors, 1 where it failed and may be tried again, 2 for a wrong command line, 3 where another
job has the migration or it is not to be backfilled.
"""

from __future__ import annotations

import argparse
import json
import os
import socket
import sys
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import AbstractContextManager, ExitStack
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
from tqdm import tqdm

from jobs.estimate import Estimate, estimate, told
from jobs.link import Beats, Link, Refused, Sink
from jobs.reading import stretch_length, stretches
from jobs.session import ray_session
from jobs.work import Open, Work
from serve_app.arguments import add_reembed
from serve_app.errors import EncoderUnavailable, InvalidRequest, MemstrataError
from serve_app.migrate.intervals import missing, size
from serve_app.migrate.units import Claim, Taken, Units
from serve_app.models.embed import EncoderOptions, open_embedder
from serve_app.observe.costs import PriceOptions

if TYPE_CHECKING:
    from serve_app.backup.layout import Layout

SPARE_CPUS = 1
"""Of a private Ray, for what reads."""

SENDERS = 2
"""Units that are sent at once."""

SENDING_MAX = 4
"""Units that are embedded and not sent yet."""

PASSES_MAX = 8
"""Over what is left; a second one is needed where a node died, or the tables lack something at the end."""

FIRST_KEY_FILE = "admin.key"
"""That a service left in its data folder."""

DONE, FAILED, NOT_OURS = 0, 1, 3

Session = Callable[[str | None], AbstractContextManager[None]]


class Lost(MemstrataError):
    """Ray failed."""

    code = "ray_failed"


def main(
    arguments: Sequence[str] | None = None, *, session: Session | None = None, open_one: Open = open_embedder
) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    return run(add_reembed(parser).parse_args(arguments), session=session, open_one=open_one)


def run(args: argparse.Namespace, *, session: Session | None = None, open_one: Open = open_embedder) -> int:
    """Gives the exit status."""
    try:
        return _run(args, session or partial(ray_session, cpus=(args.actors or 1) + SPARE_CPUS), open_one)
    except Refused as error:
        print(f"reembed: {error}", file=sys.stderr)
        return NOT_OURS if error.status in (404, 409) else FAILED
    except MemstrataError as error:
        print(f"reembed: {error}", file=sys.stderr)
        return FAILED


def _run(args: argparse.Namespace, session: Session, open_one: Open) -> int:
    began = time.monotonic()
    with ExitStack() as opened:
        link = Link(args.url, _key(args.key_file or args.data / FIRST_KEY_FILE), args.migration)
        opened.callback(link.close)
        worker = f"{socket.gethostname()}-{os.getpid()}"
        claim = link.claim(worker)
        beats = Beats(link, claim.fence)
        opened.callback(beats.close)
        opened.enter_context(session(args.address))
        _refuse_checkpoints()
        from serve_app.config import load_settings  # now that Ray has forked its processes: LanceDB bears no fork

        settings = load_settings(args.data, args.config)
        job = Job(link, settings.layout, worker, claim, beats, args.actors, open_one)
        found = job.estimate(settings.prices)
        print(told(found, job.actors), file=sys.stderr, flush=True)
        ready_s = time.monotonic() - began
        with tqdm(total=found.turns, unit=" turns", disable=None) as bar:
            done = job.run(bar.update)
    result = {
        "migration": args.migration,
        "estimate": msgspec.to_builtins(found),
        "ready_s": round(ready_s, 3),
        "seconds": round(time.monotonic() - began - ready_s, 3),
        **done,
    }
    print(json.dumps(result) if args.json else _summary(done), flush=True)
    return DONE


def _summary(done: dict[str, Any]) -> str:
    return ", ".join(f"{value} {name}" for name, value in done.items())


def _key(path: Path) -> str:
    try:
        return path.read_text().strip()
    except OSError as error:
        raise InvalidRequest(f"{path} cannot be read: {error}") from error


def _refuse_checkpoints() -> None:
    """With Ray Data's own checkpoints rows were marked as done that no sink had written: here units are what counts."""
    from ray.data import DataContext

    if DataContext.get_current().checkpoint_config is not None:
        raise InvalidRequest(
            "Ray Data's checkpoint_config is set: it would skip rows that were never recorded. "
            "Take it out of the DataContext; this job goes on where it was by itself"
        )


class Job:
    """One claim, worked off. Ray runs."""

    def __init__(
        self,
        link: Link,
        layout: Layout,
        worker: str,
        claim: Claim,
        beats: Beats,
        actors: int | None,
        open_one: Open,
    ) -> None:
        from jobs.stages import actors_of

        self._link, self._layout, self._worker, self._claim, self._beats = link, layout, worker, claim, beats
        self._options = msgspec.convert(claim.options, EncoderOptions)
        self._open_one = open_one
        self.actors, self._gpus = actors_of(actors, self._options.device)

    def estimate(self, prices: PriceOptions) -> Estimate:
        """Counts what is left, and tells the service. Raises EncoderUnavailable for an encoder of another version."""
        from jobs import stages

        work = self._work(self._claim)
        warm, cold, sample, version = stages.measured(work, self._gpus)
        if version != self._claim.version:
            raise EncoderUnavailable(f"the encoder here is {version.name!r}; the migration is to {work.version!r}")
        self._link.put(Units(self._claim.fence, left=warm))
        return estimate(warm, cold, sample, prices)

    def run(self, advance: Callable[[int], object]) -> dict[str, Any]:
        """Passes over what is left until the service finds nothing that lacks vectors. Raises MemstrataError."""
        total, units = Taken(), 0
        claim, watch = self._claim, Watch()
        for passed in range(1, PASSES_MAX + 1):
            for taken in self._sent(self._work(claim), claim.fence):
                units += 1
                total = _plus(total, taken)
                through = taken.written + taken.stale + taken.gone + taken.dead
                watch.passed(through)
                advance(through)
            finished = self._link.put(Units(claim.fence, finish=True))
            if finished.complete:
                counts = {name: getattr(total, name) for name in ("written", "stale", "gone", "cold", "dead")}
                return counts | {"units": units, "passes": passed} | watch.told()
            claim = msgspec.structs.replace(claim, shards=finished.shards)
        raise Lost(f"after {PASSES_MAX} passes something still lacks vectors")

    def _work(self, claim: Claim) -> Work:
        ranges = {one.shard: missing(one.done, one.through) for one in claim.shards}
        length = stretch_length(sum(map(size, ranges.values())))
        cuts = [cut for shard, theirs in ranges.items() for cut in stretches(shard, theirs, length)]
        through = {one.shard: one.through for one in claim.shards}
        return Work(self._layout, cuts, through, self._options, claim.version.name, self.actors, self._open_one)

    def _sent(self, work: Work, fence: int) -> Iterator[Taken]:
        """What became of each unit, once the service has it."""
        from jobs import stages

        sink = Sink(self._link, fence, self._beats)
        sending: deque[Future[Taken]] = deque()
        with ThreadPoolExecutor(SENDERS, "sender") as senders:
            for unit in stages.embedded(work, self._gpus, self._beats):
                sending.append(senders.submit(sink.send, unit))
                while len(sending) >= SENDING_MAX or (sending and sending[0].done()):
                    yield sending.popleft().result()
            while sending:
                yield sending.popleft().result()


class Watch:
    """How fast turns go through, from the first unit on: before it encoders are loaded."""

    def __init__(self) -> None:
        self._began = time.monotonic()
        self._first: float | None = None
        self._last = self._began
        self._turns = 0

    def passed(self, turns: int) -> None:
        self._last = time.monotonic()
        if self._first is None:
            self._first = self._last
        else:
            self._turns += turns

    def told(self) -> dict[str, Any]:
        """`start_s` until the first unit was durable; `rate` after it, in turns a second, None of one unit alone."""
        start_s = None if self._first is None else round(self._first - self._began, 3)
        spent = self._last - (self._first or self._last)
        return {"start_s": start_s, "rate": round(self._turns / spent, 1) if spent else None}


def _plus(one: Taken, other: Taken) -> Taken:
    names = ("written", "stale", "gone", "cold", "dead")
    return Taken(**{name: getattr(one, name) + getattr(other, name) for name in names})


if __name__ == "__main__":
    sys.exit(main())
