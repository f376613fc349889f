"""Units on their way: what is refused, what is tried again, and in how large parts."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest

from jobs import link as links
from jobs.embedding import Embedded
from jobs.link import Away, Beats, Link, Refused, Sink
from jobs.stub_service import StubService
from serve_app.migrate.units import Item, Units
from serve_app.models.stub import HashEmbedder
from serve_app.records import TurnVectors


@pytest.fixture
def service() -> Iterator[StubService]:
    fake = StubService(HashEmbedder(64).version, {"model": "hash-64"}, [1_000])
    yield fake
    fake.close()


@pytest.fixture
def link(service: StubService) -> Iterator[Link]:
    link = Link(service.url, "key", "m1", wait_max_s=5.0)
    yield link
    link.close()


def _items(count: int, size: int = 128) -> tuple[Item, ...]:
    return tuple(Item("o", TurnVectors(seq, seq, "s", f"t{seq}", bytes(size))) for seq in range(1, count + 1))


def test_a_claim_waits_for_a_job_that_was_killed(service: StubService, link: Link) -> None:
    service.refusals = [(409, "migration_claimed")]
    claim = link.claim("w", wait_s=5.0)
    assert (claim.fence, claim.shards[0].through, claim.options) == (1, 1_000, {"model": "hash-64"})


def test_a_claim_is_refused_while_another_job_lives(service: StubService, link: Link) -> None:
    service.refusals = [(409, "migration_claimed")] * 100
    with pytest.raises(Refused) as refused:
        link.claim("w", wait_s=0.0)
    assert refused.value.code == "migration_claimed"


@pytest.mark.parametrize("status", [429, 503, 507])
def test_what_is_refused_for_now_is_sent_again(service: StubService, link: Link, status: int) -> None:
    fence = link.claim("w").fence
    service.refusals = [(status, "overloaded")]
    assert link.put(Units(fence, 0, _items(3), done=(1, 256))).written == 3
    assert len(service.units) == 2
    assert service.done == [((1, 256),)]


def test_a_service_that_stays_away_ends_the_job(service: StubService) -> None:
    link = Link(service.url, "key", "m1", wait_max_s=0.0)
    fence = link.claim("w").fence
    service.refusals = [(503, "not_ready")] * 100
    with pytest.raises(Away):
        link.put(Units(fence, 0, _items(1)))


def test_an_older_fence_is_refused_at_once(service: StubService, link: Link) -> None:
    fence = link.claim("w").fence
    link.claim("other")
    with pytest.raises(Refused) as refused:
        link.put(Units(fence, 0, _items(1)))
    assert refused.value.code == "migration_fenced"


def test_a_unit_goes_in_parts_of_which_the_last_says_done(service: StubService, link: Link) -> None:
    fence = link.claim("w").fence
    beats = Beats(link, fence)
    count = 2 * links.CALL_BYTES // 100_000 + 1
    taken = Sink(link, fence, beats).send(Embedded(0, 1, 256, _items(count, 100_000), cold=2))
    beats.close()
    assert taken.written == count
    assert [one.done for one in service.units] == [None, None, (1, 256)]
    assert sum(len(one.items) for one in service.units) == count


def test_a_unit_without_vectors_is_done_as_well(service: StubService, link: Link) -> None:
    fence = link.claim("w").fence
    beats = Beats(link, fence)
    Sink(link, fence, beats).send(Embedded(0, 257, 512))
    beats.close()
    assert service.done == [((257, 512),)]


def test_beats_bring_how_much_to_rest_and_tell_when_it_is_over(service: StubService, link: Link) -> None:
    fence = link.claim("w").fence
    heard: list[float] = []
    service.rest_s = 4.0
    beats = Beats(link, fence, every_s=0.02)
    with beats.telling(heard.append):
        _wait_until(lambda: 4.0 in heard)
    count = len(heard)
    link.claim("other")
    _wait_until(lambda: beats.refused is not None)
    assert len(heard) == count
    with pytest.raises(Refused):
        Sink(link, fence, beats).send(Embedded(0, 1, 256, _items(1)))
    beats.close()


def _wait_until(true: object, seconds: float = 5.0) -> None:
    end = time.monotonic() + seconds
    while not true():  # type: ignore[operator]
        assert time.monotonic() < end
        time.sleep(0.01)
