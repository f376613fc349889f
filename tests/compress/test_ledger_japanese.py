"""The ledger of Japanese conversations."""

import pytest

from serve_app.compress.ledger import ledger
from tests.compress.lines import active, said, verdicts


@pytest.mark.parametrize(
    "text",
    [
        "生ものは一切使わないでください",
        "電話での連絡はお断りです",
        "予約は個人名義でしか取れません",
        "納期は今月末までです",
        "駅から徒歩10分以上は無理です",
        "火曜日だけは予定を入れないで",
        "卵アレルギーがあります",
        "膝が悪くて階段が上れません",
        "左耳が聞こえにくいんです",
        "予約番号はKX-2031です",
        "名前は小鳥遊と書いて「たかなし」と読みます",
    ],
)
def test_what_binds_is_an_entry_however_it_is_said(text):
    assert active(f"u: {text}")


@pytest.mark.parametrize(
    ("text", "verdict"),
    [
        ("もし宝くじが当たったら世界一周します", "hypothetical"),
        ("私が社長だったら全員休みにしますけどね", "hypothetical"),
        ("冗談ですが、城を買いたいです", "hypothetical"),
        ("同僚は肉を食べないそうです", "third_person"),
        ("兄は乳製品が苦手ですが、今回は来ません", "third_person"),
        ("友人の会社ではテレワークが禁止だそうです", "third_person"),
        ("できれば窓側がいいです", "soft"),
        ("駅に近いと助かります", "soft"),
    ],
)
def test_suppositions_other_people_and_wishes_are_no_entries(text, verdict):
    assert active(f"u: {text}") == []
    assert verdict in verdicts(f"u: {text}")


@pytest.mark.parametrize(
    "text", ["今日は暑いですね", "昨日、映画を見ました", "なぜ禁止なんですか？", "ありがとうございます"]
)
def test_talk_and_questions_are_no_entries(text):
    assert active(f"u: {text}") == []


def test_people_who_take_part_bind():
    assert active("u: 母も一緒に行きます。母は足が悪いので階段は無理です")


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("予算は三万円です", "やっぱり四万円まで出せます"),
        ("会議は月曜です", "水曜に変更してください"),
        ("五人で行きます", "一人増えて六人になりました"),
        ("夜七時に予約して", "八時にずらしてください"),
        ("色は黒で", "白に変えてください"),
        ("えびは食べられません", "えびは食べられるようになりました"),
    ],
)
def test_what_is_changed_or_withdrawn_is_superseded(old, new):
    entries = ledger(said(f"u: {old}", "a: 承知しました。", f"u: {new}", "a: 変更しました。"))
    assert [(one.status, one.ended_by) for one in entries if one.turn_id == "t0"] == [("superseded", 12)]


def test_what_the_assistant_asks_binds_once_confirmed():
    question = "a: 豚肉は使わない、ということでよろしいですか"
    assert any("豚肉" in text for text in active("u: 献立をお願いします", question, "u: はい"))
    assert not any("豚肉" in text for text in active("u: 献立をお願いします", question, "u: いいえ、違います"))
