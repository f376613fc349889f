"""Where calendars and clocks are awkward: clock changes, ends of months and years, leap days, midnight, zones."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone
from types import ModuleType

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from serve_app.retrieve.when import read_window
from serve_app.retrieve.when.holidays import EASTER_WEEKEND, MID_AUTUMN
from serve_app.retrieve.when.periods import easter
from serve_app.retrieve.when.reading import MENTIONS_MAX, read
from tests.retrieve.when import test_chinese as chinese
from tests.retrieve.when import test_english as english
from tests.retrieve.when import test_japanese as japanese
from tests.retrieve.when import test_spanish as spanish
from tests.retrieve.when.clocks import EPOCH, wall, window

NEW_YORK = "America/New_York"


@pytest.mark.parametrize(
    ("query", "now", "start", "end"),
    [
        ("yesterday", "2025-01-01T00:10:00+00:00", "2024-12-31", "2025-01-01"),
        ("last week", "2025-01-01T09:00:00+00:00", "2024-12-23", "2024-12-30"),
        ("this week", "2025-01-01T09:00:00+00:00", "2024-12-30", "2025-01-06"),
        ("last month", "2025-01-31T09:00:00+00:00", "2024-12-01", "2025-01-01"),
        ("last month", "2025-03-31T09:00:00+00:00", "2025-02-01", "2025-03-01"),
        ("next month", "2025-12-31T09:00:00+00:00", "2026-01-01", "2026-02-01"),
        ("exactly one month ago", "2025-03-31T09:00:00+00:00", "2025-02-28", "2025-03-01"),
        ("exactly a year ago", "2024-02-29T09:00:00+00:00", "2023-02-28", "2023-03-01"),
        ("in the past month", "2025-03-31T09:00:00+00:00", "2025-02-28T09:00", "2025-03-31T09:00"),
        ("on 29 February", "2025-03-12T09:00:00+00:00", "2024-02-29", "2024-03-01"),
        ("on 29 February", "2023-03-12T09:00:00+00:00", "2020-02-29", "2020-03-01"),
        ("on the 31st", "2025-03-12T09:00:00+00:00", "2025-01-31", "2025-02-01"),
        ("on the 30th", "2025-03-12T09:00:00+00:00", "2025-01-30", "2025-01-31"),
        ("on the 12th", "2025-03-12T00:00:00+00:00", "2025-03-12", "2025-03-13"),
        ("end of February", "2024-03-12T09:00:00+00:00", "2024-02-23", "2024-03-01"),
        ("last Monday", "2025-03-10T09:00:00+00:00", "2025-03-03", "2025-03-04"),
        ("last Sunday", "2025-03-10T00:00:00+00:00", "2025-03-09", "2025-03-10"),
        ("on Monday", "2025-03-10T23:59:00+00:00", "2025-03-03", "2025-03-04"),
        ("this weekend", "2025-03-16T09:00:00+00:00", "2025-03-15", "2025-03-17"),
        ("last weekend", "2025-03-16T09:00:00+00:00", "2025-03-08", "2025-03-10"),
        ("last night", "2025-03-12T00:05:00+00:00", "2025-03-11T18:00", "2025-03-12"),
        ("last quarter", "2025-01-15T09:00:00+00:00", "2024-10-01", "2025-01-01"),
        ("last summer", "2025-07-15T09:00:00+00:00", "2024-06-01", "2024-09-01"),
        ("this winter", "2025-01-15T09:00:00+00:00", "2024-12-01", "2025-03-01"),
        ("this winter", "2025-11-15T09:00:00+00:00", "2025-12-01", "2026-03-01"),
        ("last winter", "2025-01-15T09:00:00+00:00", "2023-12-01", "2024-03-01"),
        ("in January", "2025-01-01T00:00:00+00:00", "2025-01-01", "2025-02-01"),
        ("in Q1", "2025-01-01T00:00:00+00:00", "2025-01-01", "2025-04-01"),
        ("between November and February", "2025-03-12T09:00:00+00:00", "2024-11-01", "2025-03-01"),
        ("between October and November", "2025-10-12T09:00:00+00:00", "2025-10-01", "2025-12-01"),
        ("three weeks ago", "2025-01-05T09:00:00+00:00", "2024-12-09", "2024-12-16"),
        ("20 minutes ago", "2025-01-01T00:10:00+00:00", "2024-12-31T23:35", "2025-01-01T00:05"),
        ("Thanksgiving", "2025-11-28T09:00:00+00:00", "2025-11-27", "2025-11-28"),
        ("春节", "2026-02-20T09:00:00+08:00", "2026-02-16", "2026-02-24"),
        ("除夕", "2025-01-28T09:00:00+08:00", "2025-01-28", "2025-01-29"),
        ("中秋节", "2024-09-20T09:00:00+08:00", "2024-09-17", "2024-09-18"),
        ("今年冬天", "2025-01-12T09:00:00+08:00", "2024-12-01", "2025-03-01"),
        ("上个月", "2025-01-02T20:00:00+08:00", "2024-12-01", "2025-01-01"),
        ("周日", "2025-03-09T20:00:00+08:00", "2025-03-02", "2025-03-03"),
        ("先週の日曜日", "2025-03-10T09:00:00+09:00", "2025-03-09", "2025-03-10"),
        ("el domingo", "2025-03-10T09:00:00+01:00", "2025-03-09", "2025-03-10"),
    ],
)
def test_ends_of_weeks_months_and_years(query: str, now: str, start: str, end: str) -> None:
    locale = "es-ES" if query.startswith("el ") else None
    assert wall(query, now, locale) == (start, end)


@pytest.mark.parametrize(
    ("query", "now", "tz", "start", "end"),
    [
        # New York: clocks go forward on 9 March 2025 at 02:00, back on 2 November 2025 at 02:00.
        ("yesterday", "2025-03-10T08:00:00-04:00", NEW_YORK, "2025-03-09T00:00-05:00", "2025-03-10T00:00-04:00"),
        ("last week", "2025-03-12T08:00:00-04:00", NEW_YORK, "2025-03-03T00:00-05:00", "2025-03-10T00:00-04:00"),
        ("the past 3 days", "2025-03-10T08:00:00-04:00", NEW_YORK, "2025-03-07T08:00-05:00", "2025-03-10T08:00-04:00"),
        ("just now", "2025-03-09T03:10:00-04:00", NEW_YORK, "2025-03-09T01:40-05:00", "2025-03-09T03:10-04:00"),
        ("yesterday", "2025-11-03T08:00:00-05:00", NEW_YORK, "2025-11-02T00:00-04:00", "2025-11-03T00:00-05:00"),
        ("just now", "2025-11-02T01:10:00-05:00", NEW_YORK, "2025-11-02T00:40-04:00", "2025-11-02T01:10-05:00"),
        ("in July", "2025-12-01T08:00:00+01:00", "Europe/Madrid", "2025-07-01T00:00+02:00", "2025-08-01T00:00+02:00"),
        # Without clock changes, with half hours, and a zone that skipped a whole day: 30 December 2011.
        ("yesterday", "2025-03-10T08:00+05:45", "Asia/Kathmandu", "2025-03-09T00:00+05:45", "2025-03-10T00:00+05:45"),
        ("last week", "2012-01-03T08:00:00+14:00", "Pacific/Apia", "2011-12-26T00:00-10:00", "2012-01-02T00:00+14:00"),
        # The zone decides what day it is, not the offset in which `now` happens to be written.
        ("today", "2025-03-10T23:30:00+00:00", "Asia/Tokyo", "2025-03-11T00:00+09:00", "2025-03-12T00:00+09:00"),
        ("today", "2025-03-10T02:00:00Z", "America/Los_Angeles", "2025-03-09T00:00-08:00", "2025-03-10T00:00-07:00"),
    ],
)  # fmt: skip
def test_changes_of_the_clock(query: str, now: str, tz: str, start: str, end: str) -> None:
    found = window(query, now, tz=tz)
    assert found is not None
    assert found.start is not None
    assert found.end is not None
    assert [found.start.isoformat("T", "minutes"), found.end.isoformat("T", "minutes")] == [start, end]


@pytest.mark.parametrize(
    ("locale", "now", "start"),
    [
        ("en-US", "2025-03-12T15:30:00-04:00", "2025-01-01T00:00-05:00"),
        ("en_US.UTF-8", "2025-03-12T15:30:00-04:00", "2025-01-01T00:00-05:00"),
        ("en-GB", "2025-06-12T15:30:00+01:00", "2025-01-01T00:00+00:00"),
        ("en-US", "2025-08-12T15:30:00-07:00", "2025-01-01T00:00-08:00"),
        ("zh-Hant-TW", "2025-06-12T15:30:00+08:00", "2025-01-01T00:00+08:00"),
        ("en-GB", "2025-06-12T15:30:00+09:00", "2025-01-01T00:00+09:00"),  # travelling: the offset is what is known
        ("en", "2025-06-12T15:30:00+02:00", "2025-01-01T00:00+02:00"),
        (None, "2025-06-12T15:30:00+02:00", "2025-01-01T00:00+02:00"),
        ("xx-ZZ", "2025-06-12T15:30:00+02:00", "2025-01-01T00:00+02:00"),
    ],
)
def test_a_region_tells_of_clock_changes_where_the_offset_is_one_of_its_own(
    locale: str | None, now: str, start: str
) -> None:
    found = window("in January", now, locale)
    assert found is not None
    assert found.start == datetime.fromisoformat(start)


@pytest.mark.parametrize(
    ("query", "locale", "start"),
    [
        ("on 5/7/2023", "en-US", "2023-05-07"),
        ("on 5/7/2023", "en-GB", "2023-07-05"),
        ("am 5.7.2023", "de-DE", "2023-07-05"),
        ("on 24/11/09", "zh-CN", "2024-11-09"),
        ("on 24/11/09", "en-GB", "2009-11-24"),
        ("on 25/12/2023", "en-US", "2023-12-25"),
        ("2023-05-07说了什么", "zh-CN", "2023-05-07"),
        ("２０２３年５月７日说了什么", "zh-CN", "2023-05-07"),
    ],
)
def test_numeric_dates_follow_the_locale(query: str, locale: str, start: str) -> None:
    read = wall(query, "2025-03-12T15:30:00+00:00", locale)
    assert read is not None
    assert read[0] == start


def test_words_that_only_hint_are_not_certain() -> None:
    certain = {q: window(q, "2025-03-12T15:30:00+00:00") for q in ("yesterday", "a few days ago", "前几天", "三天前")}
    assert {query: found and found.certain for query, found in certain.items()} == {
        "yesterday": True,
        "a few days ago": False,
        "前几天": False,
        "三天前": True,
    }


def test_of_several_times_the_first_past_one_counts() -> None:
    assert wall("the trip next week that I mentioned yesterday", "2025-03-12T15:30:00+00:00") == (
        "2025-03-11",
        "2025-03-12",
    )


@pytest.mark.parametrize(
    ("year", "day"), [(2000, (4, 23)), (2008, (3, 23)), (2024, (3, 31)), (2025, (4, 20)), (2038, (4, 25))]
)
def test_easter(year: int, day: tuple[int, int]) -> None:
    assert (easter(year).month, easter(year).day) == day
    assert EASTER_WEEKEND(year).start.weekday() == 4


def test_the_chinese_calendar_says_where_its_table_ends() -> None:
    with pytest.raises(ValueError, match="1901 to 2099"):
        MID_AUTUMN(2150)
    assert wall("中秋节", "2150-03-12T15:30:00+08:00") is None


WORDS = st.sampled_from(
    [
        *(
            "yesterday",
            "last week",
            "Monday",
            "3 days ago",
            "since",
            "before May",
            "Christmas",
            "the 15th",
            "in Q2",
            "now",
        ),
        *(
            "to",
            "and",
            "between",
            "until",
            "昨天",
            "上周三",
            "三个月前",
            "春节",
            "到",
            "以前",
            "从",
            "最近两周",
            "晚上",
        ),
        *(
            "先週",
            "の",
            "月曜日",
            "3日前",
            "から",
            "まで",
            "ayer",
            "hace dos semanas",
            "hasta",
            "el lunes",
            "2024",
            "29",
        ),
        *("31", "99999 years ago", "weekend", "月底", "年"),
    ]
)
MOMENTS = st.datetimes(datetime(1905, 1, 1), datetime(2090, 12, 31), timezones=st.just(UTC))  # noqa: DTZ001
ZONES = st.sampled_from(
    [
        "UTC",
        "America/New_York",
        "Europe/London",
        "Asia/Shanghai",
        "Australia/Lord_Howe",
        "Pacific/Apia",
        "Asia/Kathmandu",
    ]
)


@settings(deadline=None)  # other programs share the machine
@given(st.lists(WORDS, max_size=8), MOMENTS, ZONES)
def test_any_words_give_a_window_with_an_order_or_none(words: list[str], now: datetime, tz: str) -> None:
    query, instant = " ".join(words), (now - EPOCH) // timedelta(microseconds=1)
    found = read_window(query, instant, tz=tz)
    assert found == read_window(query, instant, tz=tz)
    if found is not None:
        assert found.start is not None or found.end is not None
        assert found.start is None or found.start.utcoffset() is not None
        start, end = found.bounds
        assert start < end


PHRASES = st.sampled_from([named[0] for one in (chinese, english, japanese, spanish) for named in one.NAMED])
LOCALES = st.sampled_from([None, "en-US", "en-GB", "es-ES", "ja-JP", "zh-CN"])


@settings(deadline=None)
@given(PHRASES, PHRASES, WORDS, st.integers(0, 40), LOCALES, MOMENTS)
def test_whatever_stands_beside_or_inside_a_phrase_breaks_nothing(
    first: str, second: str, word: str, at: int, locale: str | None, now: datetime
) -> None:
    instant = (now - EPOCH) // timedelta(microseconds=1)
    for query in (first + second, f"{first} {word} {second}", first[:at] + word + first[at:]):
        found = read_window(query, instant, locale=locale)
        assert found is None or found.bounds[0] < found.bounds[1]


@settings(deadline=None)  # other programs share the machine
@given(st.text(max_size=80), MOMENTS)
def test_any_text_can_be_read(query: str, now: datetime) -> None:
    read_window(query, (now - EPOCH) // timedelta(microseconds=1))


@settings(deadline=None)  # other programs share the machine
@given(
    st.sampled_from(["yesterday", "last week", "two months ago", "昨天晚上", "上周三", "去年国庆", "since Monday"]),
    MOMENTS,
    st.integers(-11, 13),
)
def test_the_same_clock_reads_the_same_in_every_zone(query: str, now: datetime, hours: int) -> None:
    here = wall(query, now.isoformat())
    assert here == wall(query, now.replace(tzinfo=timezone(timedelta(hours=hours))).isoformat())


@settings(deadline=None)  # other programs share the machine
@given(MOMENTS, ZONES)
def test_today_holds_now_and_yesterday_comes_before_it(now: datetime, tz: str) -> None:
    instant = (now - EPOCH) // timedelta(microseconds=1)
    today, yesterday = read_window("today", instant, tz=tz), read_window("yesterday", instant, tz=tz)
    assert today is not None
    assert yesterday is not None
    assert today.bounds[0] <= instant < today.bounds[1]
    assert yesterday.bounds[1] == today.bounds[0]


@pytest.mark.parametrize("now", ["0001-01-01T00:00:00+00:00", "9999-12-31T23:59:59+00:00", "0001-01-01T00:00:00+14:00"])
@pytest.mark.parametrize("query", ["yesterday", "tomorrow", "last year", "3000 years ago", "春节", "in May"])
def test_at_the_ends_of_time_nothing_breaks(query: str, now: str) -> None:
    moment = datetime.fromisoformat(now).replace(tzinfo=None)
    instant = (moment.replace(tzinfo=UTC) - EPOCH) // timedelta(microseconds=1)
    read_window(query, instant)


ODD_LETTERS = [("i", "i", "\u0131"), ("i", "I", "\u0130"), ("s", "s", "\u017f"), ("k", "K", "\u212a")]


@pytest.mark.parametrize(("written", "usual", "odd"), ODD_LETTERS)
@pytest.mark.parametrize(("language", "locale"), [(english, "en-US"), (spanish, "es-ES")])
def test_letters_that_only_look_like_i_s_and_k_are_read_as_they_look(
    language: ModuleType, locale: str, written: str, usual: str, odd: str
) -> None:
    """A pattern without regard to case takes them for those, and in lower case they are in no list of words."""
    for query, *_ in language.NAMED:
        here, there = query.replace(written, usual), query.replace(written, odd)
        assert wall(there, language.NOW, locale) == wall(here, language.NOW, locale)


@pytest.mark.parametrize("words", ["3日到", "5月到", "3 May to ", "5/7 - ", "de mayo a ", "3日から"])
def test_a_chain_of_ranges_is_bounded(words: str) -> None:
    """Each pair of a chain may be a range: only so many are tried."""
    query = words * (400 // len(words))
    tried = sum(1 for _ in read(query, datetime.fromisoformat("2025-03-12T09:00")))
    assert tried <= 2 * MENTIONS_MAX
