"""Addresses of machines and mailboxes: email, URLs with a password, IPv4, IPv6, MAC.

Every search is anchored at a mark that the form cannot do without (`@`, `://`, a colon), and looks a bounded way
around it: the cost of a text grows with its length, whatever it says.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Iterator

from serve_app.privacy.cues import cues, nearest
from serve_app.privacy.kinds import Span

LOCAL_MAX = 64
DOMAIN_MAX = 253
SCHEME_MAX = 32
USERINFO_MAX = 512
URL_MAX = 2_048

# ---- email

_MAYBE_MAILBOX = re.compile(r"(?<=[\w%+'-])@(?=(?:[^\W_][\w-]{0,62}\.){1,8}[^\W\d_]{2})")
_LOCAL = re.compile(r"[\w.%&'+-]{1,64}")  # read backwards
_LOCAL_ASCII = re.compile(r"[A-Za-z0-9_%+-](?:[\w.%+'-]*[\w%+-])?", re.ASCII)
_DOMAIN = re.compile(r"(?:[^\W_](?:[\w-]{0,61}[^\W_])?\.){1,8}")
_TLD = re.compile(
    r"[A-Za-z]{2,24}(?![A-Za-z0-9])|xn--[a-z0-9-]{2,59}|中国|中國|公司|网络|網絡|香港|台湾|台灣|在线|网址|みんな|рф"
)
_FILE_ENDS = ".png .jpg .jpeg .gif .svg .webp .css .js .ts .py .json .html .md .txt .pdf .zip .xml .yml .yaml"
_NO_TLD = frozenset(_FILE_ENDS.replace(".", "").split())
_CJK_BEFORE_MAILBOX = re.compile(
    r".*(?:联系|邮箱|邮件|电邮|信箱|发给|发到|发送|寄给|寄到|写给|写信给|抄送|转发|登录|账号|地址|改成|换成"
    r"|[是为到给请用往在和跟与找叫：])"
)
CJK_MAILBOX_MAX = 4
"""Letters of a Chinese name before the first dot of a mailbox; more are words of the sentence."""

_SHELL_LOGIN = re.compile(r"(?:ssh|scp|sftp|rsync)(?: -\S+| \d+)* $")


def emails(text: str) -> Iterator[Span]:
    taken = 0
    for found in _MAYBE_MAILBOX.finditer(text):
        at = found.start()
        end = _domain_end(text, at + 1) if at >= taken else 0
        start = _local_start(text, at) if end else at
        if start < at and not _is_a_login(text, start, at, end):
            taken = end
            yield Span(start, end, "email")


def _domain_end(text: str, start: int) -> int:
    """Where the domain that begins here ends; 0 where none does."""
    labels = _DOMAIN.match(text, start, start + DOMAIN_MAX)
    while labels is not None:
        tld = _TLD.match(text, labels.end())
        if tld is not None:
            return 0 if tld.group().lower() in _NO_TLD else tld.end()
        last_dot = text.rfind(".", start, labels.end() - 1)
        labels = _DOMAIN.match(text, start, last_dot + 1) if last_dot > start else None
    return 0


def _local_start(text: str, at: int) -> int:
    """Where the mailbox that ends here begins; `at` where there is none."""
    backwards = _LOCAL.match(text[max(0, at - LOCAL_MAX) : at][::-1])
    if backwards is None:
        return at
    start = at - backwards.end()
    local = text[start:at]
    if local.isascii():
        return start + len(local) - len(local.lstrip(".&'-"))
    return start + _sentence_before(local)


def _sentence_before(local: str) -> int:
    """How much of a run of letters before an @ belongs to the sentence and not to the mailbox."""
    tail = re.search(r"[\x00-\x7f]+\Z", local)
    if tail is not None and _LOCAL_ASCII.fullmatch(tail.group()) and tail.group()[0] not in "+.":
        head = local[: tail.start()]
        if "." not in head and "+" not in head:
            return tail.start()
    first = re.split(r"[\x00-\x7f]", local, maxsplit=1)[0]
    said = _CJK_BEFORE_MAILBOX.match(first)
    if said is not None and said.end() < len(local):
        return said.end()
    return max(0, len(first) - CJK_MAILBOX_MAX)


def _is_a_login(text: str, start: int, at: int, end: int) -> bool:
    """`https://user@host`, `git@host:path` and `ssh user@host` name an account on a machine."""
    if text[max(0, start - 3) : start] == "://" or (text[start:at] == "git" and text[end : end + 1] in ":/"):
        return True
    return _SHELL_LOGIN.search(text, max(0, start - SCHEME_MAX), start) is not None


# ---- URLs with a password

_SCHEME = re.compile(r"[A-Za-z0-9+.-]{1,32}")  # read backwards
_USERINFO = re.compile(r"([^\s/?#\"'<>`:@\u2e80-\uffff]*):([^\s/?#\"'<>`\u2e80-\uffff]+)@")
_REST = re.compile(r"[^\s\"'<>`\u2e80-\uffff]+")
_PLACEHOLDER = re.compile(r"[$%]?\{+[^}]*\}+|\$\w+|[*x.•]+|\[\w+\]", re.IGNORECASE)
_AFTER_URL = ".,;:!?)]}"


def urls_with_password(text: str) -> Iterator[Span]:
    mark = text.find("://")
    while mark >= 0:
        end = mark + 3
        userinfo = _USERINFO.match(text, end, end + USERINFO_MAX)
        scheme = _SCHEME.match(text[max(0, mark - SCHEME_MAX) : mark][::-1])
        if userinfo and scheme and not _PLACEHOLDER.fullmatch(userinfo[2]):
            rest = _REST.match(text, userinfo.end(), end + URL_MAX)
            if rest is not None:
                start = mark - scheme.end()
                start += len(text[start:mark]) - len(text[start:mark].lstrip("0123456789+.-"))
                end = userinfo.end() + len(rest.group().rstrip(_AFTER_URL))
                yield Span(start, end, "url_credentials")
        mark = text.find("://", end)


# ---- IP

_IPV4 = re.compile(r"\d{1,3}\.\d{1,3}\.\d{1,3}\.\d{1,3}(?!\d)(?!\.\d)(?![A-Za-z_])")
_BEFORE_NUMBER = re.compile(r"[0-9A-Za-z_]|[0-9]\.|[A-Za-z]-")
_VERSION_AFTER = re.compile(
    r"\s{0,2}(?:这个)?(?:版|固件|回滚|升级|升到|降级|version\b|release\b|build\b|バージョン)", re.IGNORECASE
)
_ADDRESS_AFTER = re.compile(r"(?::\d{2,5}|/\d{1,2})(?!\d|\.\d)")

_IP_CUES = cues(
    "ip ipv4 ips host hosts server gateway dns ping ssh subnet proxy peer client router netmask addr node vpn "
    "whitelist allowlist firewall nameserver neighbour neighbor remote src dst traceroute curl "
    "地址 网关 服务器 主机 机器 节点 内网 外网 公网 白名单 黑名单 代理 登录 サーバー アドレス servidor dirección",
    "version versions v ver release releases released build builds revision rev firmware upgrade upgraded upgrading "
    "update updated downgrade downgraded rollback rolled bump bumped superseded changelog tag patch hotfix chrome "
    "chromium firefox python node nginx java jdk openssl kernel ios android windows driver sdk app package dll "
    "assembly section chapter clause paragraph appendix oid figure fig table step item rfc versión 版本 版本号 "
    "升级 升到 回滚 降级 更新 固件 "
    "补丁 驱动 客户端 软件 发布 章节 条款 小节 图 表 第 バージョン 更新版 アップデート actualización",
)


def ipv4(text: str) -> Iterator[Span]:
    for found in _IPV4.finditer(text):
        start = found.start()
        if start and _BEFORE_NUMBER.search(text, max(0, start - 2), start) and _joined(text, start):
            continue
        if _is_host(found.group()) and not _is_version(text, start, found.end()):
            yield Span(start, found.end(), "ipv4")


def _joined(text: str, start: int) -> bool:
    """Whether a number goes on to the left of `start`: it is part of something longer."""
    before = text[start - 1]
    if before in ".-" and start > 1:
        return text[start - 2].isascii() and text[start - 2].isalnum()
    return before == "_" or (before.isascii() and before.isalnum())


def _is_host(number: str) -> bool:
    try:
        address = ipaddress.IPv4Address(number)
    except ValueError:  # a part above 255, or with a leading zero
        return False
    return not (address.is_loopback or address.is_unspecified or number.startswith("255."))


def _is_version(text: str, start: int, end: int) -> bool:
    if _ADDRESS_AFTER.match(text, end):
        return False
    if _VERSION_AFTER.match(text, end):
        return True
    cue = nearest(text, start, _IP_CUES)
    return cue is not None and not cue.speaks_for


_COLONS = re.compile(
    r"(?<![0-9A-Za-z])(?:[0-9A-Fa-f]{1,4}:[0-9A-Fa-f]{0,4}:|::[0-9A-Fa-f])[0-9A-Fa-f:]*(?:\.\d{1,3}){0,3}"
)
IPV6_MAX = 45
_SHORT_ADDRESS = re.compile(r"(?:[2f][0-9a-f]{3})::", re.IGNORECASE)


def ipv6(text: str) -> Iterator[Span]:
    for found in _COLONS.finditer(text):
        start, end = found.span()
        if text[end - 1] == ":" and text[end - 2 : end] != "::":
            end -= 1
        if (
            end - start <= IPV6_MAX
            and text[end : end + 1] != "_"
            and _is_remote_v6(text[start:end], text[end : end + 1])
        ):
            yield Span(start, end, "ipv6")


def _is_remote_v6(written: str, after: str) -> bool:
    groups = [group for group in written.split(":") if group]
    if len(groups) < 2 or (after.isascii() and after.isalnum()):
        return False
    if all(len(group) == 2 for group in groups) and "::" not in written:
        return False  # bytes: an EUI-64 or part of a fingerprint
    if len(groups) == 2 and not (_SHORT_ADDRESS.match(written) or "." in written):
        return False  # `a::b` is code, `1::2` a slice
    try:
        address = ipaddress.IPv6Address(written)
    except ValueError:
        return False
    return not (address.is_loopback or address.is_unspecified) and any(char.isdigit() for char in written)


# ---- MAC

_BYTES = re.compile(r"(?<![0-9A-Za-z])[0-9A-Fa-f]{2}(?:[:-][0-9A-Fa-f]{2})+(?![0-9A-Za-z])")
_DOTTED_MAC = re.compile(r"(?<![0-9A-Za-z.])[0-9A-Fa-f]{4}\.[0-9A-Fa-f]{4}\.[0-9A-Fa-f]{4}(?![0-9A-Za-z]|\.\w)")
_MAC_LENGTH = 17
_MAC_CUES = cues(
    "mac bssid ethernet wlan wifi nic hwaddr eth 网卡 物理地址 无线 以太网 蓝牙 bluetooth",
)


def macs(text: str) -> Iterator[Span]:
    for found in (*_BYTES.finditer(text), *_DOTTED_MAC.finditer(text)):
        if _is_mac(text, found.start(), found.group()):
            yield Span(*found.span(), "mac")


def _is_mac(text: str, start: int, written: str) -> bool:
    digits = written.translate({ord(":"): None, ord("-"): None, ord("."): None}).lower()
    if len(digits) != 12 or len(set(written) & set(":-.")) != 1 or len(set(digits)) == 1:
        return False
    if not digits.isdigit() or (len(written) == _MAC_LENGTH and ":" in written):
        return True
    return nearest(text, start, _MAC_CUES) is not None
