"""The ledger of Chinese conversations, simplified, traditional and mixed with English."""

import time

import pytest

from serve_app.compress.ledger import ledger, read
from tests.compress.lines import active, said, verdicts

BINDING = [
    "我这人碰不得酒，一口都不沾",
    "凡是要刷脸的门禁一概不装",
    "钱一分都不能打",
    "电话一律不接，有事邮件",
    "除了周三，其余时间免谈",
    "不是有机的就别买了",
    "我宁可多等一周也不要拆单发货",
    "给孩子看的，血腥镜头一律掐掉",
    "钥匙只交给物业老周",
    "得赶在她下班前把花送到",
    "G6PD缺乏，蚕豆是大忌",
    "我血压高，盐得少放",
    "孕晚期了，坐不了长途",
    "我是左撇子",
    "會議室只能用到下午四點",
    "我對蝦子過敏，千萬別放",
    "取件码8-3-2207",
    "我叫欧阳雪霁，霁是雨字头那个",
    "飞机是MU5183，13:40落地",
    "force push 绝对不行",
]


@pytest.mark.parametrize("text", BINDING)
def test_what_binds_is_an_entry_however_it_is_said(text):
    assert active(f"u: {text}")


@pytest.mark.parametrize(
    "text",
    [
        "假如我中了头奖，就包一艘游轮",
        "搁十年前我就买比特币了",
        "等我退休了再去学潜水吧",
        "说着玩的，谁会真养鳄鱼",
        "早知道当年不学这个，现在天天睡懒觉",
        "要是當初學了醫，就不用排隊掛號",
    ],
)
def test_what_is_only_supposed_stays_out(text):
    assert verdicts(f"u: {text}") <= {"hypothetical", "plain"}
    assert "hypothetical" in verdicts(f"u: {text}")


def test_a_condition_that_says_what_to_do_is_a_rule():
    assert active("u: 要是下雨，务必改到室内")


@pytest.mark.parametrize(
    "text",
    [
        "我同桌只吃鸡胸肉",
        "我表弟对海鲜过敏，他不跟我们去",
        "隔壁老王家装修花了四十万",
        "听说对面小区限价两万五",
        "我前男友非五星级不住",
        "他们部门规定周五不许穿牛仔裤",
        "我嫂子坐月子不能吹风，那是她",
    ],
)
def test_people_who_take_no_part_are_no_constraint(text):
    assert active(f"u: {text}") == []
    assert "third_person" in verdicts(f"u: {text}")


@pytest.mark.parametrize(
    "text",
    [
        "我先生跟我一起去，他不吃羊肉",
        "带着我爸，他腿脚不好，不能走远",
        "同去的老张痛风，别点啤酒海鲜",
        "我奶奶九十一了，她那桌要挨着洗手间，别安排楼上",
    ],
)
def test_people_who_take_part_are(text):
    assert "third_person" not in verdicts(f"u: {text}")
    assert active(f"u: {text}")


def test_who_takes_part_is_remembered():
    lines = ["u: 下周陪我妈去西安，帮我规划", "a: 好的。", "u: 她对花生过敏"]
    assert active(*lines) == ["她对花生过敏"]
    assert active(lines[2].replace("她", "我同事")) == []


@pytest.mark.parametrize("text", ["颜色的话我偏爱莫兰迪色", "能便宜点就便宜点", "有地暖的话加分", "木质的更温馨"])
def test_wishes_are_soft(text):
    assert verdicts(f"u: {text}") == {"soft"}


@pytest.mark.parametrize(
    "text",
    [
        "今天太阳真好",
        "昨天看球看到两点",
        "我在犹豫要不要把头发剪短一点",
        "手机里存了2249张截图，一张都想不起来干嘛的",
        "不能用微波炉热鸡蛋是真的吗",
        "为什么不允许带打火机上飞机",
        "面条煮几分钟合适？",
        "谢谢",
        "嗯，好的",
    ],
)
def test_talk_and_questions_are_no_entries(text):
    assert active(f"u: {text}") == []


REPLACED = [
    ("预算五千", "改成六千五了"),
    ("订两间房", "不对，要三间"),
    ("下午两点见", "推迟到四点"),
    ("一共八个人", "又来了俩，十个人"),
    ("寄到公司", "还是寄家里吧"),
    ("我要黑色的", "想了想还是白的"),
    ("会议在301", "301被占了，挪到508"),
    ("坐高铁去", "高铁没票了，改坐飞机"),
    ("目标瘦十斤", "营养师说五斤就够了"),
    ("7月1号搬", "房东宽限了半个月，7月15号搬"),
    ("預算兩萬", "預算放寬到三萬"),
    ("branch 用 release/1.6", "branch 换成 release/2.0"),
]


@pytest.mark.parametrize(("old", "new"), REPLACED)
def test_a_later_value_replaces_the_earlier(old, new):
    turns = said(
        "u: 帮我安排一下", "a: 好的，有什么要求？", f"u: {old}", "a: 好的，记下了。", f"u: {new}", "a: 好的，已更新。"
    )
    entries = ledger(turns)
    assert [(one.text, one.ended_by) for one in entries if one.turn_id == "t2"] == [(old, 14)]
    assert any(one.status == "active" for one in entries if one.turn_id == "t4")


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("我不吃香菜", "香菜现在可以吃了，之前那条不算"),
        ("别给我打电话", "电话可以打了"),
        ("帮我留一个停车位", "车位不用留了"),
        ("每周三例会", "例会取消了"),
        ("要带投影仪", "投影仪甭带了，那边有"),
    ],
)
def test_what_is_withdrawn_is_superseded(old, new):
    turns = said(
        "u: 帮我安排一下", "a: 好的，有什么要求？", f"u: {old}", "a: 好的，记下了。", f"u: {new}", "a: 好的，已更新。"
    )
    assert [one.status for one in ledger(turns) if one.turn_id == "t2"] == ["superseded"]


def test_what_the_assistant_asks_binds_once_confirmed():
    question = "a: 您之前提过内存至少32GB，对吧？"
    assert any("32GB" in text for text in active("u: 买电脑", question, "u: 对，没错。"))
    assert not any("32GB" in text for text in active("u: 买电脑", question, "u: 不是，16就够。"))


def test_parts_of_a_sentence_with_different_fates_are_told_apart():
    entries = ledger(said("u: 青霉素皮试阳性，我姐是头孢过敏，我俩不一样。", "a: 记录：您本人是青霉素。"))
    assert any("青霉素" in one.text for one in entries)
    assert not any("头孢" in one.text for one in entries)


def test_hostile_text_is_read_in_linear_time():
    for piece in ("不要", "，", "一二三四五六七八九十", "改成5", "a1-", "我妈"):
        turns = said(f"u: {piece * (40_000 // len(piece))}")
        began = time.process_time()
        read(turns)
        assert time.process_time() - began < 4, piece
