"""Ways to cut text into words, side by side: one BM25, the same turns and windows, and the same queries.

Chinese writes no spaces, so that what counts as a word decides what BM25 can find. Each way is tried on the turns of a
data set in one language, with a window of one turn on either side like that of the service, and the service's own
search by words stands beside them. A query that leans on the turns before it is asked as the service rewrites it. No
model and no dense vector takes part.
"""

from __future__ import annotations

import importlib
import re
from collections.abc import Callable, Sequence
from datetime import datetime
from pathlib import Path
from types import ModuleType
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from tqdm import tqdm

from benchmarks.workload import indexed_text
from serve_app.client.conversations import Entry
from serve_app.client.data_sets import Case, Conversation, DataSet, Place, read_data_set, written
from serve_app.client.http import Client, Json
from serve_app.client.scores import DEPTHS, Ranked, scored
from serve_app.client.scores import table as scores_table
from serve_app.errors import InvalidRequest, NotSupported

Cut = Callable[[str], list[str]]

OWN_SHARE = 0.5
"""What a turn's own words count beside those of its window, each over the best."""

SERVICE = "the service's search by words"

_HAN = re.compile("[㐀-䶿一-鿿豈-﫿]+")
_WORD = re.compile(r"[^\W_㐀-䶿一-鿿豈-﫿]+")


class Asked(NamedTuple):
    """A case, how the service understood its query, and what it found by words."""

    case: Case
    query: str
    places: list[Place]


def words(text: str) -> list[str]:
    """What stands between spaces and punctuation."""
    return re.findall(r"\w+", text.lower())


def pairs(text: str) -> list[str]:
    """Two neighbouring characters at a time, and the words of other scripts."""
    return [*_other_words(text), *(run[at : at + 2] for run in _runs(text) for at in range(max(len(run) - 1, 1)))]


def pairs_and_singles(text: str) -> list[str]:
    """Also each character by itself."""
    return [*pairs(text), *(character for run in _runs(text) if len(run) > 1 for character in run)]


def _runs(text: str) -> list[str]:
    return _HAN.findall(text)


def _other_words(text: str) -> list[str]:
    return _WORD.findall(text.lower())


def _dictionary() -> Cut:
    """Jieba's words, as it cuts for a search engine: long ones and the shorter ones within."""
    jieba = _needed("jieba")
    jieba.setLogLevel(60)
    return lambda text: [one.lower() for one in jieba.cut_for_search(text) if one.strip() and re.search(r"\w", one)]


def ways() -> dict[str, tuple[Cut, Cut]]:
    """How turns are cut, and how queries are."""
    dictionary = _dictionary()
    return {
        "whitespace": (words, words),
        "bigrams": (pairs, pairs),
        "bigrams and singles": (pairs_and_singles, pairs_and_singles),
        "bigrams and singles, queries by bigrams": (pairs_and_singles, pairs),
        "dictionary (jieba)": (dictionary, dictionary),
    }


def measure(client: Client, data: Path, language: str) -> Json:
    """Every way, and the service, which writes the conversations as users that are erased at the end."""
    chosen = _in_language(read_data_set(data), language)
    cut_ways = ways()
    with tqdm(total=chosen.turns, unit=" turns", disable=None) as bar, written(client, chosen, bar.update) as there:
        asked = [_ask(client, case) for case in tqdm(there.cases, unit=" queries", disable=None)]
    rows = {name: _ranked(chosen, asked, *cuts) for name, cuts in tqdm(cut_ways.items(), desc="cutting", disable=None)}
    rows[SERVICE] = [Ranked(one.case, one.places) for one in asked]
    return {"data": chosen.name, "lang": language, "rows": scored(rows)}


def table(measured: Json) -> str:
    return scores_table(measured["rows"])


def _in_language(data: DataSet, language: str) -> DataSet:
    queries = [query for query in data.queries if str(query.get("lang", ""))[:2] == language]
    names = {query["conversation_id"] for query in queries}
    if not queries:
        raise InvalidRequest(f"{data.name}: no query is marked as {language!r}")
    return DataSet(data.name, {name: one for name, one in data.conversations.items() if name in names}, queries)


def _ask(client: Client, case: Case) -> Asked:
    answer = client.search(case.body | {"k": max(DEPTHS), "mode": "lexical", "rerank": False})
    places = [(one["session_id"], one["id"]) for one in answer["results"]]
    return Asked(case, answer["query"]["rewritten"], places)


def _ranked(data: DataSet, asked: Sequence[Asked], of_turn: Cut, of_query: Cut) -> list[Ranked]:
    indexes = {name: _Index(conversation, of_turn) for name, conversation in data.conversations.items()}
    return [Ranked(one.case, indexes[one.case.group].found(of_query(one.query), _until(one.case))) for one in asked]


def _until(case: Case) -> str | None:
    to: str | None = case.body.get("filters", {}).get("to")
    return to


class _Index:
    """The turns of one conversation, by their own words and by those of their windows."""

    def __init__(self, conversation: Conversation, cut: Cut) -> None:
        self._entries = list(conversation.turns.values())
        bags = [cut(indexed_text(entry.turn)) for entry in self._entries]
        around = [[*self._beside(bags, at, -1), *bag, *self._beside(bags, at, 1)] for at, bag in enumerate(bags)]
        self._own, self._window = _indexed(bags), _indexed(around)
        self._times = [datetime.fromisoformat(entry.turn["created_at"]) for entry in self._entries]

    def found(self, terms: list[str], until: str | None) -> list[tuple[str, str]]:
        """The best turns, of equal ones the newer first; none that holds no word of the query, nor a later one."""
        own, window = _scores(self._own, terms), _scores(self._window, terms)
        scores = OWN_SHARE * _over_best(own) + (1 - OWN_SHARE) * _over_best(window)
        last = None if until is None else datetime.fromisoformat(until)
        order = np.lexsort((np.arange(len(scores)), np.round(scores, 4)))[::-1].tolist()
        wanted = (at for at in order if own[at] > 0 and (last is None or self._times[at] <= last))
        return [_place(self._entries[at]) for at in wanted][: max(DEPTHS)]

    def _beside(self, bags: Sequence[list[str]], at: int, step: int) -> list[str]:
        """The words of a neighbour in the same session."""
        beside = at + step
        if not 0 <= beside < len(bags) or self._entries[beside].session != self._entries[at].session:
            return []
        return bags[beside]


def _place(entry: Entry) -> tuple[str, str]:
    return entry.session, entry.turn["id"]


def _indexed(bags: Sequence[list[str]]) -> object:
    retriever = _needed("bm25s").BM25(method="lucene")
    retriever.index([bag or [""] for bag in bags], show_progress=False)
    return retriever


def _scores(index: object, terms: list[str]) -> NDArray[np.float32]:
    known = [term for term in terms if term in index.vocab_dict]  # type: ignore[attr-defined]
    if not known:
        return np.zeros(index.scores["num_docs"], np.float32)  # type: ignore[attr-defined]
    return np.asarray(index.get_scores(known), np.float32)  # type: ignore[attr-defined]


def _over_best(scores: NDArray[np.float32]) -> NDArray[np.float32]:
    return scores / max(float(scores.max(initial=0.0)), 1e-9)


def _needed(name: str) -> ModuleType:
    try:
        return importlib.import_module(name)
    except ImportError as error:
        raise NotSupported(f'this comparison needs {name}: pip install "memstrata[bench]"') from error
