"""One user with very many turns: what appends and searches cost as they grow, and how much of the best is found.

Starts a service of its own (local engine, the hash encoder, no summaries), writes turns made of sentences of the
shipped golden conversations, and asks the shipped golden queries. Then it starts a second service on the same store
that keeps every turn of the user in memory, and so answers exactly, and asks it the same. Recall is the share of its
ten best that the first one gave, too. Each phase is written to `large_user.json` in the data folder once it is done.
"""

from __future__ import annotations

import json
import os
import random
import re
import statistics
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path

from tqdm import tqdm

from benchmarks.programs import Ports, Service
from benchmarks.scale_load import Door
from serve_app.client.data_sets import read_rows
from serve_app.client.http import Json
from serve_app.errors import MemstrataError

GOLDEN = Path(__file__).parent / "data" / "golden"
ENGINE = "local"
RESULT = "large_user.json"
PHASES = ("fill", "search", "restart", "exact")
ASKED: Mapping[str, Json] = {
    "hybrid": {"mode": "hybrid", "rerank": False},
    "dense": {"mode": "dense", "rerank": False},
    "lexical": {"mode": "lexical", "rerank": False},
    "reranked": {},
}
"""What is asked for: the first stage alone in each mode, and what a search does unless told otherwise."""
USER = 0
SEED = 5_081
MARKS = (1_000, 10_000, 50_000, 100_000, 200_000)
"""Turns at which appends and searches are timed."""

CONFIG = '[store]\nshards = 1\n[encoder]\nmodel = "hash-384"\n[memory.summary]\nevery_turns = 100000000\n'
EXACT = "[memory]\nowner_turns_resident = 10000000\nturns_resident = 100000000\n"
SESSION_TURNS, BATCH_TURNS = 40, 1_000
APPENDS, QUERIES = 300, 150
DEPTH = 10
READY_S, POLL_S = 600.0, 0.1
RESIDENT_MOST = 4_096
"""Newest turns that may be in memory alone."""

SENTENCE = re.compile(r"(?<=[.!?。！？])\s*")
CODE_SHARE = 0.05
"""Of turns that name an order, as nobody else does."""


class LargeUserFailed(MemstrataError):
    code = "large_user_failed"


@dataclass(frozen=True)
class Options:
    """`data` None is a folder that goes afterwards."""

    turns: int = MARKS[-1]
    queries: int = QUERIES
    appends: int = APPENDS
    phases: tuple[str, ...] = PHASES
    data: Path | None = None
    port: int = 0


QUICK = Options(turns=1_500, queries=20, appends=20)
"""Whether it runs, not how much it costs."""


class Texts:
    """Turns of one or two sentences of the golden conversations of one language each, from a seed."""

    def __init__(self) -> None:
        rows = list(read_rows(GOLDEN / "conversations.jsonl"))
        self._sentences = {
            lang: [one for row in rows if row["lang"] == lang for one in SENTENCE.split(row["text"]) if one]
            for lang in ("en", "zh")
        }
        self._queries = [row["query"] for row in read_rows(GOLDEN / "queries.jsonl")]

    def turn(self, number: int) -> str:
        source = random.Random(SEED * 1_000_003 + number)
        known = self._sentences["zh" if source.random() < 0.2 else "en"]
        told = " ".join(source.choices(known, k=source.choice((1, 2, 2, 3))))
        return f"{told} {code(number)}" if source.random() < CODE_SHARE else told

    def queries(self, count: int) -> list[str]:
        return random.Random(SEED).sample(self._queries, min(count, len(self._queries)))


def code(number: int) -> str:
    return f"ORD-{number:06d}"


@dataclass
class Run:
    options: Options
    folder: Path
    port: int
    told: Json
    texts: Texts = field(default_factory=Texts)

    def service(self, programs: ExitStack, config: str) -> tuple[Service, Door]:
        path = self.folder / "large_user.toml"
        path.write_text(config, encoding="utf-8")
        service = programs.enter_context(Service(ENGINE, self.folder, self.port, path))
        return service, programs.enter_context(Door(service.target))

    def keep(self, phase: str, found: Json) -> None:
        self.told[phase] = found
        (self.folder / RESULT).write_text(json.dumps(self.told, indent=1, ensure_ascii=False), encoding="utf-8")


def measure(options: Options) -> Json:
    """Every phase that was asked for, in order. Raises MemstrataError."""
    with ExitStack() as stack:
        folder = options.data or Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="mst-large-")))
        folder.mkdir(parents=True, exist_ok=True)
        kept = folder / RESULT
        told: Json = json.loads(kept.read_text(encoding="utf-8")) if kept.exists() else {}
        run = Run(options, folder, Ports(options.port).take(), told)
        run.told |= {"turns": options.turns, "machine": {"cores": os.cpu_count()}}
        for phase in options.phases:
            with ExitStack() as programs:
                run.keep(phase, _PHASES[phase](run, programs))
    return run.told


def table(told: Json) -> str:
    """A line a figure."""
    lines = [f"{told['turns']:,} turns of one user, {told['machine']['cores']} cores; milliseconds"]
    for mark, at in told.get("fill", {}).items():
        append, search = at["append_ms"], at["search_ms"]
        lines.append(
            f"at {int(mark):>9,} turns   append p50 {append['p50']:>7.2f} p95 {append['p95']:>7.2f}   "
            f"fold {at['fold_ms']:>6}   search p50 {search['p50']:>7.2f} p95 {search['p95']:>7.2f}"
        )
    for phase in ("search", "exact"):
        for kind in ASKED if phase in told else ():
            total = told[phase][kind]["stages_ms"]["total"]
            found = told[phase][kind].get("recall")
            recall = "" if found is None else f"   recall@{DEPTH} of the other {found:.4f}"
            lines.append(f"{phase:<8}{kind:<10} p50 {total['p50']:>7.2f} p95 {total['p95']:>7.2f}{recall}")
    if "restart" in told:
        first = told["restart"]
        lines.append(f"first answer {first['first_answer_s']:.2f} s, archive {first['archived_s']:.1f} s")
    return "\n".join(lines)


# ---- phases


def _fill(run: Run, programs: ExitStack) -> Json:
    service, door = run.service(programs, CONFIG)
    told: Json = {}
    written = door.turns(USER)
    marks = sorted({*(mark for mark in MARKS if mark < run.options.turns), run.options.turns})
    with tqdm(total=run.options.turns, initial=written, unit=" turns", disable=None) as bar:
        for mark in marks:
            started, before = time.perf_counter(), written
            while written < mark:
                size = min(BATCH_TURNS, mark - written)
                _append(run, door, written, size)
                written += size
                bar.update(size)
            _settled(door)
            rate = round((mark - before) / (time.perf_counter() - started))
            told[str(mark)] = {"turns_a_second": rate, **_at_mark(run, service, door, mark)}
    return told


def _at_mark(run: Run, service: Service, door: Door, mark: int) -> Json:
    """Appends of a turn each, a fold of them, and searches, each after an append."""
    taken = []
    for one in range(run.options.appends):
        started = time.perf_counter()
        door.append(USER, f"at-{mark}", [run.texts.turn(mark * 1_000 + one)])
        taken.append(1e3 * (time.perf_counter() - started))
    _settled(door)
    started = time.perf_counter()
    door.maintain("fold", 0)
    folded_ms = 1e3 * (time.perf_counter() - started)
    if mark > RESIDENT_MOST:
        _touch(run, door)
    asked = _asked(run, door, "hybrid")
    return {
        "append_ms": _spread(taken),
        "fold_ms": round(folded_ms),
        "search_ms": _spread([one["timings_ms"]["total"] for one in asked]),
        "bytes": service.memory_bytes(),
    }


def _search(run: Run, programs: ExitStack) -> Json:
    service, door = run.service(programs, CONFIG)
    _touch(run, door)
    found: Json = {}
    for kind in ASKED:
        asked = _asked(run, door, kind)
        found[kind] = _told(asked) | {"ids": [_ids(one) for one in asked]}
    return found | {"bytes": service.memory_bytes()}


def _restart(run: Run, programs: ExitStack) -> Json:
    service, door = run.service(programs, CONFIG)
    idle = service.memory_bytes()
    first = _touch(run, door)
    return first | {"idle_bytes": idle, "touched_bytes": service.memory_bytes()}


def _exact(run: Run, programs: ExitStack) -> Json:
    """The answers of a service that holds everything, and the share of them that the phase `search` found."""
    service, door = run.service(programs, CONFIG + EXACT)
    _touch(run, door, archived=False)
    found: Json = {}
    for kind in ASKED:
        asked = _asked(run, door, kind)
        found[kind] = _told(asked)
        if kind in run.told.get("search", {}):
            given = run.told["search"][kind]["ids"]
            shares = [_share(ids, _ids(one)) for ids, one in zip(given, asked, strict=True)]
            found[kind] |= {"recall": round(statistics.fmean(shares), 4), "worst": round(min(shares), 2)}
    return found | {"bytes": service.memory_bytes()}


# ---- shared


def _append(run: Run, door: Door, first: int, size: int) -> None:
    """Turns by their numbers, in sessions of so many each."""
    for start in range(first, first + size, SESSION_TURNS):
        those = range(start, min(start + SESSION_TURNS, first + size))
        door.append(USER, f"s{start // SESSION_TURNS}", [run.texts.turn(one) for one in those])


def _settled(door: Door) -> None:
    end = time.monotonic() + READY_S
    while any(shard["pending_vectors"] for shard in door.stats()):
        if time.monotonic() > end:
            raise LargeUserFailed(f"vectors are not there within {READY_S:.0f} s")
        time.sleep(POLL_S)


def _touch(run: Run, door: Door, *, archived: bool = True) -> Json:
    """The first search, which loads the user, and how long it took; then until the archive is there."""
    started = time.perf_counter()
    door.search(USER, run.texts.queries(1)[0])
    first = time.perf_counter() - started
    most = door.turns(USER) - RESIDENT_MOST
    while archived and sum(shard["turns_archived"] for shard in door.stats()) < most:
        if time.perf_counter() - started > READY_S:
            raise LargeUserFailed(f"the archive is not there within {READY_S:.0f} s")
        time.sleep(POLL_S)
    return {"first_answer_s": round(first, 3), "archived_s": round(time.perf_counter() - started, 3)}


def _asked(run: Run, door: Door, kind: str) -> list[Json]:
    queries = run.texts.queries(run.options.queries)
    return [door.search(USER, query, **ASKED[kind]) for query in queries]


def _ids(answer: Json) -> list[int]:
    return [one["seq"] for one in answer["results"][:DEPTH]]


def _share(given: Sequence[int], exact: Sequence[int]) -> float:
    return len({*given} & {*exact}) / len(exact) if exact else 1.0


def _told(asked: Sequence[Json]) -> Json:
    stages = asked[0]["timings_ms"]
    spreads = {name: _spread([one["timings_ms"].get(name, 0.0) for one in asked]) for name in stages}
    return {"stages_ms": spreads}


def _spread(taken: Sequence[float]) -> Json:
    ordered = sorted(taken)
    return {name: round(ordered[min(len(ordered) - 1, int(at * len(ordered)))], 2) for name, at in _SHARES.items()}


_SHARES = {"p50": 0.5, "p95": 0.95, "max": 1.0}
_PHASES: dict[str, Callable[[Run, ExitStack], Json]] = {
    "fill": _fill,
    "search": _search,
    "restart": _restart,
    "exact": _exact,
}
