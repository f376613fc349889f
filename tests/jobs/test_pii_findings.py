"""What a level covers is counted by kind, in whatever a row says."""

from collections import Counter

import msgspec
import pytest

from jobs.pii_findings import found_in
from serve_app.core import Constraint, Fact, Summary, ToolCall, Turn

MAIL = "anna.kestrel@example.org"
CARD = "4111 1111 1111 1111"

TURN = Turn("1", "s", "user", "", 1, 0, 0)
SUMMARY = Summary("s", "nothing", 1, 1, 1, "v", "h", 2, 0, 0)


def counted(value, level="strict"):
    return found_in(type(value).__name__.lower(), msgspec.msgpack.encode(value), level)


@pytest.mark.parametrize(
    "held",
    [
        msgspec.structs.replace(TURN, content=f"write to {MAIL}"),
        msgspec.structs.replace(TURN, content="x", speaker=MAIL),
        msgspec.structs.replace(TURN, content="x", metadata={"to": ["me", MAIL]}),
        msgspec.structs.replace(TURN, data=b'{"number": 12345678901234567890123, "to": "%s"}' % MAIL.encode()),
        msgspec.structs.replace(TURN, tool_calls=(ToolCall("c", "send", {"to": MAIL}),)),
        Fact("contact", MAIL, 1, 0),
        msgspec.structs.replace(SUMMARY, text=f"asked to write to {MAIL}"),
        msgspec.structs.replace(SUMMARY, constraints=(Constraint(f"only to {MAIL}", "1", 1),)),
    ],
)
def test_it_is_found_wherever_it_stands(held):
    assert counted(held) == Counter(email=1)
    assert counted(held, "secrets") == counted(held, "off") == Counter()


def test_each_kind_is_counted_and_what_is_redacted_already_is_not():
    said = f"{CARD} and {CARD}, mail {MAIL}, before that [email] and [phone]"
    assert counted(msgspec.structs.replace(TURN, content=said)) == Counter(credit_card=2, email=1)
    assert counted(msgspec.structs.replace(TURN, content="[email] [credit_card]")) == Counter()


def test_the_key_of_a_fact_says_what_its_value_is():
    assert counted(Fact("password", "hunter2hunter2", 1, 0), "secrets") == Counter(api_key=1)
