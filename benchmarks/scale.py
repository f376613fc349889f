"""What many turns of many users cost: to write, to hold, to search, to compact, to erase, and to start again from.

Starts a service of its own (local engine, the hash encoder, so that vectors cost next to nothing, no summaries), kills
it, starts it again, and takes every time inside the service from its `timings_ms`. Each phase is written to
`scale.json` in the data folder as soon as it is done.
"""

from __future__ import annotations

import json
import os
import random
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from pathlib import Path

from tqdm import tqdm

from benchmarks.programs import Ports, Service
from benchmarks.scale_load import Beside, Door, Words, batches, sentinel, write
from serve_app.client.http import Json
from serve_app.errors import MemstrataError

CONFIG = '[encoder]\nmodel = "hash-384"\n[memory.summary]\nevery_turns = 1000000\n'
PHASES = ("ingest", "restart", "memory", "compact", "erase")
ENGINE = "local"
RESULT = "scale.json"

INDEXED_S, ERASED_S, POLL_S = 1_800.0, 600.0, 0.05
SEARCHED_USERS, SEARCHES_A_USER = 100, 10
TOUCHED_USERS = 200
COMPARED_USERS = 50
QUIET_S = 5.0
"""How long appends and searches are watched alone, before they are watched beside a compaction."""

BESIDE_PAUSE_S = 0.01


class ScaleFailed(MemstrataError):
    code = "scale_failed"


@dataclass(frozen=True)
class Options:
    """`first` turns are written and searched before the others. `data` None is a folder that goes afterwards.

    `bars`: whether figures are held to bars. Those of a tiny store say nothing.
    """

    users: int = 5_000
    turns: int = 1_000_000
    first: int = 100_000
    clients: int = 4
    phases: tuple[str, ...] = PHASES
    data: Path | None = None
    port: int = 0
    bars: bool = True

    @property
    def turns_a_user(self) -> int:
        return self.turns // self.users


@dataclass
class Run:
    """A service on its store, and what was measured so far."""

    options: Options
    folder: Path
    port: int
    programs: ExitStack
    words: Words = field(default_factory=Words)
    told: Json = field(default_factory=dict)
    touched: set[int] = field(default_factory=set)

    def start(self) -> None:
        config = self.folder / "scale.toml"
        config.write_text(CONFIG, encoding="utf-8")
        service = Service(ENGINE, self.folder, self.port, config)
        self.service = self.programs.enter_context(service)
        self.door = self.programs.enter_context(Door(service.target))

    def keep(self, phase: str, found: Json) -> None:
        self.told[phase] = found
        (self.folder / RESULT).write_text(json.dumps(self.told, indent=1), encoding="utf-8")


def measure(options: Options) -> Json:
    """Every phase that was asked for, in order. Raises MemstrataError."""
    if options.turns % options.users or options.first % options.turns_a_user or options.first > options.turns:
        raise ScaleFailed("every user has as many turns, and `first` is those of whole users")
    with ExitStack() as programs:
        if options.data is None:
            folder = Path(programs.enter_context(tempfile.TemporaryDirectory(prefix="mst-scale-")))
        else:
            folder = options.data
            folder.mkdir(parents=True, exist_ok=True)
        run = Run(options, folder, Ports(options.port).take(), programs)
        run.told = _told_before(folder) | {"turns": options.turns, "users": options.users}
        run.told |= {"machine": {"cores": os.cpu_count()}, "bars": options.bars}
        run.start()
        for phase in options.phases:
            run.keep(phase, _PHASES[phase](run))
    return run.told


def _told_before(folder: Path) -> Json:
    """What earlier phases on the same store found."""
    kept = folder / RESULT
    told: Json = json.loads(kept.read_text(encoding="utf-8")) if kept.exists() else {}
    return told


# ---- ingest


def _ingest(run: Run) -> Json:
    options = run.options
    users = list(range(options.users))
    first = options.first // options.turns_a_user
    told = {"first": _written(run, users[:first]), "searched_first": _searched(run, users[:first])}
    if users[first:]:
        told |= {"rest": _written(run, users[first:]), "searched": _searched(run, users[:first])}
        first_ms, after_ms = (told[part]["hot_stages_ms"]["search"] for part in ("searched_first", "searched"))
        told["search_growth"] = round(after_ms / first_ms, 3)
    for shard in range(len(run.door.stats())):
        run.door.maintain("fold", shard)
    size = sum(one.stat().st_size for one in _files(run.service.data))
    return told | {"disk_bytes_a_turn": round(size / options.turns), "shards": run.door.stats()}


def _written(run: Run, users: Sequence[int]) -> Json:
    """Turns a second, until durable and until their vectors are in."""
    wanted = list(batches(users, run.options.turns_a_user))
    turns = sum(batch.turns for batch in wanted)
    before, started = run.service.written_bytes(), time.perf_counter()
    with tqdm(total=turns, unit=" turns", disable=None) as bar:
        write(run.service.target, run.words, wanted, run.options.clients, bar.update)
    durable = time.perf_counter() - started
    _until(lambda: not any(shard["pending_vectors"] for shard in run.door.stats()), INDEXED_S)
    seconds = time.perf_counter() - started
    written = run.service.written_bytes() - before
    rates = {"durable_a_second": round(turns / durable), "indexed_a_second": round(turns / seconds)}
    return {"turns": turns, "seconds": round(seconds, 1), **rates, "written_bytes_a_turn": round(written / turns)}


def _searched(run: Run, users: Sequence[int]) -> Json:
    """Searches of users who are in memory, by turns, so that none is asked twice in a row."""
    source = random.Random("hot")
    chosen = source.sample(list(users), min(SEARCHED_USERS, len(users)))
    for user in chosen:
        run.door.search(user, run.words.query(source))
    computed = run.service.cpu_seconds()
    asked = [run.door.search(user, run.words.query(source)) for _ in range(SEARCHES_A_USER) for user in chosen]
    cpu_ms = 1e3 * (run.service.cpu_seconds() - computed) / len(asked)
    hot_ms = _spread(one["timings_ms"]["total"] for one in asked)
    return {"hot_ms": hot_ms, "hot_stages_ms": _stages(asked), "hot_cpu_ms": round(cpu_ms, 2)}


# ---- start after kill -9, first touches


def _restart(run: Run) -> Json:
    run.service.kill()
    run.start()
    source = random.Random("warm")
    users = source.sample(range(run.options.users), min(2 * TOUCHED_USERS, run.options.users // 2))
    run.touched |= set(users)
    started = time.perf_counter()
    run.door.search(users[0], run.words.query(source))
    told: Json = {"ready_s": round(run.service.start_s, 2), "first_answer_s": round(time.perf_counter() - started, 3)}
    told["ready_bytes"] = run.service.idle_bytes
    cached, cold = users[1 : len(users) // 2], users[len(users) // 2 :]
    computed = run.service.cpu_seconds()
    told["warm_cached_ms"], told["warm_stages_ms"] = _touched(run, source, cached)
    told["warm_cpu_ms"] = round(1e3 * (run.service.cpu_seconds() - computed) / len(cached), 2)
    for path in _files(run.service.data):
        _out_of_page_cache(path)
    told["warm_disk_ms"], _ = _touched(run, source, cold)
    return told


def _touched(run: Run, source: random.Random, users: Sequence[int]) -> tuple[Json, Json]:
    """Searches of users whose turns are not in memory."""
    asked = [run.door.search(user, run.words.query(source)) for user in users]
    return _spread(one["timings_ms"]["total"] for one in asked), _stages(asked)


# ---- memory


def _memory(run: Run) -> Json:
    """What the process grows by while users come into memory, by the turn."""
    before = _resident(run), run.service.memory_bytes() or 0
    source = random.Random("memory")
    away = sorted(set(range(run.options.users)) - run.touched)
    for user in source.sample(away, min(len(away), run.options.first // run.options.turns_a_user)):
        run.door.search(user, run.words.query(source))
    after = _resident(run), run.service.memory_bytes() or 0
    turns = after[0] - before[0]
    if not turns:
        raise ScaleFailed("nobody came into memory: ask for a restart before")
    return {"turns_loaded": turns, "bytes_a_turn": round((after[1] - before[1]) / turns), "process_bytes": after[1]}


def _resident(run: Run) -> int:
    return sum(int(shard["turns_in_memory"]) for shard in run.door.stats())


# ---- compaction


def _compact(run: Run) -> Json:
    """Every shard rewritten, while a client appends and another searches; and both without it."""
    users = random.Random("beside").sample(range(run.options.users), min(SEARCHED_USERS, run.options.users))
    for user in users:
        run.door.search(user, sentinel(user))
    with Beside(run.service.target, run.words, users, BESIDE_PAUSE_S) as alone:
        time.sleep(QUIET_S)
    before, started = run.service.written_bytes(), time.perf_counter()
    with Beside(run.service.target, run.words, users, BESIDE_PAUSE_S) as beside:
        for shard in range(len(run.door.stats())):
            run.door.maintain("compact", shard)
        seconds = time.perf_counter() - started
    told: Json = {"seconds": round(seconds, 2), "written_bytes": run.service.written_bytes() - before}
    for kind in ("append", "search"):
        told[f"{kind}_alone_ms"], told[f"{kind}_beside_ms"] = _spread(alone.taken[kind]), _spread(beside.taken[kind])
    size = sum(one.stat().st_size for one in _files(run.service.data))
    return told | {"disk_bytes_a_turn": round(size / run.options.turns)}


# ---- erasure


def _erase(run: Run) -> Json:
    """One user; every file is looked through, before and after, for the word that only this user's turns hold."""
    user = next(one for one in range(run.options.users // 2, run.options.users) if run.door.turns(one))
    word = sentinel(user)
    compared = random.Random("others").sample(range(run.options.users), min(COMPARED_USERS, run.options.users))
    others = [one for one in compared if one != user]
    found_before = [_results(run, one) for one in others]
    held_before, turns = _holding(run.service.data, word), run.door.turns(user)
    written, started = run.service.written_bytes(), time.perf_counter()
    erasure_id = run.door.erase(user)
    answered = time.perf_counter() - started
    _until(lambda: run.door.erasure(erasure_id)["state"] == "done", ERASED_S)
    seconds = time.perf_counter() - started
    counts = run.door.erasure(erasure_id)["counts"]
    return {
        "seconds": round(seconds, 2),
        "answered_s": round(answered, 3),
        "written_bytes": run.service.written_bytes() - written,
        "counts": counts,
        "receipt_right": counts["turns"] == counts["vectors"] == turns,
        "files_before": held_before,
        "files_after": _holding(run.service.data, word),
        "found_after": len(run.door.search(user, word)["results"]),
        "others_unchanged": found_before == [_results(run, one) for one in others],
    }


def _results(run: Run, user: int) -> list[tuple[str, float]]:
    source = random.Random(f"results-{user}")
    answer = run.door.search(user, run.words.query(source))
    return [(one["id"], one["score"]) for one in answer["results"]]


def _holding(folder: Path, word: str) -> int:
    """Files that hold the word's bytes."""
    return sum(word.encode() in path.read_bytes() for path in _files(folder))


# ---- shared


def _files(folder: Path) -> Iterator[Path]:
    return (path for path in folder.rglob("*") if path.is_file())


def _out_of_page_cache(path: Path) -> None:
    """The next read comes from the disk; a hint that Linux follows for pages that are written back."""
    with path.open("rb") as file:
        os.fsync(file.fileno())
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def _until(reached: Callable[[], bool], limit_s: float) -> None:
    end = time.monotonic() + limit_s
    while not reached():
        if time.monotonic() > end:
            raise ScaleFailed(f"not reached within {limit_s:.0f} s")
        time.sleep(POLL_S)


def _spread(taken: Iterable[float]) -> Json:
    ordered = sorted(taken)
    if not ordered:
        return {"requests": 0}
    shares = {"p50": 0.5, "p95": 0.95, "p99": 0.99}
    at = {name: round(ordered[min(len(ordered) - 1, int(share * len(ordered)))], 2) for name, share in shares.items()}
    return {"requests": len(ordered), **at, "max": round(ordered[-1], 2)}


def _stages(asked: Sequence[Json]) -> Json:
    """The median of each stage."""
    names = asked[0]["timings_ms"] if asked else ()
    return {name: _spread(one["timings_ms"].get(name, 0.0) for one in asked)["p50"] for name in names}


_PHASES: dict[str, Callable[[Run], Json]] = {
    "ingest": _ingest,
    "restart": _restart,
    "memory": _memory,
    "compact": _compact,
    "erase": _erase,
}

QUICK = Options(users=20, turns=1_000, first=500, bars=False)
"""Whether it runs, not how much it costs."""


def sized(options: Options, **given: object) -> Options:
    return replace(options, **given)  # type: ignore[arg-type]
