"""The rows of one service, measured step by step.

What is compared takes turns in short slices, so that a slow moment of the machine falls on both. Queries and texts are
new each time, but where a cached vector is what is measured. The order of the steps keeps the vectors that follow
appends out of the rows that are not about them.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from statistics import median

from benchmarks import report
from benchmarks.load import Load, Slice, Target
from benchmarks.report import Figure, Row, compared
from benchmarks.rivals import INFINITY_MODEL, Rivals
from benchmarks.workload import NO_OP, SESSION, Corpus, Loads, Request, batch_users, rival_appends, rival_searches
from serve_app.client.conversations import batches
from serve_app.client.http import Client, Json
from serve_app.errors import MemstrataError

CLIENTS = 16
EMBEDDING_CLIENTS = 64
KNEE_CLIENTS = (16, 64)
OPEN_SHARE = 0.7
"""Of the knee: the highest rate that closed loops of `KNEE_CLIENTS` reached."""

OPEN_TRIES = 2
"""A machine that others use wakes the generator late now and then; an open loop that is void is run once more."""

FAR_BEHIND = 0.6
"""A number format that reached less than this share of the best in the first round is not asked in the others."""

CALL_TURNS = 1_000
INGEST_BATCH_TURNS = 100
SHORT_SESSION_TURNS = 100
BATCH_TURNS = 50
INDEXED_TRIES = 20
"""Waits for the vectors of one batch, each as long as the service lets a request wait."""

SETTLE_S = 0.5
ONCE_S = 60.0
"""Bound of a load that sends each of its requests once."""

OURS = "the service"
"""Its name among those that take turns."""

Ask = Callable[[], Slice]


@dataclass(frozen=True)
class Sizes:
    """How much is measured. Seconds of one slice, rounds of slices, turns and requests."""

    rounds: int = 3
    slice_s: float = 1
    torch_s: float = 1.5
    ingest_torch_s: float = 2
    knee_s: float = 1.5
    open_s: float = 8
    corpus_turns: int | None = None
    long_turns: int = 5_000
    length_appends: int = 150
    batches: int = 100
    judged: bool = True
    """Whether the sizes are large enough to hold what is measured to the bars."""

    emulated: bool = True
    """Whether to show what a number format gives that the processor only emulates: slow, and never the ceiling."""


FULL = Sizes()
QUICK = Sizes(
    rounds=1, torch_s=0.3, ingest_torch_s=0.3, knee_s=0.3, open_s=1, corpus_turns=100, long_turns=200,
    length_appends=20, batches=20, judged=False, emulated=False,
)  # fmt: skip


class NotIndexed(MemstrataError):
    code = "not_indexed"


class Suite:
    STEPS: tuple[tuple[str, tuple[Row, ...]], ...] = (
        ("ingest", (report.INGEST,)),
        ("search", (report.SEARCH_1, report.SEARCH_16, *report.SEARCH_OF_PEERS.values())),
        ("embeddings", (report.EMBED_SHORT, report.EMBED_TURNS)),
        ("reads", (report.LEXICAL, report.CACHED, report.CONTEXT)),
        ("open_search", (report.OPEN_SEARCH,)),
        ("lengths", (report.LENGTH,)),
        ("open_mix", (report.OPEN_MIX,)),
        ("appends", (report.APPEND, report.ADD_1, report.ADD_16)),
        ("batches", (report.BATCHES,)),
    )
    """Methods, and the rows that each gives."""

    def __init__(self, target: Target, corpus: Corpus, load: Load, rivals: Rivals, sizes: Sizes) -> None:
        self._target, self._corpus, self._load, self._rivals, self._sizes = target, corpus, load, rivals, sizes
        self._loads = Loads(corpus, f"bench-{secrets.token_hex(4)}")
        self._client = Client(target.url, target.key)
        self.seconds: dict[str, float] = {}
        """What each step took."""

    def measure(self, advance: Callable[[str], object]) -> dict[Row, Figure]:
        """Every step; one that fails makes its rows void, and the others go on. `advance` is told before each."""
        figures: dict[Row, Figure] = {}
        for name, rows in self.STEPS:
            advance(name.replace("_", " "))
            started = time.perf_counter()
            try:
                figures |= getattr(self, name)()
            except MemstrataError as error:
                figures |= {row: Figure(void=(str(error),)) for row in rows}
            self.seconds[name] = round(time.perf_counter() - started, 1)
        return figures

    def check(self) -> None:
        """Ask once. Raises MemstrataError where the service is not there or does not take the key."""
        self._client.search({"user_id": self._loads.user("nobody"), "query": "nothing", "mode": "lexical"})

    def erase(self) -> None:
        """All that was written. Raises MemstrataError at the first user for whom that fails."""
        for user in self._loads.users:
            self._client.erase(user)

    @property
    def users(self) -> str:
        """A pattern of the names of all who are written for."""
        return self._loads.user("*")

    # ---- steps

    def ingest(self) -> dict[Row, Figure]:
        """From the first turn sent to the last vector, sixteen writers; the encoder alone before and after."""
        before = self._torch_rates()
        started = time.perf_counter()
        with ThreadPoolExecutor(CLIENTS) as writers:
            done = [writers.submit(self._index, *session) for session in self._sessions()]
        for one in done:
            one.result()
        rate = len(self._corpus.entries) / (time.perf_counter() - started)
        ceiling = {name: [first, *self._torch_rates([name]).values()] for name, first in before.items()}
        self._rivals.note(report.INGEST, ceiling)
        best = max(median(one.rate for one in slices) for slices in ceiling.values())
        return {report.INGEST: Figure(rate, best, rate / best)}

    def search(self) -> dict[Row, Figure]:
        """The service and all that search; peers with sixteen clients only."""
        ours, theirs = self._load.prepared(self._loads.search()), self._load.prepared(rival_searches(self._corpus))
        ceilings, peers = self._rivals.ceilings, self._rivals.peers
        for target, file in [(self._target, ours), *((target, theirs) for target in peers.values())]:
            self._load.own(target, file, clients=CLIENTS, seconds=self._sizes.slice_s)  # warms up
        alone = {name: self._closed(target, theirs, 1) for name, target in ceilings.items()}
        crowd = {name: self._closed(target, theirs, CLIENTS) for name, target in ceilings.items()}
        others = {name: self._closed(target, theirs, CLIENTS) for name, target in peers.items()}
        one, _ = self._against_ceiling(report.SEARCH_1, self._closed(self._target, ours, 1), alone)
        many, ran = self._against_ceiling(report.SEARCH_16, self._closed(self._target, ours, CLIENTS), crowd, others)
        by_peer = {report.SEARCH_OF_PEERS[name]: compared(ran[OURS], [ran[name]]) for name in peers}
        return {report.SEARCH_1: one, report.SEARCH_16: many, **by_peer}

    def embeddings(self) -> dict[Row, Figure]:
        """One text a request. Short ones against the encoder alone in batches; turns against another server."""
        short, turns = self._loads.short_embeddings(), self._loads.turn_embeddings()
        run = self._closed(self._target, self._load.prepared(short), EMBEDDING_CLIENTS)
        torch = {
            name: partial(self._rivals.torch, name, "short", self._sizes.torch_s) for name in self._rivals.ceilings
        }
        figure, _ = self._against_ceiling(report.EMBED_SHORT, lambda: _settled(run), torch)
        if not self._rivals.infinity:
            return {report.EMBED_SHORT: figure}
        theirs = self._load.prepared(_infinity_embeddings(turns))
        others = {name: self._closed(target, theirs, CLIENTS) for name, target in self._rivals.infinity.items()}
        ran = self._rounds(self._closed(self._target, self._load.prepared(turns), CLIENTS), others, tuple(others))
        against_infinity = compared(ran[OURS], [ran[name] for name in others])
        return {report.EMBED_SHORT: figure, report.EMBED_TURNS: against_infinity}

    def reads(self) -> dict[Row, Figure]:
        """Without the encoder: by words, and with vectors that are cached because each query was asked before."""
        files = {
            report.LEXICAL: self._load.prepared(self._loads.lexical()),
            report.CACHED: self._load.prepared(self._loads.cached_search()),
            report.CONTEXT: self._load.prepared(self._loads.cached_context()),
        }
        for row in (report.CACHED, report.CONTEXT):
            self._once(files[row], CLIENTS)
        return self._against_no_op(files)

    def open_search(self) -> dict[Row, Figure]:
        return {report.OPEN_SEARCH: self._open(self._loads.search())}

    def open_mix(self) -> dict[Row, Figure]:
        return {report.OPEN_MIX: self._open(self._loads.mix())}

    def lengths(self) -> dict[Row, Figure]:
        """One client appends to a short and to a long session by turns; both have all their vectors before."""
        sizes = {"short": SHORT_SESSION_TURNS, "long": self._sizes.long_turns}
        for name, turns in sizes.items():
            self._fill(name, turns)
        turn = [{"role": "user", "content": "what was said"}]
        pair = [self._loads.append_to(self._loads.user(name), turn, name) for name in sizes]
        ran = self._once(self._load.prepared(pair * self._sizes.length_appends), 1)
        long, short = (ran.kinds[name]["p50_ms"] for name in ("long", "short"))
        return {report.LENGTH: Figure(long, short, long / short, tuple(ran.faults))}

    def appends(self) -> dict[Row, Figure]:
        file, adds = self._load.prepared(self._loads.append()), self._load.prepared(rival_appends(self._corpus))
        figures: dict[Row, Figure] = {}
        for row, clients in ((report.ADD_1, 1), (report.ADD_16, CLIENTS)) if self._rivals.peers else ():
            peers = {name: self._closed(target, adds, clients) for name, target in self._rivals.peers.items()}
            ran = self._rounds(self._closed(self._target, file, clients), peers)
            figures[row] = compared(ran[OURS], [ran[name] for name in peers])
        return figures | self._against_no_op({report.APPEND: file})

    def batches(self) -> dict[Row, Figure]:
        """Sixteen clients send a batch each when the last is durable; then each user's last turn is looked for."""
        texts = [entry.turn["content"] for entry in self._corpus.entries]
        users, words, requests = batch_users(), {}, []
        for number in range(self._sizes.batches):
            user, word = self._loads.user(users[number % len(users)]), f"qx{secrets.token_hex(4)}"
            said = [texts[(number * BATCH_TURNS + at) % len(texts)] for at in range(BATCH_TURNS - 1)]
            turns = [{"role": "user", "content": text} for text in (*said, f"the word is {word}")]
            requests.append(self._loads.append_to(user, turns))
            words[user] = word
        ran = self._once(self._load.prepared(requests), CLIENTS)
        lost = [user for user, word in words.items() if not self._finds(user, word)]
        void = (*ran.faults, *([f"{len(lost)} last turns not found by their words"] if lost else []))
        return {report.BATCHES: Figure(ran.rate * BATCH_TURNS, void=tuple(void))}

    # ---- what the steps are made of

    def _closed(self, target: Target, requests: Path, clients: int) -> Ask:
        return partial(self._load.closed, target, requests, clients, self._sizes.slice_s)

    def _once(self, requests: Path, clients: int) -> Slice:
        return self._load.own(self._target, requests, clients=clients, seconds=ONCE_S, once=True)

    def _rounds(self, run: Ask, rivals: Mapping[str, Ask], alike: Sequence[str] = ()) -> dict[str, list[Slice]]:
        """All in turn, round by round, the service first. Of those that are `alike` only the best counts."""
        ran: dict[str, list[Slice]] = {name: [] for name in (OURS, *rivals)}
        for _ in range(self._sizes.rounds):
            ran[OURS].append(run())
            for name, ask in rivals.items():
                if name not in alike or not _far_behind(ran, name, alike):
                    ran[name].append(ask())
        return ran

    def _against_ceiling(
        self, row: Row, run: Ask, ceilings: Mapping[str, Ask], others: Mapping[str, Ask] | None = None
    ) -> tuple[Figure, dict[str, list[Slice]]]:
        """The better number format counts."""
        formats = self._rivals.formats(row, emulated=self._sizes.emulated)
        ran = self._rounds(run, {**{name: ceilings[name] for name in formats}, **(others or {})}, formats)
        self._rivals.note(row, {name: ran[name] for name in formats})
        return compared(ran[OURS], [ran[name] for name in formats]), ran

    def _against_no_op(self, files: Mapping[Row, Path]) -> dict[Row, Figure]:
        """Sixteen clients each; the route that does nothing has a slice of its own beside each."""
        no_op = self._closed(self._target, self._load.prepared(NO_OP), CLIENTS)
        figures = {}
        for row, file in files.items():
            ran = self._rounds(self._closed(self._target, file, CLIENTS), {"no-op": no_op})
            figures[row] = compared(ran[OURS], [ran["no-op"]], upper_bound=True)
        return figures

    def _open(self, requests: list[Request]) -> Figure:
        file, sizes = self._load.prepared(requests), self._sizes
        closed = [self._load.own(self._target, file, clients=many, seconds=sizes.knee_s) for many in KNEE_CLIENTS]
        knee = max(one.rate for one in closed)
        for _ in range(OPEN_TRIES):
            ran = self._load.own(self._target, file, rate=max(1.0, OPEN_SHARE * knee), seconds=sizes.open_s)
            if not (void := ran.all_faults):
                break
        void = [*void, *(fault for one in closed for fault in one.faults)]
        told = {"knee": knee, "rate": ran.rate, "send_lag_p99_ms": ran.send_lag_p99_ms, "cpu": ran.generator_cpu}
        return Figure(ran.p99_ms, ran.p50_ms, ran.p99_ms / (ran.p50_ms or 1), tuple(void), detail=told)

    def _torch_rates(self, formats: Sequence[str] = ()) -> dict[str, Slice]:
        asked = formats or self._rivals.formats(report.INGEST, emulated=self._sizes.emulated)
        return {name: self._rivals.torch(name, "turns", self._sizes.ingest_torch_s) for name in asked}

    def _sessions(self) -> Iterator[tuple[str, str, list[Json]]]:
        for group in batches(self._corpus.entries, INGEST_BATCH_TURNS):
            yield self._loads.user(group[0].user), group[0].session, [entry.turn for entry in group]

    def _fill(self, name: str, turns: int) -> None:
        given = [{"id": f"{name}-{at}", "role": "user", "content": f"n{at}"} for at in range(turns)]
        for at in range(0, turns, CALL_TURNS):
            self._client.append(self._loads.user(name), SESSION, given[at : at + CALL_TURNS])
        for at in range(0, turns, CALL_TURNS):
            self._index(self._loads.user(name), SESSION, given[at : at + CALL_TURNS])

    def _index(self, user: str, session: str, turns: list[Json]) -> None:
        """Append, and wait for the vectors. Turns that are there already are waited for all the same."""
        for _ in range(INDEXED_TRIES):
            answer = self._client.append(user, session, turns, wait="indexed")
            if any(result["status"] == "rejected" for result in answer["results"]):
                raise NotIndexed(f"turns of {session} were rejected")
            if answer["index_state"] == "indexed":
                return
        raise NotIndexed(f"turns of {session} have no vectors yet")

    def _finds(self, user: str, word: str) -> bool:
        found = self._client.search({"user_id": user, "query": word, "mode": "lexical", "k": 1})["results"]
        return bool(found) and word in found[0]["content"]


def _settled(ask: Ask) -> Slice:
    """What so many clients leave behind when their time is up is still worked on: not in the time of the next."""
    ran = ask()
    time.sleep(SETTLE_S)
    return ran


def _far_behind(ran: Mapping[str, Sequence[Slice]], name: str, alike: Sequence[str]) -> bool:
    """After the first round, in which all were asked."""
    firsts = {other: ran[other][0].rate for other in alike if ran[other]}
    return name in firsts and firsts[name] < FAR_BEHIND * max(firsts.values())


def _infinity_embeddings(requests: Sequence[Request]) -> list[Request]:
    """The same texts as infinity-emb takes them."""
    return [one._replace(path="/embeddings", body=f'{{"model": "{INFINITY_MODEL}", {one.body[1:]}') for one in requests]
