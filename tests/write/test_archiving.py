"""A large user is found in as one whose turns are all in memory; what has gone or changed is so in archives, too."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any

import msgspec
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as some

from serve_app.core import Mode, TimeWindow, Turn
from serve_app.errors import DeadlinePassed, StoreUnavailable
from serve_app.memory import entities
from serve_app.memory.reading import unfolded
from serve_app.models.stub import HashEmbedder
from serve_app.ports import EncodedQuery
from serve_app.retrieve.archived import Breadth, ranked
from serve_app.retrieve.expand import NO_DATE
from serve_app.retrieve.filters import Filters
from serve_app.retrieve.found import Answer
from serve_app.retrieve.fuse import ARMS
from serve_app.retrieve.hot import hot_turns
from serve_app.retrieve.large import large_turns
from serve_app.retrieve.merge import merged
from serve_app.retrieve.question import Question
from serve_app.retrieve.search import newer_of, search
from serve_app.retrieve.shortlist import Clues, shortlist_of
from serve_app.retrieve.warm import token_reader, warm_turns
from serve_app.retrieve.work import CLOCK_EVERY, Work
from serve_app.stores.archive import BYTES_A_TURN, REVISED_MAX, Archive, Archives
from serve_app.stores.rough import QUANTISED_FROM, RoughVectors
from serve_app.stores.terms import read_query
from serve_app.write.archiving import Archiver
from serve_app.write.backfill import BackfillItem, put_backfill
from serve_app.write.erasing import EraseUser
from serve_app.write.operations import AppendTurns, DeleteSession, DeleteTurn, EditTurn, NewTurn
from tests.write.shards import ANN, EMBEDDER, VERSION, OneShard, vectors_of

RESIDENT = 50
TURNS = 600
SESSION = 12
WORDS = [f"{first}{second}{third}" for first in "bdgklm" for second in "aeiou" for third in "nrst"]
NAMES = ("Alice Morgan", "Lisbon", "ORD-10442")
KEYS = ("alicemorgan", "lisbon", "ord10442", "zeldaquincy")
NAMED_EVERY = 30
FIRST_AT = 1_600_000_000_000_000
HOUR_US = 3_600_000_000
RECALL_MIN = 0.98
NARROW_RECALL_MIN = 0.9
DEPTH = 10

SAME_FOR_BOTH = (
    "fused",
    "dense",
    "bm25",
    "late_plain",
    "late_weighted",
    "late_before",
    "is_",
    "length",
    "after_question",
    "moment",
    "entity",
    "turns_ago",
)
OF_THE_LIST = ("_apart", "_rank")
"""Features that do not tell how many turns were looked at, or which others are in the list."""

MODES: tuple[Mode, ...] = ("hybrid", "dense", "lexical")


def texts(count: int, seed: int = 1) -> list[str]:
    source = random.Random(seed)
    weights = [1 / rank for rank in range(1, len(WORDS) + 1)]
    said = [" ".join(source.choices(WORDS, weights, k=8)) for _ in range(count)]
    for at in range(0, count, NAMED_EVERY):
        said[at] += f" with {NAMES[at // NAMED_EVERY % len(NAMES)]}"
    return [f"{text} number{seed}x{at}" for at, text in enumerate(said)]


def fill(shard: OneShard, said: Sequence[str], start: int = 0) -> None:
    """In sessions of a few turns, each with its vector, one in five of two parts; two sessions take turns."""
    for at in range(0, len(said), SESSION):
        session = f"s{(start + at) // SESSION // 4 * 2 + (start + at) // SESSION % 2}"
        turns = [
            NewTurn("user", text, id=text.split()[-1], created_at=FIRST_AT + (start + at + place) * HOUR_US)
            for place, text in enumerate(said[at : at + SESSION])
        ]
        results = shard.do(AppendTurns(ANN, session, turns))
        turns = shard.shard.turns(ANN, [one.seq for one in results if one.seq is not None])
        shard.embed(ANN, *turns[::5], parts=2)
        shard.embed(ANN, *[turn for place, turn in enumerate(turns) if place % 5])


class Pair:
    """The same turns of one user in a shard that holds few of them in memory, and in one that holds all."""

    def __init__(self, opened: Callable[..., OneShard], **more: Any) -> None:
        self.large = opened("large", owner_turns_resident=RESIDENT, **more)
        self.whole = opened("whole", owner_turns_resident=10**6)
        self.archiver = Archiver(volume_turns_max=256, quantised_from=128, renewed_every_s=0.0)

    def both(self, act: Callable[[OneShard], Any]) -> None:
        act(self.large)
        act(self.whole)

    def archive(self) -> Archive:
        """Made, and made anew where it is due."""
        self.large.fold()
        self.large.block(ANN)
        while self.archiver.tend_shard(self.large.shard):
            continue
        found = self.large.shard.archives.of(ANN)
        assert found is not None
        return found

    def compare_clues(self, query: str, **more: Any) -> tuple[Clues, Clues]:
        """What the second stage is given of both."""
        found = [first_of(shard, query, **more) for shard in (self.large, self.whole)]
        assert found[0] is not None
        assert found[1] is not None
        return found[0], found[1]

    def compare(self, queries: Sequence[str], mode: Mode, **more: Any) -> float:
        """The share of the exact best that is found."""
        shares = []
        for query in queries:
            found, exact = (seqs(ask(shard, query, mode, **more)) for shard in (self.large, self.whole))
            shares.append(len({*found} & {*exact}) / len(exact) if exact else float(not found))
        return sum(shares) / len(shares)


def ask(shard: OneShard, query: str, mode: Mode = "hybrid", k: int = DEPTH, **more: Any) -> Answer:
    encoded = EncodedQuery(VERSION.name, EMBEDDER.embed([query])[0])
    question = Question(query, mode, k, more.pop("now", shard.clock.now), **more)
    held = shard.shard
    later = partial(unfolded, held)
    return search(held.block(ANN), question, encoded, held.table, held.turns, later, archive=held.archives.of(ANN))


def first_of(shard: OneShard, query: str, **more: Any) -> Clues | None:
    held, block = shard.shard, shard.block(ANN)
    made = EMBEDDER.encode([query], tokens=True)
    assert made.tokens is not None
    encoded = EncodedQuery(VERSION.name, made.vectors[0], made.tokens[0], EMBEDDER.spans(query))
    question = Question(query, "hybrid", DEPTH, shard.clock.now, rerank=True, late=True, **more)
    if block.complete:
        return hot_turns(block, question, encoded).clues
    archive = held.archives.of(ANN)
    assert archive is not None
    found = large_turns(block, question, encoded, archive, held.turns, token_reader(block, encoded, held.table))
    assert found is not None
    return found.clues


def seqs(answer: Answer) -> list[int]:
    return [one.turn.seq for one in answer.found]


def archived(shard: OneShard) -> bool:
    """Whether the archive answers."""
    block, archive = shard.block(ANN), shard.shard.archives.of(ANN)
    with block.lock:
        return archive is not None and archive.field(block) is not None


@pytest.fixture
def pair(opened: Callable[..., OneShard]) -> Pair:
    pair = Pair(opened)
    pair.both(lambda shard: fill(shard, texts(TURNS)))
    pair.archive()
    assert archived(pair.large)
    return pair


QUERIES = [" ".join(random.Random(at).sample(WORDS, 3)) for at in range(30)] + ["number1x77", "1x300 number1x3"]


@pytest.mark.parametrize("mode", MODES)
def test_a_large_user_is_answered_as_one_whose_turns_are_all_in_memory(pair: Pair, mode: Mode) -> None:
    assert pair.compare(QUERIES, mode) >= RECALL_MIN
    tiers = {one.tier for query in QUERIES for one in ask(pair.large, query, mode).found}
    assert tiers == {"hot", "warm"}


def test_the_second_stage_is_given_what_it_is_given_of_a_small_user(pair: Pair) -> None:
    for query in QUERIES[:5]:
        large, whole = pair.compare_clues(query)
        asked = Question(query, "hybrid", DEPTH, pair.large.clock.now)
        lists = [shortlist_of(clues, asked) for clues in (large, whole)]
        seqs_of = [[clues.turns[at].seq for at in clues.ranking.ordinals.tolist()] for clues in (large, whole)]
        assert len({*seqs_of[0]} & {*seqs_of[1]}) >= RECALL_MIN * len(seqs_of[1])
        rows = [dict(zip(those, of.features, strict=True)) for those, of in zip(seqs_of, lists, strict=True)]
        names = [
            place
            for place, name in enumerate(lists[0].names)
            if name.startswith(SAME_FOR_BOTH) and not name.endswith(OF_THE_LIST)
        ]
        for seq in rows[0].keys() & rows[1].keys():
            assert np.allclose(rows[0][seq][names], rows[1][seq][names], atol=2e-3, equal_nan=True)


def at_hour(hours: int) -> datetime:
    return datetime.fromtimestamp(FIRST_AT / 1_000_000, UTC) + timedelta(hours=hours)


ASKED_BESIDE: dict[str, dict[str, Any]] = {
    "a window": {"window": TimeWindow(at_hour(90), at_hour(130))},
    "a hint at one": {"window": TimeWindow(at_hour(90), at_hour(130), certain=False)},
    "a name": {},
    "turns it takes words from": {"drawn_from": frozenset(range(1, 200, 3))},
}


@pytest.mark.parametrize("beside", ASKED_BESIDE)
def test_what_a_query_says_beside_its_words_counts_in_archives_too(pair: Pair, beside: str) -> None:
    more = ASKED_BESIDE[beside]
    queries = [f"{query} {NAMES[at % 3]}" if beside == "a name" else query for at, query in enumerate(QUERIES[:9])]
    for mode in MODES:
        assert pair.compare(queries, mode, **more) >= RECALL_MIN
    arm = ARMS.index({"a name": "entity", "turns it takes words from": "echo"}.get(beside, "window"))
    felt = 0
    for query in queries:
        parts = []
        for clues in pair.compare_clues(query, **more):
            seqs_of = [clues.turns[at].seq for at in clues.ranking.ordinals.tolist()]
            parts.append(dict(zip(seqs_of, clues.ranking.parts[:, arm].tolist(), strict=True)))
        assert all(abs(parts[0][seq] - parts[1][seq]) < 2e-4 for seq in parts[0].keys() & parts[1].keys())
        felt += sum(part != 0 for part in parts[0].values())
    assert felt


def test_a_name_that_only_older_turns_know_is_seen_in_a_query(pair: Pair) -> None:
    pair.both(lambda shard: fill(shard, ["we saw the Kestrel Harbour museum number7x1"], start=TURNS))
    pair.both(lambda shard: fill(shard, texts(120, seed=9), start=TURNS + 12))
    pair.archive()
    for shard in (pair.large, pair.whole):
        explained = ask(shard, "kestrel harbour", explain=True).explained
        assert explained is not None
        assert "kestrelharbour" in explained.entities


@pytest.mark.parametrize("renewed", [False, True])
def test_names_of_edited_and_deleted_turns_leave_archives(pair: Pair, renewed: bool) -> None:
    gone, old = (ask(pair.large, f"number1x{at}", "lexical").found[0].turn for at in (30, 60))
    pair.both(lambda shard: shard.do(DeleteTurn(ANN, gone.session, gone.id)))
    pair.both(lambda shard: edited(shard, old.session, old.id, "a walk with Zelda Quincy"))
    pair.large.fold()
    archive = pair.archive() if renewed else pair.large.shard.archives.of(ANN)
    block = pair.large.block(ANN)
    with block.lock:
        assert archive is not None
        field = archive.field(block)
        assert field is not None
        named = {name: field.seqs[field.entities.ordinals(name, field.size)].tolist() for name in KEYS}
        assert field.entities.known([*KEYS, "nobody"], field.size) == {*KEYS}
    assert named["zeldaquincy"] == [old.seq]
    assert gone.seq not in named["lisbon"]
    assert old.seq not in named["ord10442"]
    assert all(len(named[key]) > 3 for key in KEYS[:3])


def test_by_words_alone_the_ranking_is_the_very_same(pair: Pair) -> None:
    for query in QUERIES:
        found, exact = (ask(shard, query, "lexical").found for shard in (pair.large, pair.whole))
        assert [one.turn.content for one in found] == [one.turn.content for one in exact]
        assert np.allclose([one.score for one in found], [one.score for one in exact], atol=2e-4)


@pytest.mark.parametrize("mode", MODES)
def test_turns_that_came_after_the_archive_are_ranked_with_the_others(pair: Pair, mode: Mode) -> None:
    pair.both(lambda shard: fill(shard, texts(24, seed=2), start=TURNS))
    assert archived(pair.large)
    assert pair.compare([*QUERIES, "number2x5"], mode) >= RECALL_MIN


def test_where_more_came_than_memory_holds_the_tables_answer_until_the_archive_follows(pair: Pair) -> None:
    pair.both(lambda shard: fill(shard, texts(240, seed=2), start=TURNS))
    assert not archived(pair.large)
    assert "number2x5" in ask(pair.large, "number2x5", "lexical").found[0].turn.content
    pair.archive()
    assert archived(pair.large)
    assert pair.compare([*QUERIES, "number2x5"], "hybrid") >= RECALL_MIN


@pytest.mark.parametrize("mode", MODES)
def test_a_narrow_look_finds_most_of_the_best(pair: Pair, mode: Mode) -> None:
    """Of volumes of 256 turns 64 are looked at, of 600 turns 128 ranked."""
    shard, shares = pair.large, []
    for query in QUERIES:
        question = Question(query, mode, DEPTH, shard.clock.now)
        encoded = EncodedQuery(VERSION.name, EMBEDDER.embed([query])[0])
        block, archive = shard.block(ANN), shard.shard.archives.of(ANN)
        with block.lock:
            assert archive is not None
            field = archive.field(block)
            assert field is not None
            read = read_query(query), NO_DATE
            narrow = Breadth(rough=64, candidates=128, extremes=8)
            chosen = ranked(block, field, question, encoded, *read, breadth=narrow)
            found = chosen.seqs[chosen.ranking.ordinals].tolist()
        exact = seqs(ask(pair.whole, query, mode))
        shares.append(len({*found[:DEPTH]} & {*exact}) / len(exact))
    assert sum(shares) / len(shares) >= NARROW_RECALL_MIN


def test_volumes_grow_and_few_are_left(opened: Callable[..., OneShard]) -> None:
    pair = Pair(opened)
    for start in range(0, TURNS, 48):
        fill(pair.large, texts(48, seed=start + 3), start)
        archive = pair.archive() if start >= 96 else None
    assert archive is not None
    sizes = [len(volume.seqs) for volume in archive.volumes]
    assert sum(sizes) >= TURNS - RESIDENT
    assert max(sizes) <= 256
    assert len(sizes) <= 6
    assert archived(pair.large)


def edited(shard: OneShard, session: str, turn_id: str, content: str) -> None:
    shard.do(EditTurn(ANN, session, turn_id, content, None))


@pytest.mark.parametrize("folded", [False, True])
def test_an_edited_turn_is_found_by_what_it_says_now(pair: Pair, folded: bool) -> None:
    old = ask(pair.large, "number1x77", "lexical").found[0].turn
    pair.both(lambda shard: edited(shard, old.session, old.id, "a wholly newword indeed"))
    if folded:
        pair.large.fold()
    for shard in (pair.large, pair.whole):
        assert seqs(ask(shard, "newword", "lexical")) == [old.seq]
        assert seqs(ask(shard, "number1x77", "lexical")) == []
    assert archived(pair.large)
    archive = pair.archive()
    assert not archive.revised
    assert seqs(ask(pair.large, "newword", "lexical")) == [old.seq]
    assert seqs(ask(pair.large, "number1x77", "lexical")) == []


def test_with_too_many_edits_the_archive_begins_again(pair: Pair) -> None:
    archive = pair.archive()
    old = ask(pair.large, "number1x77", "lexical").found[0].turn
    edited(pair.large, old.session, old.id, "a wholly newword indeed")
    turn = next(iter(archive.revised.values()))
    for at in range(REVISED_MAX):
        archive.revise(msgspec.structs.replace(turn, seq=10**6 + at))
    assert not archived(pair.large)
    assert seqs(ask(pair.large, "newword", "lexical")) == [old.seq]
    pair.large.embed(ANN, *pair.large.shard.turns(ANN, [old.seq]))
    pair.archive()
    assert archived(pair.large)
    assert seqs(ask(pair.large, "newword", "lexical")) == [old.seq]
    assert seqs(ask(pair.large, "number1x77", "lexical")) == []


def test_edits_before_the_archive_was_there_count(opened: Callable[..., OneShard]) -> None:
    pair = Pair(opened)
    fill(pair.large, texts(120))
    pair.large.fold()
    edited(pair.large, "s0", "number1x3", "a wholly newword indeed")
    while pair.archiver.tend_shard(pair.large.shard):
        continue
    assert archived(pair.large)
    assert len(seqs(ask(pair.large, "newword", "lexical"))) == 1
    assert seqs(ask(pair.large, "number1x3", "lexical")) == []


@pytest.mark.parametrize("mode", MODES)
def test_what_is_deleted_is_not_found_and_leaves_the_volumes(pair: Pair, mode: Mode) -> None:
    gone = ask(pair.large, "number1x77", "lexical").found[0].turn
    whole = ask(pair.large, "number1x201", "lexical").found[0].turn.session
    pair.both(lambda shard: shard.do(DeleteTurn(ANN, gone.session, gone.id)))
    pair.both(lambda shard: shard.do(DeleteSession(ANN, whole)))
    found = [one.turn for query in [*QUERIES, gone.content] for one in ask(pair.large, query, mode, k=40).found]
    assert gone.seq not in {turn.seq for turn in found}
    assert whole not in {turn.session for turn in found}
    assert pair.compare(QUERIES, mode) >= RECALL_MIN
    archive = pair.archive()
    assert gone.seq not in np.concatenate([volume.seqs for volume in archive.volumes])
    assert all(len(volume.postings.of("number1x77")[0]) == 0 for volume in archive.volumes)
    assert all(len(one.turns) == len(one.rough) for volume in archive.volumes for one in volume.vectors.values())
    assert pair.compare(QUERIES, mode) >= RECALL_MIN


def test_an_erased_user_leaves_no_archive(pair: Pair) -> None:
    pair.large.do(EraseUser(ANN, "acme"))
    assert seqs(ask(pair.large, "number1x77")) == []
    pair.large.fold()
    pair.archiver.tend_shard(pair.large.shard)
    assert pair.large.shard.archives.of(ANN) is None


def test_what_has_expired_hides_nothing_that_lives(opened: Callable[..., OneShard]) -> None:
    pair = Pair(opened)
    brief = [NewTurn("user", f"zebra {at}", created_at=1_600_000_000_000_000, ttl_seconds=5) for at in range(40)]
    pair.large.do(
        AppendTurns(ANN, "z", [*brief, NewTurn("user", "one zebra among very many other beasts of the wood")])
    )
    pair.large.embed(ANN, *pair.large.shard.turns(ANN, pair.large.block(ANN).sessions["z"].seqs))
    fill(pair.large, texts(300))
    pair.archive()
    assert archived(pair.large)
    assert [one.turn.content[:9] for one in ask(pair.large, "zebra", "lexical", k=5).found] == ["one zebra"]


def test_as_of_shows_nothing_later(pair: Pair) -> None:
    moment = pair.large.block(ANN).applied_seq // 2
    assert max(seqs(ask(pair.large, QUERIES[0], as_of=moment, k=50))) <= moment


def test_after_a_restart_the_tables_answer_until_the_archive_is_there_again(pair: Pair) -> None:
    before = seqs(ask(pair.large, QUERIES[0]))
    pair.large.restart()
    assert not archived(pair.large)
    assert ask(pair.large, QUERIES[0]).found
    pair.archive()
    assert seqs(ask(pair.large, QUERIES[0])) == before


def test_where_the_tables_do_not_answer_memory_does_and_says_so(pair: Pair, monkeypatch: pytest.MonkeyPatch) -> None:
    def silent(*_: object) -> Any:
        raise StoreUnavailable("no answer")

    for name in ("turns", "matching", "nearest"):
        monkeypatch.setattr(pair.large.table, name, silent)
    answer = ask(pair.large, "number1x77", "lexical")
    assert answer.reasons == ("warm: store_unavailable",)


def test_whose_block_leaves_memory_loses_the_archive(pair: Pair) -> None:
    pair.large.shard._turns_resident = 1
    pair.large.say("acme/other", "a", "something")
    pair.large.block("acme/other")
    pair.large.shard.evict()
    assert pair.large.shard.archives.held() == {}


def test_a_user_who_would_not_fit_has_no_archive() -> None:
    archives = Archives(bytes_max=10 * BYTES_A_TURN)
    assert archives.open("large", 11) is None
    assert archives.of("large") is None
    assert archives.open("small", 10) is archives.of("small")


def test_archives_over_the_bound_go_the_least_used_first(pair: Pair) -> None:
    archive = pair.archive()
    archives = Archives(bytes_max=2 * archive.bytes)
    for owner in ("a", "b", "c"):
        held = archives.open(owner, 1)
        assert held is not None
        held.replace([], archive.volumes)
    archives.of("a")
    archives.trim("c")
    assert {*archives.held()} == {"a", "c"}


# ---- vectors


@settings(max_examples=25, deadline=None)
@given(some.integers(1, 40), some.integers(1, 64), some.integers(0, 2**32 - 1))
def test_rough_scores_are_near_the_exact_ones(count: int, dimension: int, seed: int) -> None:
    source = np.random.default_rng(seed)
    vectors = source.normal(size=(count, dimension)).astype(np.float32)
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    query = vectors[0]
    rough = RoughVectors(vectors)
    assert np.abs(rough.scores(query) - vectors @ query).max() < 1e-3
    places = source.permutation(count)[: count // 2]
    assert np.allclose(rough.scores(query, places), rough.scores(query)[places], atol=1e-6)
    look = rough.look(query, 3, 2)
    assert len(look.best) == count
    scores = rough.scores(query)
    assert scores[look.worst[0]] == scores.min()


def test_the_best_by_code_hold_the_best() -> None:
    source = np.random.default_rng(5)
    centres = source.normal(size=(200, 64))
    vectors = centres[source.integers(0, 200, QUANTISED_FROM)] + source.normal(size=(QUANTISED_FROM, 64)) / 2
    vectors = (vectors / np.linalg.norm(vectors, axis=1, keepdims=True)).astype(np.float32)
    rough = RoughVectors(vectors)
    for query in vectors[:20]:
        look, exact = rough.look(query, 256, 16), vectors @ query
        assert {*np.argsort(-exact)[:DEPTH]} <= {*look.best.tolist()}
        assert exact[look.worst].min() < np.quantile(exact, 0.01)
        assert np.abs(look.scores - exact[look.best]).max() < 1e-3


# ---- ways without the archive

FILTERS = {
    "session": Filters(session="s3"),
    "times": Filters(start=FIRST_AT + 90 * HOUR_US, end=FIRST_AT + 130 * HOUR_US),
    "from": Filters(start=FIRST_AT + 400 * HOUR_US),
    "entity": Filters(entities=frozenset({"alicemorgan"})),
    "entity and session": Filters(session="s4", entities=frozenset({"lisbon"})),
    "role": Filters(roles=frozenset({"user"})),
    "nobody": Filters(entities=frozenset({"nobody"})),
}


@pytest.mark.parametrize("name", FILTERS)
def test_filters_of_a_large_user_are_exact(pair: Pair, name: str) -> None:
    old = ask(pair.large, "number1x60", "lexical").found[0].turn
    pair.both(lambda shard: edited(shard, old.session, old.id, "a walk with Alice Morgan"))
    for folded in (False, True):
        for as_of in (None, 300):
            for query in ("", QUERIES[0]):
                found, exact = (
                    ask(shard, query, k=TURNS, filters=FILTERS[name], as_of=as_of) for shard in (pair.large, pair.whole)
                )
                assert len(seqs(found)) == len({*seqs(found)})
                assert {*seqs(found)} == {*seqs(exact)}
                assert query or seqs(found) == seqs(exact)
                assert seqs(found) or name in ("nobody", "from", "entity and session")
        if not folded:
            pair.large.fold()


def test_turns_that_are_read_for_a_filter_count_as_work(pair: Pair) -> None:
    work = Work(deadline=0.0)
    work.looked_at = CLOCK_EVERY
    with pytest.raises(DeadlinePassed):
        ask(pair.large, QUERIES[0], filters=FILTERS["role"], work=work)


def test_how_old_a_turn_is_means_the_same_by_way_of_the_tables(pair: Pair) -> None:
    ages: list[dict[int, float]] = []
    for shard in (pair.large, pair.whole):
        question = Question(QUERIES[0], "hybrid", DEPTH, shard.clock.now, rerank=True)
        held, block = shard.shard, shard.block(ANN)
        hot = hot_turns(block, question, None)
        clues = hot.clues
        if not block.complete:
            warm = warm_turns(block, question, None, held.table, held.turns, partial(unfolded, held))
            clues = merged(
                hot, warm, question, None, token_reader(block, None, held.table), partial(newer_of, block, question)
            ).clues
        assert clues is not None
        made = shortlist_of(clues, question)
        at = made.names.index("turns_ago")
        listed = clues.ranking.ordinals.tolist()
        ages.append({clues.turns[one].seq: float(made.features[place][at]) for place, one in enumerate(listed)})
    both = ages[0].keys() & ages[1].keys()
    assert len(both) >= DEPTH
    assert all(abs(ages[0][seq] - ages[1][seq]) < 1e-3 for seq in both)


def test_a_list_of_entities_that_takes_too_long_is_given_up(pair: Pair, monkeypatch: pytest.MonkeyPatch) -> None:
    pair.large.do(
        AppendTurns(ANN, "s0", [NewTurn("user", f"with Alice Morgan again {at}") for at in range(2 * RESIDENT)])
    )
    shard, now = pair.large.shard, pair.large.clock.now
    assert entities.page(shard, ANN, None, "alice", None, 10, now).lines[0].name == "Alice Morgan"
    monkeypatch.setattr(entities, "ANSWERED_WITHIN_S", 0.0)
    with pytest.raises(DeadlinePassed):
        entities.page(shard, ANN, None, "", None, 10, now)


def test_looks_at_what_has_gone_are_paced_for_each_shard(opened: Callable[..., OneShard]) -> None:
    """The housekeeper tends all shards in turn: one knows nothing of the owners of another."""
    large, other = opened("large", number=0, owner_turns_resident=RESIDENT), opened("other", number=1)
    fill(large, texts(200))
    archiver = Archiver(volume_turns_max=256, quantised_from=128, renewed_every_s=60.0)

    def tended() -> int:
        large.fold()
        large.block(ANN)
        made = 0
        while archiver.tend_shard(large.shard):
            made += 1
        archiver.tend_shard(other.shard)
        return made

    def delete(at: int) -> None:
        turn = ask(large, f"number1x{at}", "lexical").found[0].turn
        large.do(DeleteTurn(ANN, turn.session, turn.id))

    assert tended()
    delete(30)
    tended()
    delete(60)
    assert tended() == 0


def test_archives_take_up_what_a_backfill_brings_once_it_rests_and_drop_a_released_version(
    opened: Callable[..., OneShard],
) -> None:
    large = opened(owner_turns_resident=RESIDENT)
    archiver = Archiver(volume_turns_max=64, renewed_every_s=0.0)
    fill(large, texts(240))
    large.shard.hold(NEW.version)
    held = partial(_with_vectors, large, archiver)
    assert held(NEW.version.name) == 0
    turns = large.shard.turns(ANN, list(range(1, 1_000)))
    backfill(large, turns[:100])
    archived = large.shard.archives.of(ANN)
    assert archived is not None
    assert held(NEW.version.name) == held(NEW.version.name) == 100
    backfill(large, turns[100:])
    assert held(NEW.version.name) == sum(len(volume.seqs) for volume in archived.volumes)
    large.shard.release(VERSION.name)
    assert held(VERSION.name) == 0
    assert held(NEW.version.name) > 100


def test_what_a_backfill_brings_is_found_before_archives_take_it_up(opened: Callable[..., OneShard]) -> None:
    large = opened(owner_turns_resident=RESIDENT)
    rare, often = (Archiver(volume_turns_max=64, renewed_every_s=every_s) for every_s in (60.0, 0.0))
    said = texts(240)
    fill(large, said)
    _with_vectors(large, rare, VERSION.name)
    large.shard.hold(NEW.version)
    backfill(large, large.shard.turns(ANN, list(range(1, 1_000))))
    assert _with_vectors(large, rare, NEW.version.name) < len(said) - RESIDENT
    assert _missed(large, said) == []
    assert not whole(large, NEW.version.name)
    assert whole(large, VERSION.name)
    assert _with_vectors(large, often, NEW.version.name) > RESIDENT
    assert _missed(large, said) == []
    assert whole(large, NEW.version.name)


def test_what_comes_apart_while_a_volume_is_made_is_taken_up_later(opened: Callable[..., OneShard]) -> None:
    large = opened(owner_turns_resident=RESIDENT)
    archiver = Archiver(volume_turns_max=1_024, renewed_every_s=0.0)
    said = texts(240)
    large.shard.hold(NEW.version)
    fill(large, said)
    large.fold()
    backfill(large, large.shard.turns(ANN, list(range(1, 200))))
    large.shard.block(ANN)
    assert archiver.tend_shard(large.shard)
    large.fold()
    assert not whole(large, NEW.version.name)
    assert _missed(large, said[:100]) == []
    assert _with_vectors(large, archiver, NEW.version.name) > RESIDENT
    assert whole(large, NEW.version.name)


def whole(shard: OneShard, version: str) -> bool:
    found = shard.shard.archives.of(ANN)
    assert found is not None
    return bool(found.volumes) and found.whole(version)


def _missed(shard: OneShard, said: Sequence[str]) -> list[str]:
    """Of texts those that are not found by their own vectors under the new version."""
    held, missed = shard.shard, []
    for text in said[::7]:
        encoded = EncodedQuery(NEW.version.name, NEW.embed([text])[0])
        question = Question(text, "dense", 3, shard.clock.now)
        later, archive = partial(unfolded, held), held.archives.of(ANN)
        answer = search(held.block(ANN), question, encoded, held.table, held.turns, later, archive=archive)
        missed += [text] if text not in [one.turn.text for one in answer.found] else []
    return missed


NEW = HashEmbedder(32)


def backfill(shard: OneShard, turns: Sequence[Turn]) -> None:
    items = [BackfillItem(ANN, vectors_of(turn, 1, NEW)) for turn in turns]
    put_backfill(shard.writer, NEW.version.name, items)


def _with_vectors(shard: OneShard, archiver: Archiver, version: str) -> int:
    """Vectors of a version in the archive, after some rounds."""
    shard.fold()
    shard.block(ANN)
    for _ in range(20):
        archiver.tend_shard(shard.shard)
    found = shard.shard.archives.of(ANN)
    assert found is not None
    return sum(len(volume.vectors[version].turns) for volume in found.volumes if version in volume.vectors)
