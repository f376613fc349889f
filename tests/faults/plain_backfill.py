"""A job of the backfill in one plain process: what `jobs.reembed` does, without Ray and so up in a moment.

Takes the same arguments, speaks to the service by the same link, and rests between units, so that there is time to
kill it.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import msgspec

from jobs.embedding import SLICE_TOKENS, Worker
from jobs.link import Beats, Link, Refused, Sink
from jobs.reading import ShardTable, stretch_length, stretches
from jobs.resting import Resting
from serve_app.config import load_settings
from serve_app.errors import MemstrataError
from serve_app.migrate.intervals import missing, size
from serve_app.migrate.units import Claim, Units
from serve_app.models.embed import EncoderOptions, open_embedder

UNIT_REST_S = 0.15
PASSES_MAX = 8
DONE, FAILED, NOT_OURS = 0, 1, 3


def main(words: Sequence[str] | None = None) -> int:
    args = _arguments(words)
    try:
        return _backfill(args)
    except Refused as error:
        print(f"backfill: {error}", file=sys.stderr)
        return NOT_OURS if error.status in (404, 409) else FAILED
    except MemstrataError as error:
        print(f"backfill: {error}", file=sys.stderr)
        return FAILED


def _arguments(words: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    for name in ("--url", "--migration"):
        parser.add_argument(name, required=True)
    for name in ("--data", "--key-file"):
        parser.add_argument(name, type=Path, required=True)
    parser.add_argument("--config", type=Path)
    return parser.parse_args(words)


def _backfill(args: argparse.Namespace) -> int:
    link = Link(args.url, args.key_file.read_text().strip(), args.migration)
    claim = link.claim(f"plain-{os.getpid()}")
    beats = Beats(link, claim.fence)
    layout = load_settings(args.data, args.config).layout
    worker = Worker(open_embedder(msgspec.convert(claim.options, EncoderOptions)), Resting(lambda: 0.0), SLICE_TOKENS)
    sink = Sink(link, claim.fence, beats)
    for _ in range(PASSES_MAX):
        for shard, first, last, through in _left(claim):
            for unit in ShardTable(layout, shard).units(first, last, through):
                sink.send(worker.embed(unit))
                time.sleep(UNIT_REST_S)
        finished = link.put(Units(claim.fence, finish=True))
        if finished.complete:
            return DONE
        claim = msgspec.structs.replace(claim, shards=finished.shards)
    return FAILED


def _left(claim: Claim) -> list[tuple[int, int, int, int]]:
    ranges = {one.shard: missing(one.done, one.through) for one in claim.shards}
    through = {one.shard: one.through for one in claim.shards}
    length = stretch_length(sum(map(size, ranges.values())))
    cuts = [cut for shard, theirs in ranges.items() for cut in stretches(shard, theirs, length)]
    return [(*cut, through[cut[0]]) for cut in cuts]


if __name__ == "__main__":
    sys.exit(main())
