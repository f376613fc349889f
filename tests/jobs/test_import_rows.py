"""What a part of a source holds: every turn once, in its user's lane, under an id that stays."""

import json

import msgspec

from jobs.import_rows import LETTERS_A_PART_MAX, TALLY_LANE, Reading, Tally, lane_of, rows_of, unpacked
from jobs.source_parts import Part, parts_of

TURNS = [
    {"user_id": f"user{number % 3}", "session_id": f"s{number % 2}", "role": "user", "content": f"n{number}"}
    for number in range(30)
]


def written(path, lines):
    path.write_text("".join(json.dumps(line) + "\n" if isinstance(line, dict) else line for line in lines))
    return path


def read(path, reading=None, documents=frozenset()):
    """Orders by lane, and the tally of all parts together."""
    lanes, tallies = {}, []
    for part in parts_of([path], documents):
        for row in rows_of(part, reading or Reading()):
            if row.lane == TALLY_LANE:
                tallies.append(msgspec.msgpack.decode(row.payload, type=Tally))
            else:
                lanes.setdefault(row.lane, []).extend(unpacked(row.payload))
    return lanes, tallies[0]


def test_a_user_has_one_lane_and_keeps_the_order_of_the_file(tmp_path):
    lanes, tally = read(written(tmp_path / "turns.jsonl", TURNS))
    assert tally.turns == 30
    for lane, orders in lanes.items():
        assert all(lane_of(one.user, 4) == lane for one in orders)
        for user in {one.user for one in orders}:
            theirs = [one.body["content"] for one in orders if one.user == user]
            assert theirs == [turn["content"] for turn in TURNS if turn["user_id"] == user]


def test_turns_that_say_the_same_have_ids_of_their_own_that_stay(tmp_path):
    twice = written(tmp_path / "turns.jsonl", [TURNS[0], TURNS[0]])
    ids = [[one.body["id"] for one in read(twice)[0].popitem()[1]] for _ in range(2)]
    assert ids[0] == ids[1]
    assert len(set(ids[0])) == 2
    (tmp_path / "other").mkdir()
    moved = written(tmp_path / "other" / "turns.jsonl", [TURNS[0], TURNS[0]])
    assert [one.body["id"] for one in read(moved)[0].popitem()[1]] == ids[0]


def test_what_cannot_be_read_is_named_by_its_place_and_the_rest_goes_on(tmp_path):
    bad = ["{\n", json.dumps({"user_id": "u", "role": "user"}) + "\n", '{"user_id": "u", "session_id": "\\ud800"}\n']
    lanes, tally = read(written(tmp_path / "turns.jsonl", [TURNS[0], *bad, TURNS[1]]))
    assert sum(map(len, lanes.values())) == tally.turns == 2
    assert tally.unread == 3
    first = len(json.dumps(TURNS[0])) + 1
    assert [letter.offset for letter in tally.letters] == [first, first + 2, first + 2 + len(bad[1])]
    assert {letter.code for letter in tally.letters} == {"invalid_request"}


def test_letters_are_bounded_and_counted_all_the_same(tmp_path):
    _, tally = read(written(tmp_path / "turns.jsonl", ["{\n"] * (LETTERS_A_PART_MAX + 5)))
    assert (tally.unread, len(tally.letters)) == (LETTERS_A_PART_MAX + 5, LETTERS_A_PART_MAX)


def test_integers_of_any_size_come_through(tmp_path):
    turn = TURNS[0] | {"data": {"number": 10**40}}
    lanes, _ = read(written(tmp_path / "turns.jsonl", [turn]))
    assert lanes.popitem()[1][0].body["data"] == {"number": 10**40}


def test_an_export_tells_how_much_there_was(tmp_path):
    turn = TURNS[0] | {"id": "a", "kind": "turn", "arrived_at": "2026-01-01T00:00:00Z", "seq": 1}
    fact = {"kind": "fact", "user_id": "u", "key": "k", "value": "v"}
    end = {"kind": "end", "turns": 2, "facts": 1}
    _, tally = read(written(tmp_path / "export.jsonl", [turn, fact, end]))
    assert (tally.exported, tally.facts, tally.told_turns, tally.told_facts) == (1, 1, 2, 1)


def test_one_memory_that_cannot_be_read_leaves_the_others_of_its_document_alone(tmp_path):
    memories = [{"id": str(at), "memory": f"m{at}" if at != 1 else "", "user_id": "u"} for at in range(3)]
    path = tmp_path / "export.json"
    path.write_text(json.dumps({"results": memories}, indent=1))
    lanes, tally = read(path, Reading(form="mem0"), frozenset([path]))
    assert [one.body["id"] for one in lanes.popitem()[1]] == ["0", "2"]
    assert (tally.turns, tally.unread) == (2, 1)
    assert Part(0, str(path), 0, path.stat().st_size, True) == parts_of([path], frozenset([path]))[0]
