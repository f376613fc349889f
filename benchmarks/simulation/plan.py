"""How many replicas hold a rate within the goal, what they cost, and what the object store does meanwhile.

Counts begin with the utilisation law and grow where the simulated 95th percentile misses the goal. What is larger than
`STATIONS_MAX` is simulated as a slice of it: users are hashed, so that its parts are alike; each gateway applies the
records of the whole all the same. That part bounds a cell: beyond it there are several stores side by side.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

import msgspec

from benchmarks.simulation.cluster import Cold, Load, Outcome, Shape, simulate
from benchmarks.simulation.deployment import Deployment, EncoderParts, Machine
from benchmarks.simulation.measured import Calibration, Line
from benchmarks.simulation.tiers import hit_part

STATIONS_MAX = 32
REQUESTS = 20_000
"""That are simulated for one figure: 200 beyond the 99th percentile."""

GROWTHS_MAX = 8
GROWTH = 1.2
SETTLED = 4
"""Rounds in which more gateways hold more users, which makes fewer gateways necessary."""

GB, HOUR_S, THOUSAND = 1e9, 3_600, 1_000


class Counts(msgspec.Struct, frozen=True):
    """Of one cell. A writer has one shard."""

    gateways: int
    encoders: int
    writers: int


class Plan(msgspec.Struct, frozen=True):
    encoder: str
    rate: float
    cells: int
    counts: Counts
    hit_part: float
    follow_part: float
    """Of a gateway's time, for records that others wrote."""

    p95_ms: dict[str, float]
    used: dict[str, float]
    met: bool
    puts_per_s: float
    gets_per_s: float
    polls_per_s: float
    """GETs of logs, were each gateway to ask for each shard's by itself."""

    hot_gb: float
    store_gb: float
    month: dict[str, float]

    @property
    def month_total(self) -> float:
        return math.fsum(self.month.values())


def plan(times: Calibration, wanted: Deployment, encoder: str, rate: float, requests: int = REQUESTS) -> Plan:
    """From so many simulated requests. Raises SimulationFailed."""
    parts, mix = wanted.encoders[encoder], _shares(wanted.load.mix)
    line = times.encoder if parts.base_s is None else Line(parts.base_s, parts.token_s or 0.0)
    cells = max(1, math.ceil(rate * mix.get("append", 0.0) * times.follow_s / wanted.use.follow))
    of_cell = _Cell(times, wanted, parts, line, mix, rate / cells, wanted.users / cells, requests)
    counts = of_cell.first()
    for left in reversed(range(GROWTHS_MAX)):
        outcome, part = of_cell.simulated(counts)
        late = any(found.p95_ms > wanted.slo_p95_ms for found in outcome.kinds.values())
        met = not late and not outcome.rejected
        if met or not left:  # what is told was simulated, also where it is not enough
            break
        counts = _more(counts, outcome)
    return of_cell.told(encoder, rate, cells, counts, outcome, part, met=met)


class _Cell:
    def __init__(
        self,
        times: Calibration,
        wanted: Deployment,
        parts: EncoderParts,
        line: Line,
        mix: Mapping[str, float],
        rate: float,
        users: float,
        requests: int,
    ) -> None:
        self._times, self._wanted, self._parts, self._line, self._mix = times, wanted, parts, line, mix
        self._rate, self._users, self._requests = rate, users, requests
        self._appends = rate * mix.get("append", 0.0)
        self._batch_max = parts.batch_tokens_max or times.batch_tokens_max

    def first(self) -> Counts:
        use, times = self._wanted.use, self._times
        token_s = self._line.each_s + self._line.base_s / self._batch_max
        asked = self._rate * sum(self._mix.get(kind, 0.0) for kind in ("search", "context"))
        tokens = asked * (1 - self._wanted.load.known_part) * times.query_tokens + self._appends * times.turn_tokens
        free = use.writer - self._wanted.writer.background_part
        writers = _whole(self._appends * times.gateway_s["append"] / free)
        return Counts(self._gateways(), _whole(tokens * token_s / use.encoder), writers)

    def _gateways(self) -> int:
        reads_s = sum(part * self._times.gateway_s[kind] for kind, part in self._mix.items() if kind != "append")
        own_s = reads_s + self._mix.get("append", 0.0) * self._wanted.gateway.forward_s
        free = self._wanted.use.gateway - self._follow_part
        gateways = 1
        for _ in range(SETTLED):
            cold_s = (1 - self._mix.get("append", 0.0)) * (1 - self._hit(gateways)) * self._wanted.store.load_cpu_s
            gateways = _whole(self._rate * (own_s + cold_s) / free)
        return gateways

    @property
    def _follow_part(self) -> float:
        return self._appends * self._times.follow_s

    def _hit(self, gateways: int) -> float:
        gateway, load = self._wanted.gateway, self._wanted.load
        held = gateways * gateway.hot_gb * GB / (gateway.hot_bytes_a_turn * load.turns_a_user)
        return hit_part(self._users, held, load.zipf)

    def simulated(self, counts: Counts) -> tuple[Outcome, float]:
        """Of a slice, and what part of the cell it is. What does not divide is rounded down."""
        least, most = min(msgspec.structs.astuple(counts)), sum(msgspec.structs.astuple(counts))
        part = min(1.0, max(STATIONS_MAX / most, 1 / least))
        store = self._wanted.store
        cold = Cold(
            part=1 - self._hit(counts.gateways),
            gets=store.gets_a_load,
            get_s=store.get_s,
            get_spread=_even(store.spread),
            cpu_s=store.load_cpu_s,
        )
        writers = _slice(counts.writers, part)
        shape = Shape(
            gateways=_slice(counts.gateways, part),
            encoders=_slice(counts.encoders, part),
            writers=writers,
            shards=writers,
            encoder=self._line,
            batch_tokens_max=self._batch_max,
            forward_s=self._wanted.gateway.forward_s,
            put_s=store.put_s,
            put_spread=_even(store.spread),
            cold=cold,
            followed_per_s=self._appends,
            background_part=self._wanted.writer.background_part,
        )
        rate = self._rate * part
        load = Load(rate, self._mix, self._requests / rate, self._wanted.load.known_part)
        return simulate(self._times, shape, load), part

    def told(
        self, encoder: str, rate: float, cells: int, counts: Counts, outcome: Outcome, part: float, *, met: bool
    ) -> Plan:
        gateway, store, load = self._wanted.gateway, self._wanted.store, self._wanted.load
        puts, gets = (cells * one / part for one in (outcome.commits_per_s, outcome.gets_per_s))
        hot_gb = min(cells * counts.gateways * gateway.hot_gb, load.turns * gateway.hot_bytes_a_turn / GB)
        store_gb = load.turns * store.bytes_a_turn * store.versions_factor / GB
        return Plan(
            encoder=encoder,
            rate=rate,
            cells=cells,
            counts=counts,
            hit_part=self._hit(counts.gateways),
            follow_part=self._follow_part,
            p95_ms={kind: found.p95_ms for kind, found in outcome.kinds.items()},
            used=outcome.used,
            met=met,
            puts_per_s=puts,
            gets_per_s=gets,
            polls_per_s=cells * counts.gateways * counts.writers / gateway.poll_s,
            hot_gb=hot_gb,
            store_gb=store_gb,
            month=self._month(cells, counts, puts, gets, store_gb),
        )

    def _month(self, cells: int, counts: Counts, puts: float, gets: float, store_gb: float) -> dict[str, float]:
        wanted, prices = self._wanted, self._wanted.prices
        month_s = prices.month_h * HOUR_S

        def machines(count: int, each: Machine, gpus: float = 0.0) -> float:
            hour = each.cores * prices.core_h + each.memory_gb * prices.memory_gb_h + gpus * prices.gpu_h
            return cells * count * hour * prices.month_h

        return {
            "gateways": machines(counts.gateways, wanted.gateway),
            "encoders": machines(counts.encoders, self._parts, self._parts.gpus),
            "writers": machines(counts.writers, wanted.writer),
            "storage": store_gb * prices.storage_gb_month,
            "PUTs": puts * month_s / THOUSAND * prices.puts_1000,
            "GETs": gets * month_s / THOUSAND * prices.gets_1000,
        }


def _more(counts: Counts, outcome: Outcome) -> Counts:
    """More of what is busiest."""
    busy = {name: outcome.used[name[:-1]] for name in ("gateways", "encoders", "writers")}
    name = max(busy, key=busy.__getitem__)
    return msgspec.structs.replace(counts, **{name: math.ceil(getattr(counts, name) * GROWTH)})


def _shares(mix: Mapping[str, float]) -> dict[str, float]:
    whole = math.fsum(mix.values())
    return {kind: part / whole for kind, part in mix.items()}


def _whole(replicas: float) -> int:
    return max(1, math.ceil(replicas))


def _slice(count: int, part: float) -> int:
    return max(1, math.floor(count * part + 1e-9))


def _even(spread: tuple[float, ...]) -> tuple[float, ...]:
    """With mean 1."""
    mean = math.fsum(spread) / len(spread)
    return tuple(factor / mean for factor in spread)
