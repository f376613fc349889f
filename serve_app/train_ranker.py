"""`memstrata train-ranker`: asks a running service the queries of a golden set, learns from the features of what it
finds, and writes a file that `[rerank] ranker` of its settings loads.

The figures that it prints are honest: the row of the ranker ranks each fold by a model that was trained on the others.
What the model that is written gives on the queries that it was trained on stands below it, and is named so.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple, TypeVar

import numpy as np
from tqdm import tqdm

from serve_app.client.data_sets import Case, golden_cases, joined, part_of, read_data_set, written
from serve_app.client.explained import Explained, NotExplained, explained
from serve_app.client.http import Client, Json
from serve_app.client.scores import Ranked, scored, table
from serve_app.errors import InvalidRequest
from serve_app.retrieve.features import FEATURES
from serve_app.retrieve.ranker import Ranker
from serve_app.retrieve.training import Example, train
from serve_app.stores.durable import replace_file, trouble

FOLDS_MAX = 100
JOINED_MAX = 50

FUSION, LATE_ROW = "fusion", "+ MaxSim"
CROSS_VALIDATED, IN_SAMPLE = "+ ranker, cross-validated", "(+ ranker, on what it was trained on)"
LATE = "late"

T = TypeVar("T")


class Options(NamedTuple):
    data: Path | None
    """A data set; None for the golden queries that the service holds."""
    user: str | None = None
    """Whose golden queries; None for all of the tenant."""
    out: Path | None = None
    folds: str = "part"
    keep: bool = False
    joined: int = 0
    """Learn also from memories of so many conversations of one part; 0: only from each by itself."""


def run(client: Client, options: Options) -> Json:
    """Raises InvalidRequest where there is nothing to learn from or too little to hold out, MemstrataError."""
    _joinable(options)
    with _cases(client, options) as cases:
        if not cases:
            raise InvalidRequest("there is no query with a turn that answers it")
        whys = [explained(client, case) for case in _shown(cases, "asking")]
    folds = folds_of([why.case for why in whys], options.folds)
    if len(set(folds)) < 2:
        raise InvalidRequest(f"--folds {options.folds}: all queries are in one fold: nothing could be held out")
    longer = _joined_whys(client, options)
    of_longer = folds_of([why.case for why in longer], options.folds)
    rows = _first_rows(whys) | {CROSS_VALIDATED: _cross_validated(whys, folds, longer, of_longer)}
    content = taught([*whys, *longer], [*folds, *of_longer])
    rows[IN_SAMPLE] = _ranked(whys, judged(content, whys))
    if options.out is not None:
        _write(options.out, content)
    name = Ranker(content).name
    out = None if options.out is None else str(options.out)
    return {"ranker": name, "out": out, "queries": len(whys), "folds": sorted(set(folds)), "rows": scored(rows)}


def shown(result: Json) -> str:
    told = f"{result['ranker']}, from {result['queries']} queries in {len(result['folds'])} folds"
    kept = f"written to {result['out']}" if result["out"] else "written nowhere: name a file with --out"
    return f"{table(result['rows'])}\n\n{told}; {kept}"


def folds_of(cases: Sequence[Case], how: str) -> list[str]:
    """The fold of each case. `part`: groups that are named alike up to their last `-`; `conversation`: each group by
    itself; a number: groups in so many folds, turn by turn. Raises InvalidRequest for what is none of these.
    """
    groups = sorted({case.group for case in cases})
    if how == "part":
        fold_of = {group: part_of(group) for group in groups}
    elif how == "conversation":
        fold_of = {group: group for group in groups}
    elif how.isascii() and how.isdigit() and 2 <= int(how) <= FOLDS_MAX:
        fold_of = {group: f"fold {place % int(how) + 1}" for place, group in enumerate(groups)}
    else:
        raise InvalidRequest(f"--folds: part, conversation, or a number from 2 to {FOLDS_MAX}")
    return [fold_of[case.group] for case in cases]


def taught(whys: Sequence[Explained], folds: Sequence[str]) -> bytes:
    """The content of a ranker file. Raises InvalidRequest where there is nothing to learn from."""
    try:
        return train([_example(why, fold) for why, fold in zip(whys, folds, strict=True) if why.hits])
    except ValueError as error:
        raise InvalidRequest(str(error)) from error


def judged(content: bytes, whys: Sequence[Explained]) -> list[list[float]]:
    """What a ranker says of the hits of each case."""
    ranker = Ranker(content)
    return [ranker.scores(_rows(why)).tolist() if why.hits else [] for why in whys]


def taught_and_judged(learned: Sequence[Explained], tested: Sequence[Explained]) -> list[list[float]]:
    """What a ranker that learned from some says of the hits of others; nothing of it is kept."""
    return judged(taught(learned, [why.case.group for why in learned]), tested)


@contextmanager
def _cases(client: Client, options: Options) -> Iterator[list[Case]]:
    if options.data is None:
        yield golden_cases(client, options.user)
        return
    data = read_data_set(options.data)
    bar = tqdm(total=data.turns, unit=" turns", disable=None)
    with bar, written(client, data, bar.update, options.keep) as there:
        yield there.cases


def _joinable(options: Options) -> None:
    """Raises InvalidRequest for options that do not go together."""
    folds_of([], options.folds)
    if options.joined and (options.data is None or options.folds != "part"):
        raise InvalidRequest("--joined: only conversations of a data set are joined, and only with --folds part")
    if options.joined and not 2 <= options.joined <= JOINED_MAX:
        raise InvalidRequest(f"--joined: 2 to {JOINED_MAX} conversations")


def _joined_whys(client: Client, options: Options) -> list[Explained]:
    """What is learned from beside the queries of each conversation by itself: longer memories, more that is alike."""
    if not options.joined or options.data is None:
        return []
    data = joined(read_data_set(options.data), options.joined)
    bar = tqdm(total=data.turns, unit=" turns", disable=None)
    with bar, written(client, data, bar.update, options.keep) as there:
        return [explained(client, case) for case in _shown(there.cases, "asking")]


def _cross_validated(
    whys: Sequence[Explained], folds: Sequence[str], longer: Sequence[Explained], of_longer: Sequence[str]
) -> list[Ranked]:
    """Each fold as a ranker puts it that has seen the others only."""
    found: list[Ranked] = []
    pairs, beside = list(zip(whys, folds, strict=True)), list(zip(longer, of_longer, strict=True))
    for fold in _shown(sorted(set(folds)), "training"):
        tested = [why for why, its in pairs if its == fold]
        others = [pair for pair in [*pairs, *beside] if pair[1] != fold]
        content = taught([why for why, _ in others], [its for _, its in others])
        found += _ranked(tested, judged(content, tested))
    return found


def _first_rows(whys: Sequence[Explained]) -> dict[str, list[Ranked]]:
    rows = {FUSION: [Ranked(why.case, [hit.place for hit in why.hits]) for why in whys]}
    if all(LATE in hit.by for why in whys for hit in why.hits):
        rows[LATE_ROW] = _ranked(whys, [[hit.by[LATE] for hit in why.hits] for why in whys])
    return rows


def _ranked(whys: Sequence[Explained], scores: Sequence[Sequence[float]]) -> list[Ranked]:
    return [Ranked(why.case, why.ranked(of_hits)) for why, of_hits in zip(whys, scores, strict=True)]


def _example(why: Explained, fold: str) -> Example:
    return Example(why.case.id, fold, _rows(why), np.array(why.gold, np.bool_), len(why.case.gold))


def _rows(why: Explained) -> np.ndarray[tuple[int, int], np.dtype[np.float32]]:
    """Shape (hits, features). Raises NotExplained where the service knows other features than this program."""
    if lacking := set(FEATURES) - set(why.names):
        raise NotExplained(f"the service gives no feature {sorted(lacking)[0]!r}: is it of another release?")
    columns = [why.names.index(name) for name in FEATURES]
    return np.array([hit.features for hit in why.hits], np.float32)[:, columns]


def _shown(items: Sequence[T], what: str) -> Sequence[T]:
    bar: Sequence[T] = tqdm(items, desc=what, disable=None)
    return bar


def _write(out: Path, content: bytes) -> None:
    """As a whole or not at all. Raises StorageTrouble."""
    try:
        replace_file(out, out.with_name(f".{out.name}.fresh"), [content])
    except OSError as error:
        raise trouble(f"{out} cannot be written", error) from error
