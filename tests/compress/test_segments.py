"""Topics by words: no turn is lost, a later one moves no border, and titles are of a topic's own words."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from serve_app.compress.segments import REST_S, TURNS_MAX, segments, topics
from serve_app.core import SECOND_US, FieldExpiry, Turn
from tests.compress.saying import said

PAINTING = (
    "The watercolour needs thin layers, cobalt pigment, cotton paper and a sable brush before the varnish dries {}."
)
FINANCE = (
    "Our mortgage lender raised the interest, so monthly instalments, taxes and insurance premiums grew by {} percent."
)
HOTEL = "酒店预订需要确认入住日期和早餐，海景房价格比标准间贵{}。"
CODE = "数据库迁移脚本报错，索引重建失败，日志显示连接超时{}。"


def of(*subjects: str, each: int = 10) -> list[Turn]:
    return said(*(subject.format(number) for subject in subjects for number in range(each)))


@pytest.mark.parametrize(("first", "second"), [(PAINTING, FINANCE), (HOTEL, CODE), (FINANCE, HOTEL)])
def test_another_subject_is_another_topic(first: str, second: str) -> None:
    turns = of(first, second)
    assert [(one.first, one.end) for one in segments(turns)] == [(0, 10), (10, 20)]


def test_titles_are_of_the_topics_own_words() -> None:
    turns = of(PAINTING, HOTEL)
    painting, hotel = (topic.title for topic in topics(turns))
    assert "watercolour" in painting
    assert "酒店" in hotel
    assert "the" not in painting.lower().split(", ")


@pytest.mark.parametrize("ends", [{"expires_at": 2**60}, {"fields_expire": (FieldExpiry(2**60, "$.a"),)}])
def test_what_expires_gives_a_title_no_word(ends: dict[str, object]) -> None:
    """The title is shown as long as the summary, and looked at by nobody when a turn expires."""
    turns = [*said("Passphrase passphrase swordfish!", **ends), *said(PAINTING.format(5), first=4)]
    (topic,) = topics(turns, segments(turns))
    assert "watercolour" in topic.title
    assert not {"passphrase", "swordfish"} & set(topic.title.lower().split(", "))
    (only,) = topics(turns[:1], segments(turns[:1]))
    assert (only.title, only.turns) == ("", 1)


def test_one_subject_is_one_topic_and_a_rest_ends_it() -> None:
    turns = of(PAINTING, each=30)
    assert len(segments(turns)) == 1
    later = [
        msgspec.structs.replace(turn, created_at=turn.created_at + (REST_S * SECOND_US if number >= 15 else 0))
        for number, turn in enumerate(turns)
    ]
    assert [(one.first, one.end) for one in segments(later)] == [(0, 15), (15, 30)]
    assert max(one.end - one.first for one in segments(of(PAINTING, each=TURNS_MAX * 2))) <= TURNS_MAX


def test_a_tools_result_stays_with_its_call() -> None:
    turns = [*of(PAINTING), *said(FINANCE.format(1), role="tool", first=20)]
    assert len(segments(turns)) == 1


@given(contents=st.lists(st.sampled_from([PAINTING, FINANCE, HOTEL, CODE, "ok", "", "?"]), min_size=1, max_size=60))
@settings(max_examples=60, deadline=None)
def test_a_later_turn_moves_no_border(contents: list[str]) -> None:
    turns = said(*contents)
    whole = segments(turns)
    assert [number for one in whole for number in range(one.first, one.end)] == list(range(len(turns)))
    for length in range(1, len(turns), 7):
        assert [one.first for one in segments(turns[:length])] == [one.first for one in whole if one.first < length]
        assert topics(turns)[: len(segments(turns[:length])) - 1] == topics(turns[:length])[:-1]
