"""The hot path of append, search and context on one node, against what the machine could give and what others give.

Starts each engine on a store of its own, beside it the ceiling (and peers, where an environment has them), writes a
data set and measures row by row. Everything that was started is ended, however this ends; from a service that was
running before, what was written is erased.
"""

from __future__ import annotations

import os
import shutil
import signal
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from tqdm import tqdm

from benchmarks import report
from benchmarks.load import Load, Target
from benchmarks.programs import Ports, Service
from benchmarks.report import Figure, Row
from benchmarks.rivals import CPUINFO, Rivals, start_ceilings, start_infinity, start_peers
from benchmarks.suite import FULL, QUICK, Sizes, Suite
from benchmarks.workload import Corpus, read_corpus
from serve_app.client.http import Json
from serve_app.errors import InvalidRequest, MemstrataError

__all__ = ["ENGINES", "FULL", "QUICK", "Options", "measure"]

GOLDEN = Path(__file__).parent / "data" / "golden"
SHIPPED = "the shipped data set (benchmarks/data/golden)"
ENGINES = ("local", "ray")
GB = 1e9


@dataclass(frozen=True)
class Options:
    """`url` names a service that runs already; else each engine is started. `port` 0 takes any that are free."""

    engines: tuple[str, ...] = ENGINES
    data: Path = GOLDEN
    url: str = ""
    key: str = ""
    peers: str = ""
    infinity: str = ""
    port: int = 0
    sizes: Sizes = FULL

    @property
    def rows(self) -> tuple[Row, ...]:
        return report.rows_of(peers=bool(self.peers), infinity=bool(self.infinity))


@dataclass(frozen=True)
class Place:
    """Where the run keeps its files and finds its ports."""

    folder: Path
    ports: Ports


def measure(options: Options) -> Json:
    """Every row for every engine; see report.py for what is in it. Raises MemstrataError where nothing could start."""
    started = time.perf_counter()
    _check_programs(options)
    corpus = read_corpus(options.data, options.sizes.corpus_turns)
    left_behind: list[str] = []
    with _ended_by_signals(), tempfile.TemporaryDirectory(prefix="mst-bench-") as name, ExitStack() as programs:
        place = Place(Path(name), Ports(options.port))
        load = Load(place.folder)
        if options.url:
            Suite(Target(options.url, options.key), corpus, load, Rivals({}, {}, {}), options.sizes).check()
        steps = 1 + (1 + len(Suite.STEPS)) * len(options.engines)
        with tqdm(
            total=steps, unit="step", disable=None, bar_format="{desc:<36}{bar}{n_fmt}/{total_fmt} {elapsed}"
        ) as bar:
            tell = _teller(bar)
            tell("what it is held against")
            rivals = _start_rivals(options, corpus, place, programs)
            engines = {
                engine: _of_engine(engine, options, corpus, load, rivals, place, tell, left_behind)
                for engine in options.engines
            }
            bar.update(steps - bar.n)
    data = SHIPPED if options.data.resolve() == GOLDEN.resolve() else corpus.name
    told = {"data": data, "turns": len(corpus.entries), "users": len(corpus.users), "load": load.tool}
    told |= {"seconds": round(time.perf_counter() - started, 1), "machine": _machine()}
    told |= {"judged": options.sizes.judged, "left_behind": left_behind}
    return told | {"engines": engines, "ceilings": rivals.told()}


def _check_programs(options: Options) -> None:
    """Raises InvalidRequest."""
    for option, program in (("--peers", options.peers), ("--infinity", options.infinity)):
        if program and shutil.which(program) is None:
            raise InvalidRequest(f"{option} {program}: no program of this name")


def _of_engine(
    engine: str,
    options: Options,
    corpus: Corpus,
    load: Load,
    rivals: Rivals,
    place: Place,
    tell: Callable[[str], None],
    left_behind: list[str],
) -> Json:
    tell(f"{engine}: start")
    with _service(options, engine, place) as (target, figures):
        suite = Suite(target, corpus, load, rivals, options.sizes)
        try:
            figures |= suite.measure(lambda step: tell(f"{engine}: {step}"))
        finally:
            if options.url:
                left_behind += _erase(suite)
    return {
        "rows": report.shown(engine, figures, options.rows, judged=options.sizes.judged),
        "step_seconds": suite.seconds,
    }


def _erase(suite: Suite) -> list[str]:
    """What could not be erased. A finished measurement stands all the same."""
    try:
        suite.erase()
    except MemstrataError as error:
        return [f"not all was erased: users {suite.users} are left ({error})"]
    return []


@contextmanager
def _service(options: Options, engine: str, place: Place) -> Iterator[tuple[Target, dict[Row, Figure]]]:
    """A service to measure, and what its start has told already."""
    if options.url:
        yield Target(options.url, options.key), {}
        return
    with Service(engine, place.folder, place.ports.take()) as service:
        memory = service.idle_bytes
        held = Figure(memory / GB) if memory else Figure(missing="this system does not tell it")
        yield service.target, {report.MEMORY: held, report.START: Figure(service.start_s)}


def _start_rivals(options: Options, corpus: Corpus, place: Place, programs: ExitStack) -> Rivals:
    where = (place.folder, place.ports)
    return Rivals(
        start_ceilings(corpus, *where, sys.executable, programs),
        start_peers(corpus, *where, options.peers, programs) if options.peers else {},
        start_infinity(options.infinity, *where, programs) if options.infinity else {},
    )


def _teller(bar: tqdm[None]) -> Callable[[str], None]:
    """Says what begins, and that what was before is done; where no bar is shown, in a line."""
    said: list[str] = []

    def tell(what: str) -> None:
        bar.update(1 if said else 0)
        said.append(what)
        bar.set_description_str(what)
        if bar.disable:
            print(f"{len(said)}/{bar.total} {what}", file=sys.stderr, flush=True)

    return tell


@contextmanager
def _ended_by_signals() -> Iterator[None]:
    """SIGTERM unwinds as Ctrl-C does, so that everything that was started ends."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def unwind(*_: object) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGTERM, unwind)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def _machine() -> Json:
    lines = CPUINFO.read_text().splitlines() if CPUINFO.exists() else []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return {"cores": os.cpu_count(), "processor": names[0] if names else "processor unknown"}
