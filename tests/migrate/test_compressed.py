"""The gate of a compressor: what it lets through, what it stops and why, and on whose sessions it is asked."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import msgspec
import pytest
from msgspec.structs import replace

from serve_app.compress.compressor import Compressed, Compressor
from serve_app.context.tokens import open_tokenizer
from serve_app.core import Owner, Turn
from serve_app.memory.compressors import Compressors, Opened
from serve_app.memory.configurations import set_in
from serve_app.migrate.compressed import CompressorFigures, CompressorGates, decided
from serve_app.migrate.page import page
from serve_app.migrate.record import Gate, Migration, State, Terms
from serve_app.migrate.report import of_migration
from serve_app.migrate.sessions import Sampling
from serve_app.migrate.trials import CompressorTrials
from serve_app.models.summarise import CompressOptions
from serve_app.observe.costs import PriceOptions
from serve_app.ports import Tokenizer
from serve_app.routing import drawn
from serve_app.stores.documents_disk import DiskDocuments
from serve_app.stores.golden_file import Golden, GoldenFiles, GoldTurn
from tests.compress.saying import Scripted, heads
from tests.memory.test_serving import BY_MODEL
from tests.write.shards import OneShard

OWNERS = [Owner("acme", f"user-{n}").key for n in range(6)]


class Forgetful(Compressor):
    """Sums up the beginning of a conversation alone."""

    def afresh(self) -> Compressor:
        return type(self)()

    @property
    def version(self) -> str:
        return f"{type(self).__name__}-1"

    def compress(
        self, turns: Sequence[Turn], target_tokens: int, tokenizer: Tokenizer, deadline_s: float | None = None
    ) -> Compressed:
        return super().compress(turns[:3], target_tokens, tokenizer, deadline_s)


class Wordy(Forgetful):
    """Takes what room it likes."""

    def compress(
        self, turns: Sequence[Turn], target_tokens: int, tokenizer: Tokenizer, deadline_s: float | None = None
    ) -> Compressed:
        return Compressor.compress(self, turns, 3 * target_tokens, tokenizer, deadline_s)


class Wavering(Forgetful):
    """Says another word each time."""

    said = itertools.count()

    def compress(
        self, turns: Sequence[Turn], target_tokens: int, tokenizer: Tokenizer, deadline_s: float | None = None
    ) -> Compressed:
        made = Compressor.compress(self, turns, max(1, target_tokens - 8), tokenizer, deadline_s)
        return made._replace(text=f"{made.text}\nword{next(self.said)}")


class Helpless(Forgetful):
    """Its models give nothing; what it quotes is all there."""

    def compress(
        self, turns: Sequence[Turn], target_tokens: int, tokenizer: Tokenizer, deadline_s: float | None = None
    ) -> Compressed:
        return Compressor.compress(self, turns, target_tokens, tokenizer, deadline_s)._replace(
            reasons=("coarse: down",)
        )


class Place:
    def __init__(self, folder: Path, new: Callable[[], Compressor]) -> None:
        def opened(options: CompressOptions) -> Opened:
            compressor = new() if options.coarse.model else Compressor()
            return Opened(options, compressor, compressor)

        self.shard = OneShard(folder / "store")
        self.golden = GoldenFiles(DiskDocuments(folder))
        self.compressors = Compressors(CompressOptions(), opened)
        self.compressors.add(BY_MODEL)
        self.prices = PriceOptions()

    def gate(self, state: State = "verify", stopped: Callable[[], bool] = lambda: False, **terms: float) -> Gate | None:
        names = {"was_names": (Compressor().version,), "names": ("new",)}
        migration = Migration("m1", "compressor", state, 0, Terms(**terms), options=set_in(BY_MODEL), **names)
        sampling = Sampling([self.shard.writer], self.golden, lambda: 1_900_000_000_000_000)
        gates = CompressorGates(self.compressors, sampling, open_tokenizer(), lambda: 7, self.prices, rest_share=0.0)
        return gates.of(migration, state, stopped)

    def figures(self, gate: Gate | None) -> CompressorFigures:
        assert gate is not None
        return msgspec.convert(gate.figures, CompressorFigures)


@pytest.fixture
def place(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Place]:
    made = Place(tmp_path, getattr(request, "param", Compressor))
    yield made
    made.shard.close()


def fill(place: Place, owners: Sequence[str] = OWNERS) -> None:
    """Conversations that bind at their ends, and golden queries about that."""
    for number, owner in enumerate(owners):
        talk = [f"The {thing} near the harbour looks rather old to me today." for thing in ("boat", "kite", "lamp")] * 3
        binding = [f"I am allergic to {thing}, so never cook with it." for thing in ("peanuts", "celery", "mustard")]
        price = f"The budget is exactly {100 + number} euros and not one more."
        place.shard.say(owner, "s", *talk, *binding, price)
        block = place.shard.block(owner)
        index = block.sessions["s"]
        turn_id, seq = list(index.ids.items())[-1]
        named = Owner.from_key(owner)
        asked = Golden("", named.user, "What is the budget?", (GoldTurn("s", turn_id, seq, None),), number)
        place.golden.add(named.tenant, asked, "off")


def test_the_same_again_passes_and_says_what_it_was_asked_on(place: Place) -> None:
    fill(place)
    gate = place.gate()
    assert gate is not None
    assert (gate.verdict, gate.state, gate.at) == ("passed", "verify", 7)
    made = place.figures(gate)
    assert (made.dialogues, made.sessions, made.golden) == (12, len(OWNERS), len(OWNERS))
    assert made.bound_own >= 4 * len(OWNERS)
    assert made.apart == 0.0
    assert made.base.standing == made.target.standing == 1.0
    assert made.base.shown == made.target.shown == 1.0
    assert made.base.retention == made.target.retention > 0.9
    told = page(of_migration(Migration("m1", "compressor", "verify", 0, Terms(), gates=(gate,), names=("new",))))
    assert "Standing of what binds, 6 sessions" in told
    assert "allergic" not in told
    assert "allergic" not in msgspec.json.encode(gate).decode()
    assert "user-" not in msgspec.json.encode(gate).decode()


@pytest.mark.parametrize(
    ("place", "verdict", "why"),
    [
        (Forgetful, "failed", "what must be kept of packaged dialogues"),
        (Wordy, "failed", "longer than they may be"),
        (Wavering, "failed", "two summaries of one conversation differ"),
        (Helpless, "undecided", "without its models"),
    ],
    indirect=["place"],
)
def test_one_that_is_worse_does_not_pass_and_the_reason_is_told(place: Place, verdict: str, why: str) -> None:
    gate = place.gate()
    assert gate is not None
    assert gate.verdict == verdict
    assert any(why in reason for reason in gate.reasons)


@pytest.mark.parametrize("place", [Forgetful], indirect=True)
def test_what_binds_in_sessions_of_the_store_counts_by_itself(place: Place) -> None:
    fill(place)
    made = place.figures(place.gate())
    assert made.target.standing == 0.0
    kind = replace(made.target, retention=made.base.retention)
    verdict, reasons = decided(replace(made, target=kind), Terms())
    assert verdict == "failed"
    assert "sessions of the store: 0.000 against 1.000" in reasons[0]
    few = replace(made, target=kind, bound_own=3)
    assert decided(few, Terms())[0] == "passed"


def test_a_model_may_say_what_it_likes_since_what_binds_is_quoted(tmp_path: Path) -> None:
    place = Place(tmp_path, lambda: Compressor(Scripted(heads, name="m")))
    fill(place)
    assert place.gate().verdict == "passed"  # type: ignore[union-attr]
    place.shard.close()


def test_in_the_canary_the_sessions_are_of_its_users(place: Place) -> None:
    fill(place)
    share = sorted(drawn("m1", owner) for owner in OWNERS)[2] + 1e-9
    assert place.figures(place.gate("canary", canary_share=share)).sessions == 3
    assert place.figures(place.gate("canary", canary_share=0.0)).sessions == 0


def test_sessions_of_others_are_taken_where_no_golden_queries_are_and_short_ones_are_not(place: Place) -> None:
    place.shard.say(OWNERS[0], "s", *(f"Turn {n} says something." for n in range(8)))
    place.shard.say(OWNERS[1], "s", "One turn.", "Two.")
    place.shard.fold()
    made = place.figures(place.gate())
    assert (made.sessions, made.golden) == (1, 0)
    assert made.base.shown is None


def test_prices_make_costs_of_seconds_and_tokens(place: Place) -> None:
    place.prices = PriceOptions(per_million_tokens={"compress": 1e6})
    made = place.figures(place.gate())
    assert made.base.cost == made.target.cost > 1_000  # each token costs one, each summary reads hundreds


def test_it_is_stopped_between_conversations(place: Place) -> None:
    asked = itertools.count()
    assert place.gate(stopped=lambda: next(asked) >= 3) is None
    assert next(asked) == 4


def test_a_trial_is_opened_once_and_serves_the_gate(place: Place) -> None:
    migration = Migration("m1", "compressor", "prepare", 0, Terms(), options=set_in(BY_MODEL))
    fields = CompressorTrials(place.compressors).open(migration)
    assert fields["was"] == {}
    assert fields["was_names"] == (Compressor().version,)
