"""Recall of the turns that answer a query, over a whole memory, through the public write and search paths.

One table: what each arm finds alone, the first stage, the first stage with late interaction, and the service as it is.
Figures are those of `serve_app/client/scores.py`. The cases are those of a data set (`data_sets.py` there), whose
conversations become users that are erased at the end, or the golden queries that the service holds. With
`--leave-one-out` a ranker is trained on all conversations but one and tested on that one, in turn; nothing of it is
kept. Latencies of the service as it is are of queries that it has not heard before; the other rows find the query's
vector in its cache.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from typing import NamedTuple, Protocol, TypeVar

from tqdm import tqdm

from serve_app.client.data_sets import Case, DataSet, golden_cases, written
from serve_app.client.explained import Explained, NotExplained, explained
from serve_app.client.http import Client, Json
from serve_app.client.scores import DEPTHS, Ranked, scored
from serve_app.client.scores import table as scores_table
from serve_app.errors import InvalidRequest

LATE = "late"
"""The reranker that is trained on nothing."""

AS_IT_IS = "as it is"
TRAINED = "+ ranker of the other conversations"

REQUESTED: dict[str, Json] = {
    AS_IT_IS: {},
    "BM25": {"mode": "lexical", "rerank": False},
    "dense": {"mode": "dense", "rerank": False},
    "fusion": {"rerank": False},
}
"""What a request asks for in each row, in the order of asking."""

LATE_ROW = "+ MaxSim"
ORDER = ("BM25", "dense", "fusion", LATE_ROW, TRAINED, AS_IT_IS)

T = TypeVar("T")


class Trainer(Protocol):
    def __call__(self, taught: Sequence[Explained], tested: Sequence[Explained], /) -> list[list[float]]:
        """Scores for the hits of each tested case, by a ranker that has seen the taught ones alone."""
        ...


class Options(NamedTuple):
    mode: str = "hybrid"
    rows: bool = True
    """All rows, or only the service as it is."""
    trainer: Trainer | None = None
    """Of `--leave-one-out`."""


def measure(client: Client, data: DataSet | None, options: Options) -> Json:
    """Write, ask, erase; or, without data, ask what the service's golden queries ask."""
    if data is None:
        return _measured(client, "golden queries", golden_cases(client), options)
    with tqdm(total=data.turns, unit=" turns", disable=None) as bar, written(client, data, bar.update) as there:
        return _measured(client, data.name, there.cases, options)


def _measured(client: Client, data: str, cases: list[Case], options: Options) -> Json:
    if not cases:
        raise InvalidRequest("there is no query with a turn that answers it")
    rows = _rows(client, cases, options)
    scores = scored({row: rows[row] for row in ORDER if row in rows})
    return {"data": data, "mode": options.mode, "rows": scores}


def _rows(client: Client, cases: list[Case], options: Options) -> dict[str, list[Ranked]]:
    all_rows = options.rows and options.mode == "hybrid"
    wanted = REQUESTED if all_rows else {AS_IT_IS: {}}
    rows = {
        name: [_ask(client, case, {"mode": options.mode} | more) for case in _shown(cases, name)]
        for name, more in wanted.items()
    }
    if options.trainer or (all_rows and _explains(client, cases[0])):
        rows |= _explained_rows([explained(client, case) for case in _shown(cases, "explained")], options.trainer)
    return rows


def _explains(client: Client, case: Case) -> bool:
    """Whether the service has a second stage; without one there is nothing between its first and itself."""
    try:
        explained(client, case)
    except NotExplained:
        return False
    return True


def _explained_rows(whys: list[Explained], trainer: Trainer | None) -> dict[str, list[Ranked]]:
    """What follows from the features and scores of each hit, without asking again."""
    rows: dict[str, list[Ranked]] = {}
    if all(LATE in hit.by for why in whys for hit in why.hits):
        rows[LATE_ROW] = [Ranked(why.case, why.ranked([hit.by[LATE] for hit in why.hits])) for why in whys]
    if trainer is not None:
        rows[TRAINED] = [
            one for group in _shown(_by_group(whys), "training") for one in _left_out(group, whys, trainer)
        ]
    return rows


def _by_group(whys: Iterable[Explained]) -> list[str]:
    return list(dict.fromkeys(why.case.group for why in whys))


def _left_out(group: str, whys: Sequence[Explained], trainer: Trainer) -> list[Ranked]:
    """The cases of one group as a ranker puts them that was trained on the others."""
    tested = [why for why in whys if why.case.group == group]
    scores = trainer([why for why in whys if why.case.group != group], tested)
    return [Ranked(why.case, why.ranked(judged)) for why, judged in zip(tested, scores, strict=True)]


def _shown(items: Sequence[T], what: str) -> Iterable[T]:
    shown: Iterable[T] = tqdm(items, desc=what, disable=None)
    return shown


def _ask(client: Client, case: Case, more: Json) -> Ranked:
    body = case.body | {"k": max(DEPTHS)} | more
    started = time.perf_counter()
    answer = client.search(body)
    seconds = time.perf_counter() - started
    seen = [one for one in answer["results"] if case.as_of_seq is None or one["seq"] <= case.as_of_seq]
    places = [(one["session_id"], one["id"]) for one in seen]
    return Ranked(case, places, seconds, bool(answer["degradation"]["reasons"]))


def table(measured: Json) -> str:
    return scores_table(measured["rows"])
