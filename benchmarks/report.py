"""The rows of `memstrata bench core`: what each says, which bar it is held to, and how it is shown.

A row is a figure of the service, what stands against it in the same run, and their ratio: the median over rounds in
which the two took turns. Ratios travel between machines, absolute figures do not, so bars are set on ratios wherever
there is something to compare with.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass

from benchmarks.load import Slice, of_the_machine
from serve_app.client.http import Json

NOT_MEASURED, NO_ANSWERS = "not measured", "no answers"
NAME_WIDTH, CELL_WIDTH, FORMAT_WIDTH, GAP = 49, 9, 18, " "
LEAST, MOST = "≥", "≤"


@dataclass(frozen=True, eq=False)
class Row:
    """`bars` by engine, on the ratio, or on the measured figure where nothing stands against it."""

    key: str
    unit: str
    against: str
    bars: Mapping[str, float]
    bound: str = LEAST

    def met(self, engine: str, figure: Figure) -> bool | None:
        """None where there is no bar or no figure."""
        bar, value = self.bars.get(engine), figure.ratio if self.against else figure.measured
        if bar is None or value is None:
            return None
        return value >= bar if self.bound == LEAST else value <= bar


@dataclass(frozen=True)
class Figure:
    """One cell. `void` says why it is no measurement, `missing` why there is none, `note` what to know of it."""

    measured: float | None = None
    against: float | None = None
    ratio: float | None = None
    void: tuple[str, ...] = ()
    missing: str = ""
    note: str = ""
    detail: Mapping[str, float | None] | None = None


SEARCH_1 = Row("text search, 1 client", "/s", "ceiling", {"local": 0.85, "ray": 0.75})
SEARCH_16 = Row("text search, 16 clients", "/s", "ceiling", {"local": 0.75, "ray": 0.6})
INGEST = Row("ingest until indexed", "turns/s", "torch, by length", {"local": 0.8, "ray": 0.7})
EMBED_SHORT = Row("/v1/embeddings, short, 64 clients", "/s", "torch", {"local": 0.8, "ray": 0.7})
LEXICAL = Row("lexical search, 16 clients", "/s", "no-op", {"local": 0.25, "ray": 0.45})
CACHED = Row("search, cached vector, 16 clients", "/s", "no-op", {"local": 0.25, "ray": 0.45})
CONTEXT = Row("context, cached vector, 16 clients", "/s", "no-op", {"local": 0.18, "ray": 0.35})
APPEND = Row("append, durable, 16 clients", "/s", "no-op", {"local": 0.12, "ray": 0.25})
LENGTH = Row("append, long session, p50", "ms", "short session", {"local": 1.3, "ray": 1.3}, MOST)
BATCHES = Row("batches of 50, durable, found by words", "turns/s", "", {"local": 5_000, "ray": 3_000})
OPEN_SEARCH = Row("open loop at 70 %, text search, p99", "ms", "p50", {"local": 4, "ray": 4}, MOST)
OPEN_MIX = Row("open loop at 70 %, mix, p99", "ms", "p50", {"local": 4, "ray": 4}, MOST)
MEMORY = Row("idle memory (PSS)", "GB", "", {"local": 0.6, "ray": 1.6}, MOST)
START = Row("start to ready", "s", "", {"local": 8, "ray": 25}, MOST)
CHROMA = Row("text search, 16 clients", "/s", "Chroma", {"local": 3, "ray": 3})
LANGGRAPH = Row("text search, 16 clients", "/s", "LangGraph store", {"local": 6, "ray": 5})
MEM0 = Row("text search, 16 clients", "/s", "mem0", {"local": 25, "ray": 20})
ADD_1 = Row("append, durable, 1 client", "/s", "best peer", {"local": 8, "ray": 7})
ADD_16 = Row("append, durable, 16 clients", "/s", "best peer", {"local": 20, "ray": 15})
EMBED_TURNS = Row("/v1/embeddings, turns, 16 clients", "/s", "infinity-emb", {"local": 1.2, "ray": 1.2})

SEARCH_OF_PEERS = {"chroma": CHROMA, "langgraph": LANGGRAPH, "mem0": MEM0}

OF_THE_SERVICE = (
    *(SEARCH_1, SEARCH_16, EMBED_SHORT, INGEST),
    *(LEXICAL, CACHED, CONTEXT, APPEND),
    *(LENGTH, BATCHES, OPEN_SEARCH, OPEN_MIX, MEMORY, START),
)
OF_PEERS = (CHROMA, LANGGRAPH, MEM0, ADD_1, ADD_16)
OF_INFINITY = (EMBED_TURNS,)


def rows_of(*, peers: bool, infinity: bool) -> tuple[Row, ...]:
    """The rows of a run: those of the service, and those of what it is compared with beside the ceiling."""
    return (*OF_THE_SERVICE, *(OF_PEERS if peers else ()), *(OF_INFINITY if infinity else ()))


def compared(measured: Sequence[Slice], rivals: Sequence[Sequence[Slice]], *, upper_bound: bool = False) -> Figure:
    """Against the best rival of each round. A rival that was asked in fewer rounds was far from the best.

    Where the load generator held a rival back the ratio is void, or stands as an `upper_bound`, and says so.
    """
    rounds = [[rival[at] for rival in rivals if at < len(rival)] for at in range(len(measured))]
    against = [one for ran in rounds for one in ran]
    void = {fault for one in measured for fault in one.all_faults}
    void |= {fault for one in against for fault in (one.faults if upper_bound else one.all_faults)}
    own = statistics.median(one.rate for one in measured)
    best = [max(one.rate for one in ran) for ran in rounds if ran]
    if not min([own, *best]):
        return Figure(own, void=(*sorted(void), NO_ANSWERS))
    if not rivals:
        return Figure(own, void=tuple(sorted(void)), missing=NOT_MEASURED)
    ratio = statistics.median(one.rate / rate for one, rate in zip(measured, best, strict=True))
    held_back = upper_bound and any(one.bound_by_generator for one in against)
    note = "ratio is an upper bound: the load generator held back the no-op" if held_back else ""
    return Figure(own, statistics.median(best), ratio, tuple(sorted(void)), note=note)


def key_of(row: Row) -> str:
    return f"{row.key} / {row.against}" if row.against else row.key


def faults(measured: Json) -> list[str]:
    """Rows that are void, of all engines."""
    return [f"{engine}: {key}: {', '.join(cell['void'])}" for engine, key, cell in _all(measured) if cell["void"]]


def failures(measured: Json) -> list[str]:
    """Rows that are void for another reason than a busy machine, of all engines."""
    return [
        f"{engine}: {key}: {fault}"
        for engine, key, cell in _all(measured)
        for fault in cell["void"]
        if not of_the_machine(fault)
    ]


def missed(measured: Json) -> list[str]:
    """Rows whose bar is missed, of all engines."""
    return [f"{engine}: {key}" for engine, key, cell in _all(measured) if cell["met"] is False]


def _all(measured: Json) -> Iterable[tuple[str, str, Json]]:
    for engine, told in measured["engines"].items():
        for key, cell in told["rows"].items():
            yield engine, key, cell


def shown(engine: str, figures: Mapping[Row, Figure], rows: Sequence[Row], *, judged: bool = True) -> Json:
    """The rows of one engine, as JSON; without bars where the sizes were too small to judge by."""
    cells = {}
    for row in rows:
        figure = figures.get(row, Figure(missing=NOT_MEASURED))
        cell = {name: rounded(value) for name, value in asdict(figure).items()}
        bar, met = (row.bars.get(engine), row.met(engine, figure)) if judged else (None, None)
        cells[key_of(row)] = cell | {"unit": row.unit, "bar": bar, "bound": row.bound, "met": met}
    return cells


def table(measured: Json) -> str:
    """The engines one below the other."""
    lines = [_head(measured)]
    words = ("measured", "against", "ratio", *(["bar"] if measured["judged"] else []))
    columns = GAP + "".join(f"{word:>{CELL_WIDTH}}" for word in words)
    for engine, told in measured["engines"].items():
        lines += ["", f"{engine:<{NAME_WIDTH + CELL_WIDTH}}{columns}"]
        for key, cell in told["rows"].items():
            lines.append(f"{key:<{NAME_WIDTH}}{cell['unit']:<{CELL_WIDTH}}{_cells(cell)}")
    lines += ["", *_ceilings(measured["ceilings"]), *_notes(measured)]
    return "\n".join(line.rstrip() for line in lines)


def _head(measured: Json) -> str:
    machine = measured["machine"]
    return (
        f"{machine['cores']} cores, {machine['processor']}; load by {measured['load']}; "
        f"{measured['seconds']:.0f} s in all\n"
        f"{measured['turns']} turns of {measured['users']} users: {measured['data']}"
    )


def _cells(cell: Json) -> str:
    values = "".join(f"{_number(cell[name]):>{CELL_WIDTH}}" for name in ("measured", "against", "ratio"))
    bar = "" if cell["bar"] is None else f"{cell['bound']}{_number(cell['bar'], short=True)}"
    mark = "!" if cell["void"] else {True: " ", False: "✗", None: " "}[cell["met"]]
    return f"{GAP}{values}{bar:>{CELL_WIDTH}} {mark}"


def _number(value: float | None, *, short: bool = False) -> str:
    if value is None:
        return "-"
    if short:
        return f"{value:g}" if value < 1_000 else f"{value:,.0f}"
    return f"{value:,.0f}" if value >= 1_000 else f"{value:.1f}" if value >= 100 else f"{value:.2f}"


def _ceilings(ceilings: Json) -> Iterable[str]:
    formats = list(ceilings["formats"])
    heads = [name + (" emulated" if name in ceilings["emulated"] else "") for name in formats]
    yield f"{'ceiling, by number format':<{NAME_WIDTH + CELL_WIDTH}}" + "".join(
        f"{head:>{FORMAT_WIDTH}}" for head in heads
    )
    for key, rates in ceilings["rates"].items():
        numbers = "".join(f"{_number(rates.get(name)):>{FORMAT_WIDTH}}" for name in formats)
        yield f"{key:<{NAME_WIDTH}}{'/s':<{CELL_WIDTH}}{numbers}"


def _notes(measured: Json) -> Iterable[str]:
    yield ""
    missed = "✗ misses its bar   " if measured["judged"] else ""
    yield f"{missed}! void   - not measured or nothing to compare with"
    yield from (f"{engine}: {key}: {cell['note']}" for engine, key, cell in _all(measured) if cell["note"])
    yield from (f"void: {fault}" for fault in faults(measured))
    yield from measured["left_behind"]


def rounded(value: object) -> object:
    if isinstance(value, float):
        return float(f"{value:.4g}") if abs(value) < 1_000 else round(value)
    if isinstance(value, Mapping):
        return {name: rounded(one) for name, one in value.items()}
    return value
