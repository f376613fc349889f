"""A lane waits for a busy service, narrows a refusal down to what is to blame, and stops only where nothing goes."""

import json

import msgspec

from jobs.import_lanes import Done, Lane
from jobs.import_rows import Ordered
from tests.client.answering import Answering


def ordered(number, session="s", **body):
    return Ordered("u", session, "", {"id": str(number), "role": "user", "content": f"n{number}"} | body, "f", number)


def write(url, orders, patience_s=5.0):
    lane = Lane(url, "key", patience_s)
    return msgspec.msgpack.decode(lane.write(b"\n".join(one.packed for one in orders)), type=Done)


class Refusing(Answering):
    """Refuses a call that holds a turn whose content is bad."""

    def __init__(self):
        super().__init__({})

    def next_answer(self, path):
        turns = self.asked[-1][3]["turns"]
        if any(turn["content"] == "bad" for turn in turns):
            return 422, {}, {"code": "invalid_request", "detail": "no"}
        return 201, {}, {"results": [{"id": turn["id"], "status": "stored"} for turn in turns]}


def test_a_busy_service_is_waited_for():
    stored = (201, {}, {"results": [{"id": "1", "status": "stored"}]})
    busy = (503, {"Retry-After": "0"}, {"code": "overloaded"})
    with Answering({"/v1/sessions": [busy, busy, stored]}) as server:
        done = write(server.url, [ordered(1)])
    assert (done.statuses["stored"], done.stopped) == (1, ("", ""))


def test_only_the_turn_that_is_to_blame_is_not_written():
    with Refusing() as server:
        done = write(server.url, [ordered(number, content="bad" if number == 5 else "good") for number in range(9)])
    assert (done.statuses["stored"], done.statuses["refused"]) == (8, 1)
    assert [(letter.offset, letter.id, letter.code) for letter in done.letters] == [(5, "5", "invalid_request")]


def test_turns_are_sent_in_order_by_session():
    with Refusing() as server:
        write(server.url, [ordered(number, session=f"s{number // 3}") for number in range(6)])
    sent = [(path, [turn["id"] for turn in body["turns"]]) for _, path, _, body in server.asked]
    assert sent == [("/v1/sessions/s0/turns", ["0", "1", "2"]), ("/v1/sessions/s1/turns", ["3", "4", "5"])]


def test_a_key_that_is_not_known_stops_it():
    with Answering({"/": [(401, {}, {"code": "unauthorized", "detail": "no"})]}) as server:
        done = write(server.url, [ordered(1)])
    assert done.stopped[0] == "unauthorized"
    assert not done.letters


def test_patience_ends():
    with Answering({"/": [(503, {"Retry-After": "0"}, {"code": "overloaded"})]}) as server:
        assert write(server.url, [ordered(1)], patience_s=0).stopped[0] == "overloaded"


def test_a_fact_that_says_the_same_already_is_not_set_again():
    def fact(key, value):
        return Ordered("u", "", key, {"value": value}, "f", 0)

    answers = {"/v1/users/u/facts/diet": [(200, {}, {"value": "vegan"})], "/v1/users/u/facts/city": [(404, {}, {})]}
    with Answering(answers) as server:
        server.answers["/v1/users/u/facts/city"] = [(404, {}, {"code": "not_found"}), (200, {}, {"value": "Berlin"})]
        done = write(server.url, [fact("diet", "vegan"), fact("city", "Rome"), fact("city", "Berlin")])
    assert (done.statuses["facts_there"], done.statuses["facts_set"], done.statuses["facts_replaced"]) == (1, 1, 1)
    assert [body["value"] for method, _, _, body in server.asked if method == "PUT"] == ["Berlin"]
    assert json.dumps(done.statuses)
