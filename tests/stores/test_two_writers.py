"""Two writers forced onto one shard, in threads of their own: one stops unacknowledged, nothing is lost or doubled.

`pytest -s -m slow tests/stores/test_two_writers.py tests/write/test_two_writers.py` runs 200 rounds of each kind and
prints the counts.
"""

from __future__ import annotations

import logging
import threading
import urllib.request
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from moto.server import ThreadedMotoServer

from serve_app.errors import Fenced
from serve_app.ports import SegmentStore
from serve_app.stores.log import Entry, ShardLog
from serve_app.stores.segments_disk import DiskSegments
from serve_app.stores.segments_object import open_segments
from tests.stores.logs import add, opened

SHORT, LONG = 10, 200
WAIT_S = 60
ALONE, TOGETHER = 5, 5
"""Appends that a writer tries before it waits for the other to have the shard open, and after that; it stops at the
first that is refused."""


@pytest.fixture(scope="module")
def s3() -> Iterator[Callable[[Path], SegmentStore]]:
    logging.getLogger("werkzeug").setLevel(logging.ERROR)
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    endpoint = f"http://{host}:{port}"
    urllib.request.urlopen(urllib.request.Request(f"{endpoint}/memory", method="PUT"), timeout=10).close()
    names = {"endpoint": endpoint, "region": "us-east-1", "access_key_id": "any", "secret_access_key": "any"}
    yield lambda folder: open_segments(f"s3://memory/{folder.name}", names | {"allow_http": "true"})
    server.stop()


@pytest.fixture(params=["disk", "s3"])
def open_store(request: pytest.FixtureRequest, tmp_path: Path) -> Callable[[], SegmentStore]:
    """Opens the same store each time, as each of two processes would."""
    if request.param == "disk":
        return lambda: DiskSegments(tmp_path / "log")
    made: Callable[[Path], SegmentStore] = request.getfixturevalue("s3")
    return lambda: made(tmp_path)


@dataclass
class Contest:
    """Both writers open the shard at once and append until one is refused; what is found then goes into the table."""

    open_store: Callable[[], SegmentStore]
    table: dict[int, bytes] = field(default_factory=dict)
    acknowledged: list[Entry] = field(default_factory=list)
    refused: int = 0

    @property
    def folded_seq(self) -> int:
        return max(self.table, default=0)

    def round(self, number: int) -> None:
        start, met = threading.Barrier(2), threading.Event()
        logs: list[ShardLog] = []
        acknowledged: list[list[Entry]] = [[], []]

        def write(side: int) -> None:
            store = self.open_store()
            start.wait()
            log, _ = opened(store, self.folded_seq, writer_id=f"{number}-{side}")
            logs.append(log)
            if len(logs) == 2:
                met.set()
            for step in range(ALONE + TOGETHER):
                if step == ALONE:
                    met.wait(WAIT_S)
                try:
                    acknowledged[side] += add(log, f"{number}-{side}-{step}".encode(), b"and another")
                except Fenced:
                    self.refused += 1
                    return

        sides = [threading.Thread(target=write, args=(side,)) for side in range(2)]
        for side in sides:
            side.start()
        for side in sides:
            side.join()
        assert len(logs) == 2
        assert sum(not log._fenced and still_writes(log, acknowledged) for log in logs) <= 1
        self.acknowledged += acknowledged[0] + acknowledged[1]
        self.judge()

    def judge(self) -> None:
        log, recovery = opened(self.open_store(), self.folded_seq, writer_id="judge")
        assert recovery.damages == ()
        seqs = [entry.seq for entry in recovery.entries]
        assert seqs == sorted(set(seqs))
        assert not set(seqs) & self.table.keys()
        self.table |= {entry.seq: entry.payload for entry in recovery.entries}
        assert [self.table.get(entry.seq) for entry in self.acknowledged] == [one.payload for one in self.acknowledged]
        assert len({entry.seq for entry in self.acknowledged}) == len(self.acknowledged), "acknowledged twice"
        log.drop_through(recovery.last_seq)


def still_writes(log: ShardLog, acknowledged: list[list[Entry]]) -> bool:
    try:
        acknowledged[0] += add(log, b"last")
    except Fenced:
        return False
    return True


@pytest.mark.parametrize("rounds", [SHORT, pytest.param(LONG, marks=pytest.mark.slow)])
def test_of_two_writers_one_stops_and_no_record_is_lost_or_doubled(
    open_store: Callable[[], SegmentStore], rounds: int
) -> None:
    contest = Contest(open_store)
    for number in range(rounds):
        contest.round(number)
    assert contest.refused >= rounds // 2, "the writers hardly met"
    print(f"\n{rounds} rounds: {len(contest.acknowledged)} records acknowledged, {contest.refused} writers stopped")
