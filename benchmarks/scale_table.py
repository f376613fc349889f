"""How `memstrata bench scale` is shown: a line a figure, with the bar that it is held to where there is one."""

from __future__ import annotations

from collections.abc import Iterator

from serve_app.client.http import Json

HOT_MS, WARM_MS, READY_S, BYTES_A_TURN, GROWTH = 3.0, 40.0, 30.0, 8_192, 1.3
NAME_WIDTH = 54
MB = 1e6

Line = tuple[str, float | int | bool | None, str, float | None]


def table(told: Json) -> str:
    head = f"{told['turns']:,} turns of {told['users']:,} users, {told['machine']['cores']} cores"
    return "\n".join([head, *(_shown(*line) for line in lines(told))])


def missed(told: Json) -> list[str]:
    return [name for name, value, _, bar in lines(told) if bar is not None and value is not None and value > bar]


def lines(told: Json) -> Iterator[Line]:
    """Name, figure, unit, the most that it should be."""
    barred = told.get("bars", True)
    for phase, of_phase in _OF_PHASES.items():
        if phase in told:
            yield from ((*line[:3], line[3] if barred else None) for line in of_phase(told[phase]))


def _shown(name: str, value: float | int | bool | None, unit: str, bar: float | None) -> str:
    figure = "-" if value is None else f"{value:,}"
    judged = "" if bar is None or value is None else f"   bar {bar:,g}: {'met' if value <= bar else 'missed'}"
    return f"{name:<{NAME_WIDTH}}{figure:>14} {unit:<8}{judged}".rstrip()


def _ingest(told: Json) -> Iterator[Line]:
    for part in ("first", "rest"):
        if part in told:
            written = told[part]
            name = f"ingest of {written['turns']:,} turns"
            yield f"{name}, durable", written["durable_a_second"], "turns/s", None
            yield f"{name}, indexed", written["indexed_a_second"], "turns/s", None
            yield f"{name}, written", written["written_bytes_a_turn"], "B a turn", None
    for part, when in (("searched_first", "after the first part"), ("searched", "after all")):
        if part in told:
            yield f"search of a hot user, p50, {when}", told[part]["hot_ms"]["p50"], "ms", None
            yield f"search of a hot user, p95, {when}", told[part]["hot_ms"]["p95"], "ms", HOT_MS
            yield f"search of a hot user, CPU, {when}", told[part].get("hot_cpu_ms"), "ms", None
    yield "its stage `search`, after all to after the first part", told.get("search_growth"), "times", GROWTH
    yield "disk, after the ingest", told["disk_bytes_a_turn"], "B a turn", None


def _restart(told: Json) -> Iterator[Line]:
    yield "kill -9 to /readyz 200", told["ready_s"], "s", READY_S
    yield "then to the first answer of a warm user", told["first_answer_s"], "s", None
    for kind, where in (("warm_cached_ms", "page cache"), ("warm_disk_ms", "disk")):
        yield f"first touch of a warm user, {where}, p50", told[kind].get("p50"), "ms", None
        yield f"first touch of a warm user, {where}, p95", told[kind].get("p95"), "ms", WARM_MS
    yield "first touch of a warm user, CPU", told.get("warm_cpu_ms"), "ms", None


def _memory(told: Json) -> Iterator[Line]:
    yield "memory of a turn in the hot tier", told["bytes_a_turn"], "B", BYTES_A_TURN
    yield "memory of the process then", round(told["process_bytes"] / MB), "MB", None


def _compact(told: Json) -> Iterator[Line]:
    yield "compaction of every shard", told["seconds"], "s", None
    yield "compaction, written", round(told["written_bytes"] / MB), "MB", None
    for kind in ("append", "search"):
        for when in ("alone", "beside"):
            spread, name = told[f"{kind}_{when}_ms"], "alone" if when == "alone" else "beside a compaction"
            yield f"{kind} {name}, p50", spread.get("p50"), "ms", None
            yield f"{kind} {name}, p99", spread.get("p99"), "ms", None
    yield "disk, compacted", told["disk_bytes_a_turn"], "B a turn", None


def _erase(told: Json) -> Iterator[Line]:
    yield "erasure of one user, until done", told["seconds"], "s", None
    yield "erasure, written", round(told["written_bytes"] / MB), "MB", None
    yield "files with the user's word before", told["files_before"], "", None
    yield "files with the user's word after", told["files_after"], "", 0
    yield "receipt right", told["receipt_right"], "", None
    yield "results of others unchanged", told["others_unchanged"], "", None


_OF_PHASES = {"ingest": _ingest, "restart": _restart, "memory": _memory, "compact": _compact, "erase": _erase}
