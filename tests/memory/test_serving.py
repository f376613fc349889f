"""What serves whom: a share of a trial, two migrations at once, moments before and after, and what is gone."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pytest
from msgspec.structs import replace

from serve_app.compress.compressor import Compressor
from serve_app.errors import InvalidRequest
from serve_app.memory.compressors import OPENED_MAX, Compressors, Opened
from serve_app.memory.configurations import name_of, set_in
from serve_app.memory.requests import AsOf
from serve_app.memory.rerankers import Rerankers
from serve_app.memory.reranking import RerankOptions
from serve_app.memory.serving import RERANKER_GONE, VERSION_GONE, Serving
from serve_app.models.stub import HashEmbedder
from serve_app.models.summarise import CompressOptions, SummariserOptions
from serve_app.ports import SummaryTask
from serve_app.routing import Choice, Epoch, Routing, VersionPlan
from tests.compress.saying import Scripted, heads

A, B = Routing.of(["hash_64"]), Routing.of(["hash_32"])
VERSIONS = {one.version.name: one.version for one in (HashEmbedder(64), HashEmbedder(32))}
LATE, BARE = RerankOptions(), RerankOptions(late=False)
EXTRACTIVE = CompressOptions()
BY_MODEL = CompressOptions(coarse=SummariserOptions(backend="openai", url="http://127.0.0.1:9", model="m"))
OWNERS = [f"t\x1fuser-{n}" for n in range(400)]


class Place:
    """`answer`: of the model of a compressor that has one."""

    def __init__(
        self,
        *epochs: Epoch,
        held: Sequence[str] = tuple(VERSIONS),
        answer: Callable[[SummaryTask], str] = heads,
    ) -> None:
        def opened(options: CompressOptions) -> Opened:
            compressor = Compressor(Scripted(answer, name=options.coarse.model) if options.coarse.model else None)
            return Opened(options, compressor, compressor)

        self.rerankers = Rerankers(LATE, VERSIONS.__getitem__)
        self.compressors = Compressors(EXTRACTIVE, opened)
        plan = VersionPlan(epochs or (Epoch(A),), tuple(held))
        self.serving = Serving(plan, self.rerankers, self.compressors, ("rules", "tokens"))

    def names(self, owner: str, **as_of: int) -> tuple[str, ...]:
        return self.serving.of(owner, as_of=AsOf(**as_of) if as_of else None).names


def test_a_share_of_the_owners_is_served_by_what_is_tried_and_nobody_else_notices() -> None:
    place = Place()
    before = place.names(OWNERS[0])
    assert "late" in before
    new = place.rerankers.add(BARE)
    trial = Choice(place.rerankers.base, new, 0.25, "m1")
    place.serving.change(place.serving.plan.followed_by(replace(place.serving.plan.now, reranker=trial)))
    served = {owner: place.names(owner) for owner in OWNERS}
    without = [owner for owner, names in served.items() if "late" not in names]
    assert 60 < len(without) < 140
    assert all(names == before for owner, names in served.items() if owner not in without)
    place.serving.change(place.serving.plan.followed_by(replace(place.serving.plan.now, reranker=Choice("", "", 0))))
    assert {place.names(owner) for owner in OWNERS} == {before}


def test_migrations_of_all_kinds_run_at_once_each_with_a_draw_of_its_own() -> None:
    place = Place()
    reranker = Choice(place.rerankers.base, place.rerankers.add(BARE), 0.5, "m2")
    compressor = Choice(place.compressors.base, place.compressors.add(BY_MODEL), 0.5, "m3")
    epoch = Epoch(A, target=B, share=0.5, migration="m1", reranker=reranker, compressor=compressor)
    place.serving.change(place.serving.plan.followed_by(epoch))
    served = [place.serving.of(owner) for owner in OWNERS]
    kinds = {(one.routing.primary, "late" in one.names, one.compressor) for one in served}
    assert len(kinds) == 8
    assert all(one.names[1] == one.compressor == place.compressors.of(owner).version
               for owner, one in zip(OWNERS, served, strict=True))  # fmt: skip


def test_as_of_a_moment_what_was_in_force_then_answers_while_it_is_open_and_else_says_so() -> None:
    place = Place()
    new = place.rerankers.add(BARE)
    old = place.rerankers.base
    model = place.compressors.add(BY_MODEL)
    epochs = (
        Epoch(A),
        Epoch(A, (100,), 1_000, reranker=Choice(old, new, 1.0, "m1")),
        Epoch(A, (200,), 2_000, reranker=Choice(old)),
        Epoch(A, (300,), 3_000, reranker=Choice(new), compressor=Choice(model)),
    )
    place.serving.change(VersionPlan(epochs, tuple(VERSIONS)))
    owner = OWNERS[0]
    for seq, time, late in ((50, 500, True), (150, 1_500, False), (250, 2_500, True), (350, 3_500, False)):
        assert ("late" in place.names(owner, seq=seq)) is late
        assert place.names(owner, time=time) == place.names(owner, seq=seq)
        assert place.serving.of(owner, as_of=AsOf(seq=seq)).reasons == ()
    place.rerankers.settle(new)
    place.rerankers.remove(old)
    gone = place.serving.of(owner, as_of=AsOf(seq=250))
    assert (gone.reasons, "late" in gone.names) == ((RERANKER_GONE,), False)
    assert place.serving.of(owner, as_of=AsOf(seq=50)).reasons == (RERANKER_GONE,)
    assert place.serving.of(owner, as_of=AsOf(seq=150)).reasons == ()
    assert place.serving.of(owner).reasons == ()


def test_a_version_that_is_gone_is_told_beside_a_reranker_that_is() -> None:
    epochs = (Epoch(A, reranker=Choice("gone")), Epoch(B, (100,), 1_000, reranker=Choice("")))
    place = Place(*epochs, held=["hash_32"])
    served = place.serving.of(OWNERS[0], as_of=AsOf(seq=1))
    assert served.routing == B
    assert served.reasons == (VERSION_GONE, RERANKER_GONE)
    assert served.names == place.names(OWNERS[0])


def test_summaries_of_old_are_named_as_they_were_made_when_their_compressor_is_gone() -> None:
    place = Place()
    model = place.compressors.add(BY_MODEL)
    version = place.compressors.version_of(model)
    epochs = (Epoch(A, compressor=Choice(model)), Epoch(A, (9,), 9, compressor=Choice(place.compressors.base)))
    place.serving.change(VersionPlan(epochs, tuple(VERSIONS)))
    then = place.names(OWNERS[0], seq=1)
    place.compressors.remove(model)
    assert then[1] == version
    assert place.names(OWNERS[0], seq=1) == then
    assert place.names(OWNERS[0])[1] == Compressor().version


def test_what_is_in_force_is_never_removed_and_there_are_not_too_many() -> None:
    place = Place()
    place.rerankers.remove(place.rerankers.base)
    assert place.rerankers.holds(place.rerankers.base)
    for number in range(1, OPENED_MAX):
        place.rerankers.add(RerankOptions(deadline_ms=100 + number))
    with pytest.raises(InvalidRequest, match="more than"):
        place.rerankers.add(BARE)


def test_a_configuration_is_called_by_what_is_set_and_not_by_what_is_left_out() -> None:
    assert name_of(RerankOptions(late=True, deadline_ms=250)) == name_of(RerankOptions())
    assert name_of(RerankOptions(deadline_ms=251)) != name_of(RerankOptions())
    assert set_in(BY_MODEL) == {"coarse": {"backend": "openai", "url": "http://127.0.0.1:9", "model": "m"}}
    assert set_in(EXTRACTIVE) == {}
