"""How good an order of turns is: recall of the gold turns at some depths, by groups of queries, and tables of it.

recall@k is the mean over queries of the share of gold turns among the first k; a session is hit where one of the first
ten results is of a session that holds a gold turn.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

import numpy as np

from serve_app.client.data_sets import Case, Place
from serve_app.client.http import Json

DEPTHS = (5, 10, 25, 50)
SESSION_DEPTH = 10
ALL = "all"

HEAD = "{:<40}{:>8}" + "{:>8}" * len(DEPTHS) + "{:>9}{:>9}{:>9}"


class Ranked(NamedTuple):
    """One case and what was found, best first. `seconds`: what that took, NaN where nothing was asked."""

    case: Case
    places: list[Place]
    seconds: float = float("nan")
    degraded: bool = False
    """The answer lacks something that the service would have given on a calmer machine."""


def scored(rows: Mapping[str, Sequence[Ranked]]) -> Json:
    """By row, by group of queries: all of them, and those of each label, large groups first."""
    return {row: {name: _score(group) for name, group in _groups(ranked).items()} for row, ranked in rows.items()}


def table(scores: Json) -> str:
    """Each group with one line a row."""
    lines = [HEAD.format("", "queries", *(f"@{depth}" for depth in DEPTHS), "session", "p50 ms", "p95 ms")]
    for group in next(iter(scores.values())):
        lines.append(group)
        lines += [_line(f"  {row}", groups[group]) for row, groups in scores.items()]
    return "\n".join(line.rstrip() for line in lines)


def _groups(ranked: Iterable[Ranked]) -> dict[str, list[Ranked]]:
    groups: dict[str, list[Ranked]] = {ALL: []}
    for one in ranked:
        for name in (ALL, *one.case.labels):
            groups.setdefault(name, []).append(one)
    return dict(sorted(groups.items(), key=lambda item: -len(item[1])))


def _score(group: Sequence[Ranked]) -> Json:
    score: Json = {"queries": len(group)}
    for depth in DEPTHS:
        score[f"recall@{depth}"] = round(statistics.fmean(_recall(one, depth) for one in group), 4)
    score[f"session_hit@{SESSION_DEPTH}"] = round(statistics.fmean(map(_session_hit, group)), 4)
    score["degraded"] = sum(one.degraded for one in group)
    seconds = [one.seconds for one in group]
    if not np.isnan(seconds).any():
        score |= {f"p{share}_ms": round(1e3 * float(np.percentile(seconds, share)), 2) for share in (50, 95)}
    return score


def _recall(one: Ranked, depth: int) -> float:
    return len(one.case.gold & set(one.places[:depth])) / len(one.case.gold)


def _session_hit(one: Ranked) -> bool:
    return bool({session for session, _ in one.case.gold} & {session for session, _ in one.places[:SESSION_DEPTH]})


def _line(name: str, score: Json) -> str:
    recalls = [f"{score[f'recall@{depth}']:.3f}" for depth in DEPTHS]
    times = [f"{score[one]:.1f}" if one in score else "" for one in ("p50_ms", "p95_ms")]
    return HEAD.format(name, score["queries"], *recalls, f"{score[f'session_hit@{SESSION_DEPTH}']:.3f}", *times)
