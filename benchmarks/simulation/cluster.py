"""The way of each kind of request through the stations of a cluster, or of one process that holds them all.

A gateway is one interpreter: what it computes waits in one queue. A read goes gateway, encoder, gateway; where the
user's block is not in memory, the object store stands between. An append goes gateway, writer, group commit, gateway;
its vectors are made after the answer, behind those of the queries, and every gateway applies its record.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Mapping
from functools import partial

import msgspec

from benchmarks.simulation.clock import Clock, SimulationFailed
from benchmarks.simulation.measured import (
    EVEN,
    Calibration,
    Line,
    Quantiles,
    Spread,
    quantiles,
    sampler,
)
from benchmarks.simulation.stations import Batches, Servers

SLICE_S = 0.005
"""Background work yields after so long, as CPython's threads do."""

FOLLOW_POLL_S = 0.05
"""How often a gateway takes what others wrote."""

COMMIT_RECORDS_MAX = 2_000
BATCH_TEXTS_MAX = 256
QUERIES_WAITING_MAX, PASSAGES_WAITING_MAX = 1_024, 16_384
WARM_UP = 0.1
"""Of a run's time; what arrives in it counts in no quantile."""


class Cold(msgspec.Struct, frozen=True):
    """A read of a user who is not in the gateway's memory."""

    part: float = 0.0
    """Of the reads."""

    gets: int = 4
    get_s: float = 0.025
    get_spread: Spread = EVEN
    cpu_s: float = 0.028


class Shape(msgspec.Struct, frozen=True):
    """What is simulated: a whole small cluster, or a slice of one whose parts are alike."""

    gateways: int = 1
    encoders: int = 1
    writers: int = 0
    """0: the gateway writes, as in one process."""

    shards: int = 4
    in_flight_max: int = 512
    """Of one gateway; beyond it the answer is 429."""

    encoder: Line | None = None
    """Instead of the measured one."""

    batch_tokens_max: float | None = None
    forward_s: float = 0.0
    """Of a gateway, for an append that a writer's process answers."""

    put_s: float = 0.0
    """Of the object store, for each commit; 0: the disk that was measured."""

    put_spread: Spread = EVEN
    cold: Cold = Cold()
    followed_per_s: float = 0.0
    """Records that all writers of the cluster write, each of which every gateway applies."""

    background_part: float = 0.0
    """Of a writer's time: folds and compactions. In one process: of the gateway's."""


class Load(msgspec.Struct, frozen=True):
    """Arrivals are independent of each other (Poisson). `mix`: shares by kind, which are scaled to 1."""

    rate: float
    mix: Mapping[str, float]
    seconds: float
    known_part: float = 0.0
    """Queries whose vector is in the gateway's cache."""

    turn_tokens: float | None = None
    query_tokens: float | None = None


class Outcome(msgspec.Struct, frozen=True):
    arrived: int
    done: int
    rejected: int
    in_flight: int
    per_second: float
    all: Quantiles
    kinds: dict[str, Quantiles]
    used: dict[str, float]
    """By kind of station, the part of the time that it was busy."""

    commits_per_s: float
    gets_per_s: float
    records_a_commit: float


def simulate(times: Calibration, shape: Shape, load: Load, seed: int = 1) -> Outcome:
    """Raises SimulationFailed."""
    if not load.mix or any(kind not in times.gateway_s for kind in load.mix):
        raise SimulationFailed(f"a mix of {', '.join(times.gateway_s)}, not of {', '.join(load.mix)}")
    run = _Run(times, shape, load, random.Random(seed))
    run.go()
    return run.outcome()


class _Gateway:
    def __init__(self, servers: Servers) -> None:
        self.servers = servers
        self.in_flight = 0


class _Run:
    def __init__(self, times: Calibration, shape: Shape, load: Load, source: random.Random) -> None:
        self._times, self._shape, self._load, self._source = times, shape, load, source
        self._clock = clock = Clock()
        self._gateways = [_Gateway(Servers(clock, 1)) for _ in range(shape.gateways)]
        self._encoders = [self._encoder() for _ in range(shape.encoders)]
        self._writers = [Servers(clock, 1) for _ in range(shape.writers)]
        self._commits = [Batches(clock, self._commit(), COMMIT_RECORDS_MAX) for _ in range(shape.shards)]
        self._spreads = {kind: sampler(times.gateway_spread[kind], source) for kind in times.gateway_s}
        self._get = sampler(shape.cold.get_spread, source)
        self._kinds, self._weights = list(load.mix), list(load.mix.values())
        self._arrived = self._rejected = self._records = self._gets = 0
        self._taken: dict[str, list[float]] = {kind: [] for kind in load.mix}
        self._done = 0

    def go(self) -> None:
        self._arrive_later()
        self._work_beside()
        self._clock.run(self._load.seconds)

    def outcome(self) -> Outcome:
        seconds = self._load.seconds
        in_flight = sum(gateway.in_flight for gateway in self._gateways)
        every = [one for taken in self._taken.values() for one in taken]
        commits = sum(station.batches for station in self._commits)
        return Outcome(
            arrived=self._arrived,
            done=self._done,
            rejected=self._rejected,
            in_flight=in_flight,
            per_second=self._done / seconds,
            all=quantiles(every),
            kinds={kind: quantiles(taken) for kind, taken in self._taken.items()},
            used={
                "gateway": _used([one.servers for one in self._gateways], seconds),
                "encoder": _used(self._encoders, seconds),
                "writer": _used(self._writers, seconds),
                "commit": _used(self._commits, seconds),
            },
            commits_per_s=commits / seconds,
            gets_per_s=self._gets / seconds,
            records_a_commit=self._records / commits if commits else 0.0,
        )

    # ---- arrivals

    def _arrive_later(self) -> None:
        self._clock.after(self._source.expovariate(self._load.rate), self._arrive)

    def _arrive(self) -> None:
        self._arrive_later()
        self._arrived += 1
        kind = self._source.choices(self._kinds, self._weights)[0]
        gateway = self._gateways[int(self._source.random() * len(self._gateways))]
        if gateway.in_flight >= self._shape.in_flight_max:
            self._rejected += 1
            return
        gateway.in_flight += 1
        _Request(self, kind, gateway, self._clock.now).begin()

    def answered(self, request: _Request) -> None:
        request.gateway.in_flight -= 1
        self._done += 1
        if request.began >= WARM_UP * self._load.seconds:
            self._taken[request.kind].append(self._clock.now - request.began + self._times.wire_s)

    def refused(self, request: _Request) -> None:
        request.gateway.in_flight -= 1
        self._rejected += 1

    # ---- what a request asks of the stations

    def interpret(self, request: _Request, part: float, then: Callable[[], object]) -> None:
        seconds = self._times.gateway_s[request.kind] * part * request.factor
        request.gateway.servers.ask(seconds, then)

    def embed(self, request: _Request, then: Callable[[], object]) -> None:
        if self._load.known_part and self._source.random() < self._load.known_part:
            then()
            return
        tokens = self._load.query_tokens or self._times.query_tokens
        back = partial(self._clock.after, self._times.handoff_s, then)
        if not self._least_busy().ask(tokens, back):
            self.refused(request)

    def fetch(self, request: _Request, then: Callable[[], object]) -> None:
        """The user's block, where it is not in memory: GETs one after the other, and the work of loading it."""
        cold = self._shape.cold
        if not cold.part or self._source.random() >= cold.part:
            then()
            return
        self._gets += cold.gets
        wait_s = sum(cold.get_s * self._get() for _ in range(cold.gets))
        self._clock.after(wait_s, lambda: _in_slices(request.gateway.servers, cold.cpu_s, then))

    def write(self, request: _Request, then: Callable[[], object]) -> None:
        """To the shard's writer, which commits; the vectors follow the answer."""
        shard = int(self._source.random() * len(self._commits))
        if not self._writers:
            self._append(shard, then)
        else:
            seconds = self._times.gateway_s["append"] * self._spreads["append"]()
            self._writers[shard % len(self._writers)].ask(seconds, lambda: self._append(shard, then))

    def factor(self, kind: str) -> float:
        return self._spreads[kind]()

    @property
    def times(self) -> Calibration:
        return self._times

    @property
    def shape(self) -> Shape:
        return self._shape

    def _append(self, shard: int, then: Callable[[], object]) -> None:
        def durable() -> None:
            self._records += 1
            tokens = self._load.turn_tokens or self._times.turn_tokens
            self._least_busy().ask(tokens, lambda: None, queue=1)
            then()

        self._commits[shard].ask(1, durable)

    # ---- stations and what goes on beside

    def _encoder(self) -> Batches:
        line = self._shape.encoder or self._times.encoder
        factor = sampler(self._times.encoder_spread, self._source)
        tokens_max = self._shape.batch_tokens_max or self._times.batch_tokens_max
        rooms = (QUERIES_WAITING_MAX, PASSAGES_WAITING_MAX)
        return Batches(self._clock, lambda tokens: line(tokens) * factor(), tokens_max, BATCH_TEXTS_MAX, rooms)

    def _commit(self) -> Callable[[float], float]:
        line, shape = self._times.commit, self._shape
        disk, put = sampler(self._times.commit_spread, self._source), sampler(shape.put_spread, self._source)
        if shape.put_s:
            return lambda records: shape.put_s * put() + line.each_s * records
        return lambda records: line(records) * disk()

    def _least_busy(self) -> Batches:
        if len(self._encoders) == 1:
            return self._encoders[0]
        return min(self._source.sample(self._encoders, 2), key=len)

    def _work_beside(self) -> None:
        """Records that others wrote, on every gateway; folds and compactions, where the writing is."""
        follow_s = self._shape.followed_per_s * FOLLOW_POLL_S * self._times.follow_s
        if follow_s:
            for gateway in self._gateways:
                self._again(gateway.servers, FOLLOW_POLL_S, follow_s)
        if part := self._shape.background_part:
            for station in self._writers or [one.servers for one in self._gateways]:
                self._again(station, SLICE_S / part, SLICE_S)

    def _again(self, station: Servers, every_s: float, seconds: float) -> None:
        def once() -> None:
            _in_slices(station, seconds, lambda: None)
            self._clock.after(every_s, once)

        self._clock.after(every_s * self._source.random(), once)


class _Request:
    __slots__ = ("began", "factor", "gateway", "kind", "run")

    def __init__(self, run: _Run, kind: str, gateway: _Gateway, began: float) -> None:
        self.run, self.kind, self.gateway, self.began = run, kind, gateway, began
        self.factor = run.factor(kind)

    def begin(self) -> None:
        if self.kind == "append" and self.run.shape.writers:
            self.gateway.servers.ask(self.run.shape.forward_s, self._apart)
        else:
            self.run.interpret(self, self._before, self._through)

    @property
    def _before(self) -> float:
        return self.run.times.before_part[self.kind]

    def _through(self) -> None:
        if self.kind == "append":
            self.run.write(self, self._finish)
        elif self.kind == "lexical":
            self.run.fetch(self, self._finish)
        else:
            self.run.embed(self, self._found)

    def _found(self) -> None:
        self.run.fetch(self, self._finish)

    def _apart(self) -> None:
        self.run.write(self, lambda: self.run.answered(self))

    def _finish(self) -> None:
        self.run.interpret(self, 1 - self._before, lambda: self.run.answered(self))


def _in_slices(station: Servers, seconds: float, then: Callable[[], object]) -> None:
    """Work that lets others through after each slice."""
    if seconds <= SLICE_S:
        station.ask(seconds, then)
    else:
        station.ask(SLICE_S, lambda: _in_slices(station, seconds - SLICE_S, then))


def _used(stations: list[Servers] | list[Batches], seconds: float) -> float:
    return math.fsum(one.busy_s for one in stations) / (seconds * len(stations)) if stations else 0.0
