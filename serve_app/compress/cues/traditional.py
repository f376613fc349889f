"""Chinese patterns are written in simplified characters; they match traditional ones too. Pure."""

from __future__ import annotations

import re

_PAIRS = (
    "说說们們个個这這还還没沒会會让讓对對过過来來时時后後里裡为為与與并並从從给給请請许許谁誰别別"
    "须須务務准準绝絕决決坚堅严嚴统統总總凡凡谈談门門问問电電话話发發写寫读讀记記号號码碼编編账賬单單"
    "订訂确確认認预預约約车車牌牌机機场場楼樓层層间間张張台臺条條项項双雙场場块塊钱錢万萬亿億两兩"
    "点點钟鐘分分秒秒天天周週礼禮岁歲种種样樣价價费費额額贵貴买買卖賣购購换換变變动動调調涨漲降降"
    "升升终終现現实實际際错錯误誤纠糾正正销銷废廢弃棄无無药藥医醫疗療过過敏敏哮哮喘喘肾腎压壓怀懷"
    "孕孕残殘轮輪疯瘋爱愛爷爺妈媽亲親儿兒孙孫侄姪婶嬸岳嶽闺閨邻鄰东東师師领領导導级級组組队隊团團"
    "参參与與随隨带帶陪陪伴伴员員关關系係独獨自自业業务務厂廠财財银銀汇匯规規则則标標体體积積长長宽寬"
    "轻輕远遠进進选選择擇处處热熱冻凍冲衝热熱烟煙酒酒鱼魚虾蝦面麵猪豬鸡雞鸭鴨铁鐵飞飛"
    "讨討厌厭欢歡愿願希希盼盼懒懶梦夢玩玩笑笑戏戲设設想想虚虛倘倘换換当當岁歲尽盡较較够夠舒舒"
    "谢謝见見听聽说說讲講谓謂该該应應当當备備审審签簽寄寄递遞邮郵箱箱网網线線链鏈连連页頁图圖"
    "强強独獨制製复復杂雜习習学學课課题題试試卷卷绩績简簡历歷职職称稱龄齡婚婚育育党黨团團"
    "检檢验驗测測质質量量数數据據库庫码碼冻凍结結束束统統语語言言汉漢译譯繁繁体體"
    "开開闭閉启啟动動转轉迁遷移移挪挪顺順延延迟遲推推缩縮减減增增加加补補贴貼扩擴压壓"
    "晓曉觉覺显顯获獲值值类類识識异異区區差差鉴鑑辨辨离離永永"
    "适適肿腫吓嚇怕怕晕暈吐吐恶惡呕嘔疹疹痒癢肠腸脏臟糖糖尿尿痛痛风風眼眼聋聾盲盲义義"
    "卖賣帮幫顾顧虑慮细細节節约約纸紙铺鋪环環境境阳陽台臺厅廳厨廚卫衛间間码碼围圍栏欄"
    "听聽闻聞经經历歷旧舊买買坏壞专專属屬为為荤葷斋齋净淨禅禪寿壽烧燒辣辣盐鹽咸鹹"
)

_VARIANTS = {a: b for a, b in zip(_PAIRS[::2], _PAIRS[1::2], strict=True) if a != b}


def both(pattern: str) -> str:
    """The pattern with every simplified character standing for its traditional form too."""
    parts: list[str] = []
    inside = False
    escaped = False
    for char in pattern:
        other = _VARIANTS.get(char)
        if other is None:
            parts.append(char)
        else:
            parts.append(char + other if inside else f"[{char}{other}]")
        if not escaped and char == "[":
            inside = True
        elif not escaped and char == "]":
            inside = False
        escaped = char == "\\" and not escaped
    return "".join(parts)


def compiled(pattern: str) -> re.Pattern[str]:
    """For folded text, simplified or traditional."""
    return re.compile(both(pattern))
