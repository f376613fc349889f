"""The words by which a telephone number is told from an amount, a count, or a number of something."""

from __future__ import annotations

import re

from serve_app.privacy.cues import cues

UNIT_AFTER = re.compile(
    r"(?:元|块|支|纳秒|韩元|英镑|港元|港币|美金|卢比|万|亿|件|个(?![人月])|条|次|人(?![工家])|字节|股|票(?!据)"
    r"|份|台|套|箱|吨|米|毫秒|微秒|秒|行|美元"
    r"|欧元|日元|円|颗|枚|笔|回(?!电|复|拨)"
    r"|コ|個|点(?!击)|人民币|度|步|像素|位用户|名用户|毫升|克|千克|公里|ドル|バイト|週|ユーロ|票|股|字(?!节)|倍|比特)"
    r"| (?:元|件|个|条|次|万|亿|字节|人次|韩元|英镑|港元|港币|美金|卢比|纳秒|行|步|股|票|円|個|ドル|バイト|美元|毫秒)"
    r"| ?(?:bytes?|units?|items?|rows?|records?|views?|requests?|users?|messages?|tokens?|lines?|pieces?|pcs"
    r"|dollars?|euros?"
    r"|yuan|rmb|cny|usd|eur|gbp|hkd|twd|krw|vnd|inr|jpy|yen|won|rupees|pounds|transactions|payments|files"
    r"|queries|cents?|ms|us|ns|secs?|seconds?|hits|times|followers|downloads|plays|shares"
    r"|votes|points"
    r"|steps|km|kg|[kmgt]?i?b|people|events|entries|copies|orders|impressions|clicks|iterations|ticks|pesos"
    r"|unidades|bits"
    r"|registros|visitas|millis|microseconds|milliseconds|pixels|samples|cycles)\b"
    r"| ?%| ?[+*×=<>]=? ?\d",
    re.IGNORECASE,
)
SAID_AFTER = re.compile(
    r"[ ,，]{0,2}(?:这个|这|那个|是|为|就是|was|is|as|appears as|as the|es|は|という)?[ ]?(?:我们|本月|今年"
    r"|the |a |an |our |el |la )?"
    r"(?:数量|数字|数值|金额|总[额数量计]|库存|订单|单号|编号|播放|浏览|访问|流水|计数|余额|合计|时间戳|字段"
    r"|溢出|total|count|amount|order"
    r"|balance|sum|number of|quantity|stock|offset|timestamp|overflow|invoice|counter|price|size|row|record"
    r"|id\b|importe|pedido"
    r"|cantidad|件数|金額|注文|数)(?! ?(?:电话|手机))",
    re.IGNORECASE,
)

CUES = cues(
    "phone phones tel telephone mobile cell cellphone fax call calls called calling dial dialed ring rang text "
    "texted sms "
    "whatsapp reach contact hotline landline ph mob handset msisdn helpline telefon "
    "电话 电话号码 手机 手机号 手机号码 致电 拨打 联系 联系方式 联系人 回电 来电 短信 微信 客服 热线 座机 传真 "
    "呼叫 固话 拨 打 电联 收货 收件 "
    "收件人 本机 号码 机号 加我 加微信 電話 電話番号 携帯 携帯番号 連絡先 連絡 ファックス 番号 "
    "打了 拨了 换了 存了 加了 的号 个号 微信号 电话号 账号 帐号 新号 旧号 老号 小号 大号 联系号 绑定 注册 预留 充值 "
    "teléfono telefono teléfonos móvil movil celular llama llame llamar llámame llámeme contacto marcar marca "
    "fijo tlf tfno "
    "whatsapp",
    "order orders memory usage used cap stars counted nonce po quote sample samples sold wrote capacity average "
    "mean median "
    "invoice ticket tracking amount amounts total totals count counts counter sum balance price "
    "cost revenue "
    "qty quantity stock inventory id ids uid sku serial sn isbn issn doi version build release meeting room session "
    "offset size bytes length timestamp timestamps ts epoch views plays population budget sales salary rows row "
    "records "
    "limit max min value score lines range port pid reference ref case code otp pin zip index hash seed barcode "
    "ean upc "
    "batch lot account acct iban card parcel shipment waybill zoom webinar issue bug pr commit model part "
    "student employee "
    "downloads streams followers likes shares comments impressions overflow cents dollars exceeds exceeded "
    "reached about approximately roughly "
    "passport license licence vin imei scores lottery coordinates latitude longitude transaction transactions "
    "processed transfer payment isbn10 isbn13 integer int "
    "数量 库存 金额 合计 总计 总额 总数 总量 共计 余额 营收 收入 支出 销量 销售额 成交额 交易额 价格 成本 预算 "
    "订单 订单号 单号 运单 运单号 "
    "快递单 快递单号 流水 流水号 编号 序列号 序号 工号 学号 会议号 会议 房间 版本 播放量 播放 浏览 浏览量 "
    "阅读量 访问量 点击 点击量 下载量 "
    "粉丝 粉丝数 人口 字节 大小 偏移 偏移量 计数 计数器 总共 条数 行数 次数 请求数 用户数 件数 字数 步数 积分 "
    "票数 点赞 时间戳 参数 变量 "
    "数值 数字 结果 等于 大约 达到 高达 超过 突破 增长 减少 单价 应付 已付 实付 应收 发票 发票号 合同号 案号 "
    "取件码 验证码 邮编 条码 条形码 "
    "货号 型号 批号 商品 主键 自增 长度 容量 产量 产能 估值 市值 利润 亏损 欠款 贷款 彩票 面积 距离 共 约 值 "
    "群号 总播放 总访问 卡号 银行卡 "
    "身份证 护照 护照号 坐标 经度 纬度 书号 税号 预约号 单据号 记录 记录数 差额 费用 税额 奖金 工资 存款 数据量 日志 "
    "样本 耗时 内存 占用 消耗 退款 赔付 写入 读取 存储 销售 卖出 资产 了 达 增至 升至 降至 快递 快件 包裹 交易 "
    "交易号 应缴 实缴 缓存 命中 账期 流量 门牌号 座位号 车牌号 设备号 数 量 额 率 价 额度 額 号 "
    "注文 注文番号 金額 合計 在庫 個数 残高 再生回数 再生 売上 人数 商品番号 追跡番号 会議 予約番号 "
    "お問い合わせ番号 受付番号 "
    "pedido importe total cantidad saldo factura precio código stock visitas ventas presupuesto referencia "
    "seguimiento "
    "expediente número_de_pedido reproducciones identificador",
)
