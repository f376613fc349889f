"""Ids are any text but control characters, byte for byte; times are RFC 3339 with an offset, in any year of theirs."""

import unicodedata

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from serve_app.api.ids import ID_CHARACTERS_MAX, identifier
from serve_app.api.times import format_time, parse_time
from serve_app.errors import InvalidRequest
from tests.api.running import Running, quoted, refused

STRANGE_IDS = [
    "a/b",
    "..",
    ".",
    "%2F",
    "a%00",
    "?x=1&y#z",
    "+ +",
    " ",
    "' OR '1'='1",
    '";--',
    "é",
    "e\u0301",
    "用户",
    "🙂" * ID_CHARACTERS_MAX,
    "\u2028\u200b\ufeff",
    "\ud7ff\ue000\U0010ffff",
    "x" * ID_CHARACTERS_MAX,
]
CONTROLS = [chr(code) for code in [*range(32), *range(127, 160)]]
texts = st.text(st.characters(exclude_categories=["Cc", "Cs"]), min_size=1, max_size=40)


@pytest.mark.parametrize("name", STRANGE_IDS)
def test_an_id_of_any_text_names_one_thing(service: Running, name: str) -> None:
    turn = {"id": name, "role": "user", "content": f"said by {len(name)}"}
    assert service.append(name, name, turn)["results"][0]["status"] == "stored"
    where = {"user_id": name, "session_id": name}
    assert service.ok("GET", f"/v1/turns/{quoted(name)}", params=where)["id"] == name
    assert [turn["id"] for turn in service.turns(name, name)] == [name]
    assert [one["session_id"] for one in service.ok("GET", "/v1/sessions", params={"user_id": name})["sessions"]] == [
        name
    ]
    assert service.ok("PUT", f"/v1/users/{quoted(name)}/facts/{quoted(name)}", json={"value": "v"})["key"] == name
    assert service.ok("GET", f"/v1/users/{quoted(name)}/facts")["facts"][0]["key"] == name
    assert service.found(name, "said", session_id=name) == [turn["content"]]
    service.ok("DELETE", f"/v1/turns/{quoted(name)}", params=where)
    assert service.turns(name, name) == []


@settings(max_examples=30, deadline=None)
@given(user=texts, session=texts, turn=texts)
def test_ids_come_back_as_they_went(service: Running, user: str, session: str, turn: str) -> None:
    service.append(user, session, {"id": turn, "role": "user", "content": "x"})
    shown = service.ok("GET", f"/v1/turns/{quoted(turn)}", params={"user_id": user, "session_id": session})
    assert (shown["id"], shown["session_id"]) == (turn, session)


def test_forms_of_one_word_are_two_users(service: Running) -> None:
    composed, split = "caf\u00e9", "cafe\u0301"
    assert unicodedata.normalize("NFC", split) == composed
    service.append(composed, "s", "mine")
    assert service.turns(split, "s") == []


@pytest.mark.parametrize("sign", [*CONTROLS, "x" * 257, ""])
def test_what_is_no_id_is_refused_wherever_ids_stand(service: Running, sign: str) -> None:
    wrong = f"a{sign}b" if len(sign) == 1 else sign
    turn = {"role": "user", "content": "x"}
    refusals = [
        service.call("POST", "/v1/sessions/s/turns", json={"user_id": wrong, "turns": [turn]}),
        service.call("POST", "/v1/sessions/s/turns", json={"user_id": "u", "turns": [{**turn, "id": wrong}]}),
        service.call("POST", f"/v1/sessions/{quoted(wrong)}/turns", json={"user_id": "u", "turns": [turn]}),
        service.call("POST", "/v1/search", json={"user_id": wrong, "query": "x"}),
        service.call(
            "POST", "/v1/context", json={"user_id": "u", "query": "x", "budget_tokens": 9, "session_id": wrong}
        ),
        service.call("GET", "/v1/sessions", params={"user_id": wrong}),
        service.call("GET", f"/v1/turns/{quoted(wrong)}", params={"user_id": "u", "session_id": "s"}),
        service.call("GET", f"/v1/users/{quoted(wrong)}/facts"),
        service.call("PUT", f"/v1/users/u/facts/{quoted(wrong)}", json={"value": "x"}),
        service.call("DELETE", f"/v1/users/{quoted(wrong)}"),
        service.call("POST", "/v1/admin/keys", json={"role": "app", "tenant": wrong}),
    ]
    for answer in refusals:
        refused(answer, 422, "invalid_request")


@pytest.mark.parametrize("text", ["\ud800", "x\udfff"])
def test_half_a_surrogate_pair_is_no_id(text: str) -> None:
    with pytest.raises(InvalidRequest):
        identifier(text, "tenant")


@pytest.mark.parametrize("path", ["/v1/turns/%ff?user_id=u&session_id=s", "/v1/users/%ed%a0%80/facts"])
def test_a_path_that_is_no_utf8_is_refused(service: Running, path: str) -> None:
    refused(service.call("GET", path), 422, "invalid_request")


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("2024-05-06T07:08:09Z", "2024-05-06T07:08:09Z"),
        ("2024-05-06t07:08:09z", "2024-05-06T07:08:09Z"),
        ("2024-05-06T07:08:09-00:00", "2024-05-06T07:08:09Z"),
        ("2024-05-06T07:08:09.123456789+05:30", "2024-05-06T07:08:09.123456+05:30"),
        ("0001-01-01T00:00:00Z", "0001-01-01T00:00:00Z"),
        ("0001-01-01T00:00:00-23:59", "0001-01-01T00:00:00-23:59"),
        ("9999-12-31T23:59:59.999999Z", "9999-12-31T23:59:59.999999Z"),
        ("9999-12-31T23:59:59+23:59", "9999-12-31T23:59:59+23:59"),
        ("2024-02-29T00:00:00+14:00", "2024-02-29T00:00:00+14:00"),
    ],
)
def test_a_time_comes_back_with_its_offset(service: Running, text: str, shown: str) -> None:
    turn = {"role": "user", "content": "when", "created_at": text}
    service.append("times", text, turn)
    assert service.turns("times", text)[0]["created_at"] == shown
    assert service.context("times", session_id=text, now=text)["now"] == text


@pytest.mark.parametrize(
    "text",
    [
        "2024-05-06T07:08:09",
        "2024-05-06",
        "2024-05-06 07:08:09Z",
        "2016-12-31T23:59:60Z",
        "2024-05-06T24:00:00Z",
        "2023-02-29T00:00:00Z",
        "0000-01-01T00:00:00Z",
        "10000-01-01T00:00:00Z",
        "0001-01-01T00:00:00+00:01",
        "9999-12-31T23:59:59-00:01",
        "2024-05-06T07:08:09+24:00",
        "2024-05-06T07:08:09+0200",
        "2024-05-06T07:08Z",
        "2024-05-06T07:08:09.Z",
        "２０２４-05-06T07:08:09Z",
        " 2024-05-06T07:08:09Z",
        "2024-05-06T07:08:09Z\n",
        "1714979289",
        "",
    ],
)
def test_what_is_no_time_is_refused_wherever_times_stand(service: Running, text: str) -> None:
    turn = {"role": "user", "content": "x", "created_at": text}
    context = {"user_id": "no-times", "query": "x", "budget_tokens": 500}
    for path, body in [
        ("/v1/sessions/s/turns", {"user_id": "no-times", "turns": [turn]}),
        ("/v1/context", {**context, "now": text}),
        ("/v1/context", {**context, "history": [turn]}),
        ("/v1/search", {"user_id": "no-times", "query": "x", "now": text}),
        ("/v1/search", {"user_id": "no-times", "query": "x", "filters": {"from": text}}),
        ("/v1/search", {"user_id": "no-times", "query": "x", "filters": {"to": text}}),
    ]:
        refused(service.call("POST", path, json=body), 422, "invalid_request")
    assert service.turns("no-times", "s") == []


@given(st.datetimes(timezones=st.timezones()))
def test_formatted_times_read_back_as_the_same_instant(moment) -> None:
    offset = moment.utcoffset()
    if offset.seconds % 60 or offset.microseconds:
        return  # historical offsets with seconds have no RFC 3339 form
    try:
        parsed = parse_time(moment.isoformat(), "t")
    except InvalidRequest:  # the instant lies outside the years 1 to 9999 in UTC
        return
    assert parse_time(format_time(*parsed), "t") == parsed


def test_a_life_that_ends_after_the_last_year_is_shown_as_its_end(service: Running) -> None:
    turn = {"role": "user", "content": "x", "created_at": "9999-12-31T23:59:59Z", "ttl_seconds": 316_000_000}
    service.append("late", "s", turn)
    assert service.turns("late", "s")[0]["expires_at"] == "9999-12-31T23:59:59.999999Z"


@pytest.mark.parametrize("zone", ["Nowhere/Bad", "../../etc/passwd", "/etc/passwd", " "])
def test_a_time_zone_that_is_none_is_refused(service: Running, zone: str) -> None:
    body = {"user_id": "u", "query": "x", "tz": zone}
    refused(service.call("POST", "/v1/search", json=body), 422, "invalid_request")
    assert service.call("POST", "/v1/search", json=body | {"tz": "Asia/Shanghai"}).status_code == 200
