"""What the rules recognise, what they leave alone, and that they are pure, bounded and quick on any text."""

from __future__ import annotations

import time

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from serve_app.core import FieldExpiry, Turn
from serve_app.entities.recognise import (
    ENTITIES_A_TURN_MAX,
    TEXT_CHARACTERS_MAX,
    in_text,
    in_turn,
    key_named,
    named_of,
    speaker_key,
)
from serve_app.entities.values import CLASSES, folded, key_of

RECOGNISED = [
    ("Met Alice in Paris yesterday.", {"Alice": "name", "Paris": "place"}),
    ("Alice moved to Berlin.", {"Alice": "name", "Berlin": "place"}),
    (
        "I saw Dr. Jane O'Brien and Mr Smith at Acme Corp",
        {"Jane O'Brien": "person", "Smith": "person", "Acme Corp": "organisation"},
    ),
    ("Hey Caroline! My cousin Priya is here.", {"Caroline": "person", "Priya": "person"}),
    ("New York is loud, Los Angeles is far", {"New York": "place", "Los Angeles": "place"}),
    ("The University of Oxford replied to us", {"University of Oxford": "organisation"}),
    ("We stayed at 42 Elm Street near Lake Tahoe", {"Elm Street": "place", "Lake Tahoe": "place"}),
    ("Bought an iPhone 15 Pro and a Galaxy S24", {"iPhone 15 Pro": "product", "Galaxy S24": "product"}),
    ('I read "The Left Hand of Darkness" twice', {"The Left Hand of Darkness": "product"}),
    ("Melanie's kids like it", {"Melanie": "name"}),
    (
        "It shows ZX-81Q, v1.2.3, E07 and labels_v7.xlsm",
        {"ZX-81Q": "code", "v1.2.3": "code", "E07": "code", "labels_v7.xlsm": "code"},
    ),
    ("Is order ZX-81Q paid? 订单号是 KB-20X。", {"ZX-81Q": "order", "KB-20X": "order"}),
    ("My order 12345 and invoice INV-20394", {"12345": "order", "INV-20394": "order"}),
    ("Order #A-5519-03; tracking number: SF1234567890", {"A-5519-03": "order", "SF1234567890": "order"}),
    ('{"order_id": "YJ24060188317"}', {"YJ24060188317": "order"}),
    (
        "订单号：SH20240511-88，王老师和李明先生去上海市看《三体》",
        {"SH20240511-88": "order", "王老师": "person", "李明": "person", "上海市": "place", "三体": "product"},
    ),
    (
        "我在杭州市滨江区映溪路88弄，我叫李雷。",
        {"杭州市": "place", "滨江区": "place", "映溪路": "place", "李雷": "person"},
    ),
    ("訂單編號 8841032，陳小姐住台北", {"8841032": "order", "陳小姐": "person", "台北": "place"}),
    ("她在腾讯科技公司上班，去过北京", {"腾讯科技公司": "organisation", "北京": "place"}),
    ("田中さんは東京駅にいます", {"田中": "person", "東京駅": "place"}),
    ("注文番号は JP-99120 です", {"JP-99120": "order"}),
    ("Fui a Madrid con mi hermano Carlos; pedido 88231", {"Madrid": "place", "Carlos": "person", "88231": "order"}),
    (
        "Write to bob@example.com or see https://x.org/a?b=1.",
        {"bob@example.com": "email", "https://x.org/a?b=1": "url"},
    ),
]

DATED = [
    ("on 2023-05-08", "2023-05-08"),
    ("8 May 2023", "2023-05-08"),
    ("the 8th of May, 2023", "2023-05-08"),
    ("May 8th, 2023", "2023-05-08"),
    ("el 8 de mayo de 2023", "2023-05-08"),
    ("2023年5月8日", "2023-05-08"),
    ("二〇二三年五月八日", "2023-05-08"),
    ("8 May", "--05-08"),
    ("八月二十九号", "--08-29"),
    ("十月十日", "--10-10"),
    ("in May 2023", "2023-05"),
    ("25/12/2024", "2024-12-25"),
    ("5/7/2023", "5/7/2023"),
    ("2024-05-06T07:08:09Z", "2024-05-06"),
]

NOTHING = [
    "",
    "I think that he will. The weather is nice! What about you?",
    "We leave at 7pm or 10:30, for $15000, 42.50 or 1,200; the 3rd one, 9am-5pm, 100GB, 24/7, 3/4 cup",
    "May I? March on. Will you? Monday then, in spring.",
    "Write to [email] or call [phone], card [credit_card], [ipv4]",
    "WE ARE SHOUTING VERY LOUD HERE AND NOTHING IS A NAME",
    "Thanks! Great. Sounds good. Absolutely. Wow, Yes, Ok, Thanks",
    "我们去超市买东西，小区门口的火车站，城市很大，老师说的",
    "お客さんとお母さんが皆さんと話した",
    "Gracias, mañana nos vemos. ¿Qué tal? Estamos bien.",
    "I'm sure it's fine. Don't worry, I'll do it. We've time. Let's go",
]


@pytest.mark.parametrize(("text", "expected"), RECOGNISED)
def test_what_is_recognised(text: str, expected: dict[str, str]) -> None:
    found = {one.name: one.kind for one in in_text(text)}
    assert found == expected


@pytest.mark.parametrize(("text", "key"), DATED)
def test_dates_have_one_key_however_they_are_written(text: str, key: str) -> None:
    assert [one.key for one in in_text(text) if one.kind == "date"] == [key]
    assert [one.kind for one in in_text(text)] == ["date"]


@pytest.mark.parametrize("text", NOTHING)
def test_what_is_no_entity(text: str) -> None:
    assert in_text(text) == ()


def turn(content: str = "", **more: object) -> Turn:
    return Turn(id="t", session="s", role="tool", content=content, seq=1, arrived_at=1, created_at=1, **more)  # type: ignore[arg-type]


def test_data_names_what_stands_under_keys_of_ids_and_names() -> None:
    data = {
        "order_id": "A-5519-03",
        "customer": {"name": "Ann Lee", "phone": "[phone]", "email": "[email]"},
        "items": [{"sku": "K-1", "qty": 2, "title": "Desk lamp"}, {"sku": "K-2", "qty": 10}],
        "invoiceNo": 90331,
        "note": "Bob called",
        "收件人": {"姓名": "殷小满"},
        "city": "Riga",
        "total": 12.5,
        "ok": True,
    }
    found = {one.name: one.kind for one in in_turn(turn(data=msgspec.json.encode(data)))}
    assert found == {
        "A-5519-03": "order",
        "Ann Lee": "name",
        "K-1": "code",
        "K-2": "code",
        "Desk lamp": "product",
        "90331": "order",
        "殷小满": "person",
        "Riga": "place",
    }


def test_a_field_that_has_expired_names_nothing() -> None:
    held = turn(data=b'{"order_id":"A-55","city":"Riga"}', fields_expire=(FieldExpiry(10, "$.order_id"),))
    assert {one.key for one in in_turn(held.at(9))} == {"a55", "riga"}
    assert {one.key for one in in_turn(held.at(10))} == {"riga"}


def test_who_speaks_is_named_and_a_role_is_not() -> None:
    assert [(one.name, one.kind) for one in in_turn(turn("ok then", speaker="李雷"))] == [("李雷", "person")]
    for role in ("user", "Assistant", "tool:search", "[tool]", "客服", None, ""):
        assert speaker_key(role) == ""


def test_a_name_is_the_same_in_any_case_width_and_with_or_without_its_joiners() -> None:
    for one, other in [
        ("ZX-81Q", "zx81q"),
        ("Ｐａｒｉｓ", "paris"),
        ("Jean-Paul", "JEAN PAUL"),
        ("O’Brien", "o'brien"),
        ("José", "jose"),
        ("J. R. Smith", "J R Smith"),
        ("8 May 2023", "2023年5月8日"),
    ]:
        assert key_named(one) == key_named(other) != ""
    assert key_named("v1.2.3") != key_named("v1.23")
    assert key_named(" -- ") == ""


@pytest.mark.parametrize(
    ("text", "key"),
    [
        ("We met on 8 Apr\u0131l 2023", "2023-04-08"),
        ("8 APR\u0130L 2023", "2023-04-08"),
        ("\u017feptember 5, 2023", "2023-09-05"),
        ("5 de \u017feptiembre", "--09-05"),
        ("四月廿三日", "--04-23"),
    ],
)
def test_letters_that_only_look_like_i_and_s_are_read_as_they_look(text: str, key: str) -> None:
    assert [one.key for one in in_text(text) if one.kind == "date"] == [key]


@pytest.mark.parametrize("text", ["四月二三十日", "四月十五十日", "五十十月三日"])
def test_signs_of_numbers_that_make_none_name_no_day(text: str) -> None:
    assert [one.key for one in in_text(text) if one.kind == "date"] == []


alphabet = st.sampled_from(
    [
        *"aB1 -_.,/:'’\"“”《》[](){}@#&$\n\x00\x01王老师先生市さん月日号年二三十廿Éßǅ\u0301İ\u0131\u017f\u212a",
        "Alice",
        "Dr. ",
        "order ",
        "订单号",
        "https://",
        "May ",
        "Aprıl ",
        "ſeptember ",
        "四月",
        "2023",
        "in ",
        "St. ",
        " of the ",
        "iPhone ",
        "15 Pro",
        "x@y.zz",
    ]
)
texts = st.lists(alphabet, max_size=40).map("".join) | st.text(max_size=80)


@given(texts)
def test_any_text_gives_bounded_names_whose_keys_stand_in_it(text: str) -> None:
    found = in_text(text)
    assert found == in_text(text)
    assert len(found) <= ENTITIES_A_TURN_MAX
    assert len({(one.key, one.kind) for one in found}) == len(found)
    for one in found:
        assert one.kind in CLASSES
        assert one.key
        assert one.name in text or one.kind not in ("code", "order", "email", "url", "date")
        if one.kind != "date":
            assert one.key == key_of(one.name)
            assert one.key in folded(text)


@given(texts, texts, st.sampled_from([None, "Ann", "user", "李雷"]))
def test_looking_for_some_keys_is_recognising_all(text: str, other: str, speaker: str | None) -> None:
    held = turn(text, speaker=speaker, data=msgspec.json.encode({"name": other[:60], "order": other[:20]}))
    keys = {one.key for one in in_turn(held)}
    wanted = keys | {"ann", "zx81q", "2023-05-08"}
    assert named_of(held, wanted) == keys & wanted


HOSTILE = [
    "a",
    "A",
    "A ",
    "A. ",
    "Ab of the ",
    "1-",
    "1/2/",
    "王",
    "王老师",
    "《",
    '"A ',
    '"',
    "[a",
    "x@",
    "a.b@c.",
    "www.",
    "-.",
    "order ",
    "order #",
    "May 1 ",
    "二十",
    "月",
    "さん",
    "ァ",
    "株式会社",
    "a_1.",
    "iP",
    "I'm ",
    "Mr. ",
    "\x00",
    "Ab's ",
    "市",
    '{"id":',
]


@pytest.mark.parametrize("piece", HOSTILE)
def test_no_text_takes_long(piece: str) -> None:
    """A little more than linear is all right; a rule that goes back over the text would take minutes."""
    text = (piece * TEXT_CHARACTERS_MAX)[: 2 * TEXT_CHARACTERS_MAX]
    started = time.process_time()
    in_turn(turn(text, data=msgspec.json.encode({"name": text[:1000]})))
    assert time.process_time() - started < 3


def test_a_usual_turn_takes_no_time() -> None:
    said = (
        "Hey Caroline! I went to the pottery class near Elm Street on 8 May 2023 and I have to tell you all about it."
    )
    started = time.process_time()
    for _ in range(300):
        in_text(said)
    assert (time.process_time() - started) / 300 < 0.001  # some 0.06 ms where nothing else runs
