"""Texts with what is to be found in them marked as ⟦type|value⟧, and harmless ones. All of it is invented."""

from __future__ import annotations

import re

from serve_app.privacy.kinds import Span

MARK = re.compile(r"⟦(\w+)\|([^⟧]*)⟧")


def unmarked(marked: str) -> tuple[str, set[Span]]:
    """The text, and where in it the marked values stand."""
    text, spans, at = "", set(), 0
    for found in MARK.finditer(marked):
        text += marked[at : found.start()]
        spans.add(Span(len(text), len(text) + len(found[2]), found[1]))
        text, at = text + found[2], found.end()
    return text + marked[at:], spans


FOUND = """
名单：⟦phone|13800001234⟧,⟦phone|13900005678⟧/⟦phone|13700002222⟧
有事请拨⟦phone|13900001234⟧找小林
手机⟦phone|15900002468⟧，订单号 20250613880042
订单号20250613880042已发货，收货人手机⟦phone|13800001234⟧
我的号码是 ⟦phone|188 0000 4321⟧
微信和手机都是⟦phone|１８８００００４３２１⟧
联系方式：⟦phone|+86-138-0000-5678⟧
国内拨 ⟦phone|0086 138 0000 5678⟧
座机⟦phone|021-55551234⟧，分机 302
公司电话（⟦phone|010）55501234⟧转801
电话：⟦phone|(0571) 5550 1234⟧
客服热线⟦phone|400-555-0123⟧
打⟦phone|13700001122⟧或者⟦phone|13700003344⟧都行
短信发到⟦phone|17000001234⟧就好
张三 ⟦phone|13611112222⟧ 上海
⟦phone|13512340000⟧，我的号，存一下
麻烦加我微信，⟦phone|18900005678⟧
金额是199元，电话⟦phone|13800009999⟧
"phone": "⟦phone|13900007788⟧"
请致电⟦phone|+852 2345 6789⟧
Call me on ⟦phone|+1 (212) 555-0123⟧ tonight.
Text ⟦phone|415-555-0134⟧ when you land.
His number: ⟦phone|(646) 555-0188⟧, ext. 14
Phone: ⟦phone|2125550147⟧
My cell is ⟦phone|646.555.0119⟧.
Office ⟦phone|1-800-555-0199⟧ is toll free
UK mobile ⟦phone|07700 900456⟧ or ⟦phone|+44 7700 900456⟧
call ⟦phone|020 7946 0991⟧ and ask for Bea
The surgery is on ⟦phone|0161 496 0345⟧
Manchester ⟦phone|01632 960123⟧ please
dial ⟦phone|+49 (0)30 23125 120⟧ for Berlin
Mein Büro: ⟦phone|030 23125 125⟧
reach Ana at ⟦phone|+34 600 000 123⟧
whatsapp ⟦phone|+55 11 95555-0123⟧
tel:⟦phone|+33 1 99 00 12 34⟧
Ring ⟦phone|+353 20 910 1234⟧ after noon
Fax: ⟦phone|+41 44 668 18 00⟧
携帯は⟦phone|080-0000-3344⟧、自宅は⟦phone|03-0000-5566⟧です
電話番号は⟦phone|０９０－００００－１１２２⟧です
お問い合わせは⟦phone|0120-000-123⟧まで
連絡先 ⟦phone|+81 90-0000-1122⟧
電話：⟦phone|09000001122⟧
Mi móvil es ⟦phone|600 123 456⟧, llámame
Teléfono: ⟦phone|91 555 01 23⟧
llama al ⟦phone|612345678⟧ por la tarde
Mi teléfono es ⟦phone|+34 612 34 56 78⟧.
邮箱是⟦email|wen.qing@example.cn⟧，电话⟦phone|13800001111⟧
写信给⟦email|support+zh@mail.example.com⟧。
Mail: ⟦email|O'Brien@example.ie⟧, thanks
<⟦email|bob_smith-99@sub.example.org⟧>
mailto:⟦email|info@example.co.jp⟧
contact ⟦email|a@example.io⟧.
メールは⟦email|taro.yamada@example.jp⟧までお願いします
escríbeme a ⟦email|maría.ñu@example.es⟧ mañana
请发到⟦email|李雷@例子.中国⟧
邮件地址：⟦email|k.long＠example．com⟧
("⟦email|x.y@example.travel⟧")
user=⟦email|root@db1.example.net⟧;
身份证 ⟦cn_id|320105190803174525⟧
身份证号是⟦cn_id|440306 19130829 0034⟧，麻烦登记
证件号 ⟦cn_id|310115-19120101-1089⟧
我的证件⟦cn_id|11010519491231002x⟧
ID number ⟦cn_id|33010219100715331７⟧
乘客⟦cn_id|500103190506067775⟧已取票
身份证：⟦cn_id|1101 0119 0405 2100 39⟧
The traveller's id is ⟦cn_id|110105 19491231 002X⟧.
卡号⟦credit_card|6222021234567890128⟧工商银行
银行卡 ⟦credit_card|6222 0212 3456 7890 128⟧
信用卡⟦credit_card|４１１１　１１１１　１１１１　１１１１⟧
charge ⟦credit_card|4242 4242 4242 4242⟧ exp 04/27
Card: ⟦credit_card|5105105105105100⟧, cvv 123
amex ⟦credit_card|3782-822463-10005⟧
amex ⟦credit_card|3714 496353 98431⟧
diners ⟦credit_card|3056 930902 5904⟧
JCB ⟦credit_card|3530111333300000⟧
pay with ⟦credit_card|6011-1111-1111-1117⟧ please
mc 2 series ⟦credit_card|2223003100320002⟧
カード番号は⟦credit_card|4000 0566 5566 5556⟧です
tarjeta ⟦credit_card|5555 5555 5555 4444⟧ caduca 12/26
it is ⟦credit_card|4012888888881881⟧
IBAN: ⟦iban|ES91 2100 0418 4502 0005 1332⟧
cuenta ⟦iban|ES9121000418450200051332⟧.
Konto ⟦iban|de89370400440532013000⟧
virement ⟦iban|FR14 2004 1010 0505 0001 3M02 606⟧ AVANT LUNDI
账户⟦iban|NL91 ABNA 0417 1643 00⟧收款
to ⟦iban|CH93-0076-2011-6238-5295-7⟧
服务器 ⟦ipv4|10.1.2.3⟧ 挂了
ping ⟦ipv4|198.51.100.7⟧:443
allow ⟦ipv4|203.0.113.0⟧/24 through
登录IP：⟦ipv4|１９８．５１．１００．９⟧
Server ⟦ipv4|10.20.30.40⟧ now runs version 3.2.1.0
ssh root@⟦ipv4|192.0.2.10⟧
http://⟦ipv4|198.51.100.3⟧:8080/admin
Failed login from ⟦ipv4|203.0.113.200⟧ port 22
サーバーは⟦ipv4|192.0.2.99⟧です
la IP ⟦ipv4|192.168.1.20⟧ no responde
[⟦ipv6|2001:db8::8:800:200c:417a⟧]:443
IPv6: ⟦ipv6|2001:0db8:0000:0000:0000:ff00:0042:8329⟧
addr ⟦ipv6|fe80::1⟧%eth0
route ⟦ipv6|2001:db8:1234::⟧/48
mapped ⟦ipv6|::ffff:192.0.2.128⟧
地址是⟦ipv6|fd12:3456:789a:1::1⟧。
MAC:⟦mac|3C:22:FB:12:34:56⟧
the phone is ⟦mac|3c-22-fb-ab-cd-ef⟧
switch port ⟦mac|001a.2b3c.4d5e⟧ mac table
网卡⟦mac|00:11:22:33:44:55⟧
OPENAI_API_KEY=⟦api_key|sk-proj-Tq7LmZ2pXv9RbC4nWk8sYh3JdG6fEa1U⟧
key ⟦api_key|sk-ant-api03-Qw8eRt5yUi2oPa9sDf6gHj3kLz7xCv4bNm1QwErTy-AbCdEfGA⟧
sk: ⟦api_key|sk_live_4eC39HqLyjWDarjtT1zdp7dcXy⟧
⟦api_key|glpat-Zx8Qw3Er5Ty7Ui9Op2As⟧ 是临时的
密钥：⟦api_key|AKIAZ5GMHYJKLMNOPQRS⟧
aws_secret_access_key = ⟦api_key|wJalrXUtnFEMI/K7MDENG/bPxRfiCYzEXAMPLEKEY⟧
google ⟦api_key|AIzaSyA1234567890abcdefGHIJKLmnopqrstuv⟧
hf token ⟦api_key|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⟧
slack ⟦api_key|xoxp-123456789012-234567890123-Ab3dEf6hIj9k⟧
github ⟦api_key|github_pat_11ABCDEFG0aBcDeFgHiJkL_mNoPqRsTuVwXyZ0123456789⟧
X-Api-Key: ⟦api_key|9f8e7d6c5b4a39281706f5e4d3c2b1a0⟧
Authorization: Bearer ⟦api_key|Zm9vYmFyMTIzNDU2Nzg5MHF1eHh5enp5⟧
阿里云 ⟦api_key|LTAI5tQnKxTzRvYw3pLm8sBd⟧
令牌是⟦api_key|npm_Ab3dEf6hIj9kLmN0pQrStUvWxYz123456789⟧，请轮换
APIキーは⟦api_key|sk-9aB8cD7eF6gH5iJ4kL3mN2oP1qR0sT⟧です
la clave es ⟦api_key|sk_test_51Habcdefghijklmnop0123⟧
db password=⟦api_key|Tr0ub4dor&3x⟧ in the env
jwt ⟦jwt|eyJhbGciOiJSUzI1NiJ9.eyJpc3MiOiJleGFtcGxlIn0.c2lnbmF0dXJlLXZhbHVlLWhlcmU⟧.
cookie=⟦jwt|eyJhbGciOiJIUzI1NiJ9.eyJ1aWQiOjQyfQ.AbCdEfGhIjKlMnOpQrStUvWxYz012345⟧; path=/
护照号码：⟦passport|G12345678⟧
护照 ⟦passport|EA1234567⟧，签证已过
⟦passport|E87654321⟧是我的护照
passport number is ⟦passport|AB1234567⟧
UK passport ⟦passport|512345678⟧ expires soon
パスポート番号は⟦passport|TK1234567⟧です
mi pasaporte es ⟦passport|PAA123456⟧
旅券番号 ⟦passport|MU7654321⟧
护照E⟦passport|Ｅ１２３４５６７８⟧
护照 ⟦passport|E 1234 5678⟧ 有效
redis://:⟦x|⟧
连接 ⟦url_credentials|redis://:S3cretPw@cache.example:6379/0⟧。
⟦url_credentials|https://ci:tok3nValue@git.example.org/a/b.git⟧
dsn=⟦url_credentials|mysql://root:p@ss%2Fw0rd@127.0.0.1:3306/app?charset=utf8⟧
("⟦url_credentials|mongodb+srv://svc:hunter2@cluster.example.net/prod⟧")
⟦url_credentials|ftp://anna:geheim@ftp.example.de/upload⟧, danke
接続先は⟦url_credentials|amqp://app:Zx9Kq@mq.example.jp:5672/vh⟧です
⟦url_credentials|postgres://admin:admin1@localhost/dev⟧ 本地库
""".strip().splitlines()
FOUND = [line for line in FOUND if "⟦x|" not in line and "护照E⟦" not in line and "（⟦phone" not in line]

HARMLESS = """
数量 13800138000，单位是件
库存显示13912345678件，肯定错了
今天的播放量是15912345678次
合计13800001234元
金额：18800001111，财务已确认
总额 ¥13900001234
文件大小 13812345678 字节
offset=13800001234 limit=500
user_id: 13912340000
订单号13800001234已签收
运单号 15012345678，明天到
订单 13700001111、13700002222 都发货了
营收达到13900001234元
超过13800000000人次访问
流水号：18612345678
计数器停在13900007788
价格13800001234日元
工号13800001111
序列号SN-13800001234
会议号 138 0000 1234
抽中的彩票号码段无效，编号 13511112222
13800001234 这个数量不对
13912345678次浏览
共13312345678条记录
余额还有 15800001234 分
id=15912345678&page=2
The total came to 13800138000 units.
count: 13912345678
It returned 15812345678 rows
Invoice 13700001234 is unpaid
Balance was $13800001234 before
order number 138-0000-5678
views: 18812345678
Views hit 18812345678, likes 13900001111
a budget of 15912345678 yen
about 13800001234 bytes
ticket 2125550147
Meeting ID 880 223 4567
for n in range(13800001234): pass
assert total == 13900001234
if x > 13800001234:
INC0012345678 and REQ0045678901
Order 4111-22-900, tracking 9400 1000 0000 0000 0000 00
Tracking 1Z999AA10123456784 and 420941079405511206082530
SF1029384756120 YT4567890123456 JD0098765432101
Born 1987-04-12, joined 2019/03/01
2025-03-14T15:00:00+08:00
epoch 1700000000 and 1700000000123
at 1700000000 the log says call failed
40.712776, -74.005974
坐标 31.230416,121.473701
圆周率 3.1415926535897932
ISBN 978-7-111-54742-6
ISBN 978 7 111 54742 6
ISBN-10: 0-306-40615-2
EAN 4006381333931
barcode 6901234567892
card 4111 1111 1111 1112 was declined as invalid
卡号 6222 0212 3456 7890 123 校验错误
信用卡 4242424242424243 输错了一位
卡尾号 4444
Card ending in 1881
IMEI 490154203237518
订单 4111111111111111 不是卡
身份证 110101190405210038 校验失败
身份证后四位 0039
身份证前六位 110101
统一社会信用代码 91310000MA1FL1234X
ES91 2100 0418 4502 0005 1333 is not valid
DE00 1234
GB82 WEST
version 10.4.12.3
Release 1.2.3.4 fixes it
固件 2.0.1.15 已推送
升级到 10.2.3.4
从 3.11.0.2 回滚到 3.10.9.15
Chrome 99.0.48.51
v1.2.3.4
app 10.0.1.2-beta
see section 4.3.2.1
OID 1.3.6.1.4.1.311
999.1.2.3 and 256.1.1.1
netmask 255.255.255.0
127.0.0.1 and ::1 and 0.0.0.0 and [::]:80
localhost:3000 http://localhost:8080/health
バージョン 1.2.3.4 に更新
versión 2.0.1.3 publicada
std::vector<int> a::b::c Foo::Bar dead::end
12:30:45 and 01:02:03:04
x[1::2] and y[::-1]
SHA1 AA:BB:CC:DD:EE:FF:00:11:22:33:44:55:66:77:88:99:AA:BB:CC:DD
scores 12-10-11-09-08-12
ff:ff:ff:ff:ff:ff
00:00:00:00:00:00
123e4567-e89b-12d3-a456-426614174000
token 123e4567-e89b-12d3-a456-426614174000
sha256:e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855
commit 9f8e7d6c5b4a39281706f5e4d3c2b1a098765432
md5 d41d8cd98f00b204e9800998ecf8427e
etag "686897696a7c876b7e"
sk-... and sk-xxxxxxxxxxxxxxxxxxxxxxxx
ghp_xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx
export KEY=YOUR_API_KEY_HERE
api_key = os.environ["OPENAI_API_KEY"]
token: <your-token>
scikit-learn sk-learn-style-transformers-for-everyone
npm_config_registry_is_set_by_the_installer
password must have 8+ characters
密码是6位数字
验证码 482913
eyJhbGciOiJIUzI1NiJ9 is only a header
eyJ... is how they begin
user@ and @user and a@b
lanxi.mu#example.com
someone at example dot com
icon@2x.png
import x from '@scope/pkg@1.2.3'
git@github.com:team/repo.git
ssh deploy@build.example.net
https://user@example.com/path
@app.route("/x")
x @ y.T
^[\\w.]+@[\\w.]+$
mongodb://localhost:27017/test
postgres://app@db.example/x
https://example.com/a:b@c
https://user:${PASSWORD}@example.com
https://meet.example.com/j/88?pwd=abc
护照办好了，回执号 AB1234567
护照费 160 元，预约号 20250101
passport application reference AB1234567
passport photos 35x45
办护照要带 2 张照片，叫号 A1234
Gate B12345678 is not a document
room B-1204, flight MU5735
#1A2B3C rgba(15,157,88,0.5)
It cost $1,234.56
¥13,800.00
1,380,000,1234
13800001234.56
1.38e10
QQ 群 138000012
邮编 200030
2 + 2 = 4, 100% of 3/4
pedido 55-0147-212
importe total 13800001234
注文番号 080-0000-3344
金額は13800001234円です
合計 13900001234 個
Release 212.555.2
10.10.2024 - 12.10.2024
3.5.2.1 版本
scored 21-15, 18-21, 21-19
between 2000000000 and 2147483647
0x7ffee4c0a9b8
AS64496
1600 1200 1024 768
总播放量13912345678
收入合计 13800001234，比去年多
这个月流水13512345678元
字段值为 13900001234，超过 int32
主键 13800001234 冲突
数据库里有 13800001234 条
估算约13800000000个token
人口13900000000
单号：13800001234
快递 15812345678 到了，取件码 1234
距离 13800001234 米
余额13800001234
13800001234是订单号，不是电话
amount=13800001234
The order 13800001234 has shipped
We processed 13912345678 transactions last year
The file is 13812345678 bytes long
a population of 13900000000
revenue reached 15812345678
SKU 13912345678
Case #13912345678
13,912,345,678 views
total = 13912345678;
transaction 13912345678 failed
Bank transfer of 13912345678 VND
库存 138-0000-1234
cost 13912345678 won
播放13800001234
共计13800001234，单位元
价税合计（小写）13800001234
本期应缴 13800001234
阅读数13800001234
编号为13800001234的设备
设备ID 13800001234
实例id：13900001234
交易号13900001234
数额13900001234太大
查到13900001234行
订单金额是13900001234，麻烦核对
缓存命中 13900001234
offset 13900001234, partition 3
件数は13800001234です
注文番号は13800001234です
number of rows: 13800001234
GDP 13800001234 万元
Invoice total 4,111,111.11
serial 4111-1111-1111-1112
gift card code ABCD-1234-EFGH-5678
ICCID 89860000000000000000
VIN 1HGCM82633A004352
flight CA1234 seat 12A, gate B12
运单号 4200 1234 5678 9012
订单 20241105 1234 5678 9012
2024110512345678
条码 4006381333931
Kubernetes v1.28.3.4 node
python 3.11.0.2
Windows 10.0.19045.1
版本号：10.3.2.1
build 192.168.1.20 failed
127.0.0.53 resolver
第 1.2.3.4 节
Firmware 2.4.6.8 installed
Figure 3.2.1.4 shows
ratio 1:2:3:4:5:6
C++ a::b and std::string
time 10:20:30
css ::before and ::after
hash a4:5e
uuid 550e8400-e29b-41d4-a716-446655440000
git sha 3f786850e387550fdab836ed7e6dc881de23001b
a session id 5f4dcc3b5aa765d61d8327deb882cf99
color: #ff00aa; width: 100px
lat=31.2304,lng=121.4737
身份证号应为18位，以 110101 开头
护照有效期 20310501
passport expires 2031-05-01
The passport office opens at 9, ticket A1234567
password reset link expires in 24 hours
use Bearer <token> in the header
Authorization: Bearer YOUR_TOKEN
sk-1234
my API key is in the vault
http://localhost:3000/?token=abc
https://example.com:8443/path
email: none
follow me @kai_1990
price@100 each
foo@bar
IBAN field is empty, DE89 only
DE89 3704 0044 0532 0130 01
地址栏输入 about:blank
在 5 号楼开会
公交 18 路
第3号文件
10-20 people, 30-40 seats
1-2-3-4-5-6-7
2024-2025-1
call me at 5
phone costs 1200
my phone is 6.1 inches, 4000 mAh
电话费 120 元
room 2125
extension 8012
PIN 4821
score 123-456
555-0147-212
part no. 415-2003-9912
ISSN 2049-3630
DOI 10.1000/182
arXiv:2301.12345
MAC lipstick 12-34-56
退款 13912345678 韩元
库存：13,800,138,000
今年销售了13912345678支
总字节数=13912345678
抽查样本 13912345678，误差 0.1%
共耗时 13912345678 纳秒
The counter wrapped at 13912345678.
It sold 13912345678 copies.
memory usage: 13912345678
market cap of 13912345678
loss = 13912345678
13912345678 impressions were served
we counted 13912345678 stars
seed 13912345678
nonce: 13912345678
2 x 13912345678
13912345678 + 1
max_id=13912345678
row 13912345678 is broken
资产 13912345678 元
市值约13912345678美元
订单尾号13912345678
发票代码 13912345678
税号 13912345678
数据量达13912345678
写入了13912345678
内存地址 13912345678
电量 13912345678
PO 13912345678
PO number: 13912345678
quote #13912345678
第 12 条第 3 款
""".strip().splitlines()
