"""The ledger: what binds is active, what was replaced is superseded, what is no constraint is in neither."""

import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from serve_app.compress.ledger import ENTRIES_MAX, ledger, read
from serve_app.core import Turn
from tests.compress.lines import active, said, superseded

BINDING = [
    "We cannot spend more than 450 euros on this.",
    "Whatever you suggest, no peanuts.",
    "Peanuts put me in hospital twice.",
    "I was diagnosed with diabetes in spring.",
    "My son is colour-blind.",
    "Keep the call under twenty minutes.",
    "The contract has to be signed by 14 March.",
    "Her surname is spelled Wojciechowska.",
    "The booking reference is KD-7741.",
    "It's not that I dislike fish; I can't digest it.",
    "Nothing that needs an internet connection.",
    "Only trains, please.",
    "Don't call me before ten.",
    "Deliver it to 14 Mill Lane.",
    "No puedo comer gluten.",
    "El presupuesto no puede pasar de 900 euros.",
    "Soy alérgica a los cacahuetes.",
    "Nada de reuniones antes de las 10.",
    "La entrega tiene que ser antes del 12 de mayo.",
    "Me llamo Begoña, con eñe.",
]


@pytest.mark.parametrize("text", BINDING)
def test_what_binds_is_an_entry_however_it_is_said(text):
    assert text.rstrip(".") in " ".join(active(f"u: {text}"))


NOT_BINDING = [
    "If I were rich I'd buy a yacht with two pools.",
    "Imagine we had 40 guests, we'd need a tent.",
    "Were I ten years younger I'd climb it barefoot.",
    "My neighbour is allergic to cats, good for him.",
    "My brother never eats meat, but he isn't coming.",
    "My neighbour wants a house for at most 777123 euros.",
    "We spoke for a while about the little boat down by the harbour.",
    "A balcony would be nice.",
    "Ideally something in green.",
    "How many days does it take?",
    "Thanks, that was quick!",
    "We talked for a while about the old harbour.",
    "Si me tocara la lotería, compraría un castillo.",
    "Mi cuñado odia el cilantro, pero no viene.",
    "Sería ideal que tuviera terraza.",
    "¿Cuántos días tarda?",
]


@pytest.mark.parametrize("text", NOT_BINDING)
def test_hypotheses_other_people_wishes_questions_and_talk_are_no_entries(text):
    assert active(f"u: {text}") == []


REPLACED = [
    ("u: The budget is 500 euros.", "u: My bonus came, make it 800 euros instead.", "a: Raised to 800."),
    ("u: The review is on 12 May.", "u: They moved the review to 19 May.", "a: 19 May, updated."),
    ("u: We are four people.", "u: Anna is joining, so we're five people now.", "a: Five people."),
    ("u: Ship it to Elm Street 4.", "u: Forget the shipping to Elm Street, I'll collect it.", "a: Removed."),
    ("u: No dairy in the cake.", "u: Dairy is fine after all, the test came back.", "a: Dairy is allowed again."),
    ("u: I want the refund by cheque.", "u: Actually, make the refund a bank transfer.", "a: Changed to a transfer."),
    ("u: Retry failed jobs three times.", "u: Ops complained. Only one retry for failed jobs now.", "a: One retry."),
    ("u: El presupuesto es de 500 euros.", "u: He cobrado, súbelo a 800 euros.", "a: Actualizado a 800."),
    ("u: La revisión es el 12 de mayo.", "u: La revisión se ha movido al 19 de mayo.", "a: 19 de mayo, cambiado."),
    ("u: Deliver it to 14 Mill Lane.", "u: Bring it to 3 Harbour Road, we're moving early.", "a: 3 Harbour Road."),
    ("u: The region has to be eu-west-1.", "u: The region is us-east-2 from now on.", "a: Got it."),
    ("u: We need a projector in the room.", "u: The projector is off the list.", "a: Removed."),
    ("u: The call is at 9:30.", "u: 10:15 it is, Anna can't do earlier.", "a: 10:15."),
    ("u: My daughter can't have nuts.", "u: The tests came back, nuts are fine for her.", "a: Nuts allowed."),
    ("u: Paint the door green.", "u: The door has to be blue, council rules.", "a: Blue door."),
    ("u: Retention has to be 30 days.", "u: The auditors were here. Retention is 81 days.", "a: Noted, 81 days."),
    ("u: Separate fields with commas.", "u: Some have commas in them. Use tabs as the separator.", "a: Tabs."),
    ("u: You can use at most 3 photos.", "u: The editor is generous, we have room for 5 pictures.", "a: Five."),
    ("u: I asked for the 8-inch pan.", "u: It won't hold the recipe, order the 10-inch.", "a: 10 inch."),
    ("u: Rehearsal is at Saint Anne's.", "u: That's being painted. We rehearse in the Scout hut.", "a: Scout hut, ok."),
    ("u: Our release name is Juniper.", "u: Marketing found a clash. Call the release Hawthorn.", "a: Hawthorn."),
    ("u: We need a cook for both evenings.", "u: Salka's mum will do it, so no cook needed.", "a: Cook cancelled."),
]


@pytest.mark.parametrize(("old", "new", "reply"), REPLACED)
def test_a_later_statement_on_the_same_matter_replaces_the_earlier(old, new, reply):
    entries = ledger(said(old, "a: Noted.", "u: It rained all day.", "a: Oh dear.", new, reply))
    ended = [entry for entry in entries if entry.status == "superseded"]
    assert [(entry.turn_id, entry.ended_by) for entry in ended] == [("t0", 14)]


def test_of_a_chain_only_the_last_is_active():
    entries = ledger(
        said(
            "u: The budget for the trip is 1,000 euros.",
            "a: 1,000 euros.",
            "u: Make the budget 1,200 euros.",
            "a: Changed to 1,200.",
            "u: Actually, 900 euros is the budget now.",
            "a: Updated to 900.",
        )
    )
    assert [(entry.seq, entry.status) for entry in entries] == [
        (10, "superseded"),
        (12, "superseded"),
        (14, "active"),
    ]


STANDING = [
    ("u: The room costs 120 euros.", "u: The taxi is 35 euros."),
    ("u: Lunch is at 12:30.", "u: Dinner is at 19:00."),
    ("u: Pin the parser to version 2.4.", "u: Ticket AB-7731 describes the bug."),
    ("u: I can't eat nuts.", "u: I can't eat shellfish either."),
    ("u: We arrive on Monday.", "u: We leave on Thursday."),
    ("u: The kitchen must be white.", "u: The bathroom should be green."),
    ("u: Anna is allergic to cats.", "u: Tom is allergic to pollen."),
    ("u: There will be 12 adults.", "u: And 6 children."),
    ("u: The kitchen gets grey tiles.", "u: The hall gets white tiles."),
    ("u: Send the contract to Leeds.", "u: Send the samples to York."),
    ("u: The main job times out after 60 seconds.", "u: The cleanup job times out after 15 seconds."),
    ("u: My passport number is K4471902.", "u: My frequent flyer number is SKY88213."),
    ("u: Pin numpy to 1.26.", "u: Pin pandas to 2.1."),
    ("u: I must not lift more than 5 kg.", "u: The suitcase may weigh 23 kg."),
    ("u: The first payment is due on 1 March.", "u: The second payment is due on 1 June."),
    ("u: Six people sleep upstairs.", "u: Three people sleep downstairs."),
    ("u: Pay the hut by card.", "u: Pay the farmer in cash for the eggs."),
    ("u: The price is 2,400 pounds.", "u: The deposit is 300 pounds."),
]


@pytest.mark.parametrize(("first", "second"), STANDING)
def test_statements_on_two_matters_end_nothing(first, second):
    assert not superseded(first, "a: Noted.", second, "a: Noted.")


def test_a_plan_of_one_word_ends_where_another_is_chosen():
    lines = (
        "a: Acoustic or amplified?",
        "u: Acoustic.",
        "a: Acoustic set.",
        "u: The hall is bigger than we thought, let's do amplified.",
        "a: Amplified, noted.",
    )
    assert superseded(*lines) == [("Acoustic.", 13)]


def test_a_turn_that_names_an_earlier_matter_leaves_what_was_said_last():
    lines = (
        "u: Everyone should bring a sleeping bag.",
        "a: Sleeping bags.",
        "u: Printed maps please, A3.",
        "a: A3 maps.",
        "u: The warden says there are duvets, you can strike the sleeping bags.",
        "a: Struck.",
    )
    assert superseded(*lines) == [("Everyone should bring a sleeping bag.", 14)]


def test_two_constraints_on_different_matters_stand_side_by_side():
    lines = (
        "u: The room may cost 120 euros.",
        "a: Noted.",
        "u: We arrive at 19:30 on 3 June.",
        "a: Noted.",
        "u: The dog weighs 35 kg.",
        "a: Noted.",
    )
    assert len(active(*lines)) == 3
    assert not superseded(*lines)


def test_what_the_assistant_asks_binds_when_the_user_says_yes():
    asked = "a: Just to confirm: no calls before nine, right?"
    assert "no calls before nine" in " ".join(active(asked, "u: Exactly."))
    assert "no calls before nine" not in " ".join(active(asked, "u: No, that's wrong."))


def test_what_a_tool_says_and_the_user_accepts_is_quoted_and_replaces():
    lines = (
        "u: The meeting is on 5 May.",
        "a: 5 May, noted.",
        't: {"event":"meeting","status":"rescheduled","date":"2026-05-12"}',
        "a: The meeting was rescheduled to 12 May.",
        "u: Yes, fine.",
    )
    assert '"date":"2026-05-12"' in active(*lines)
    assert superseded(*lines) == [("The meeting is on 5 May.", 12)]


def test_a_constraint_inside_a_long_turn_is_found():
    talk = "The weather was lovely and the food was even better, we walked along the river for hours. " * 6
    entries = active(f"u: {talk}One thing though: we must be at the port before 7:30. {talk}")
    assert any("must be at the port before 7:30" in text for text in entries)
    assert sum(map(len, entries)) < len(talk)


def test_a_constraint_beside_another_persons_matter_is_told_apart():
    [entry] = active("u: My cousin hates seafood, I'm the one who gets hives from latex, so no gloves.")
    assert "latex" in entry
    assert "seafood" not in entry


def test_somebody_who_takes_part_binds():
    lines = ("u: Planning a weekend for me and my brother.", "a: Nice!", "u: My brother can't climb stairs.")
    assert active(*lines) == ["My brother can't climb stairs."]


def test_lasting_is_what_binds_beyond_the_conversation():
    entries = ledger(said("u: I'm allergic to penicillin.", "u: The train leaves at 7:42."))
    assert [entry.lasting for entry in entries] == [True, False]


def test_a_turn_that_expires_counts_but_is_never_quoted():
    [first, second] = said("u: The budget is 500 euros.", "u: Make the budget 800 euros instead.")
    expiring = Turn(second.id, "s", "user", second.content, second.seq, 1, 1, expires_at=99)
    entries = ledger([first, expiring])
    assert [(entry.turn_id, entry.status) for entry in entries] == [("t0", "superseded")]


def test_entries_are_bounded_and_the_most_worth_keeping_stay():
    lines = [f"u: Item {n} was on the shelf number {n}." for n in range(ENTRIES_MAX + 40)]
    entries = ledger(said("u: I must never be given ibuprofen.", "a: Noted, no ibuprofen.", *lines))
    assert len(entries) <= ENTRIES_MAX
    assert entries[0].text == "I must never be given ibuprofen."


PIECES = """
    no must 500 euros if I were my brother hates fish, but; so 12 May now instead. forget that! 不能 预算 5000元 。 ¿
    nunca más de 3 ünïcödé 🙂 {"a":1} , : …
"""
WORDS = [*PIECES.split(), "\n"]
contents = st.lists(st.sampled_from(WORDS), min_size=0, max_size=30).map(" ".join)


@given(st.lists(st.tuples(st.sampled_from(["user", "assistant", "tool", "system"]), contents), max_size=8))
@settings(max_examples=150, deadline=None)
def test_any_conversation_reads_the_same_twice_and_word_for_word(parts):
    def turns():
        return [Turn(f"t{n}", "s", role, text, n, n, n) for n, (role, text) in enumerate(parts)]

    reading = read(turns())
    assert reading == read(turns())
    told = {turn.id: turn.content for turn in turns()}
    assert all(entry.text in told[entry.turn_id] for entry in reading.entries)
    assert all(entry.ended_by is None or entry.ended_by > entry.seq for entry in reading.entries)
    for number, (_, text) in enumerate(parts):
        quoted = "".join(one.text for one in reading.statements if one.turn == number)
        assert "".join(quoted.split()) == "".join(text.split())


HOSTILE = [
    "1" * 40_000,
    ".,;:!?" * 7_000,
    "1," * 20_000,
    "-1" * 20_000,
    "a@" * 20_000,
    "if i " * 8_000,
    '{"a":' * 8_000,
]


@pytest.mark.parametrize("text", HOSTILE, ids=lambda text: text[:6])
def test_hostile_text_is_read_in_linear_time(text):
    begun = time.process_time()
    read([Turn("t", "s", "user", text, 1, 1, 1)])
    assert time.process_time() - begun < 4.0


def test_a_long_conversation_is_folded_in_linear_time():
    turns = said(*(f"u: I must not pay more than {n} euros for item {n % 7}, no longer {n + 1}." for n in range(1_500)))
    read(turns)
    begun = time.process_time()
    read(turns)
    assert time.process_time() - begun < 4.0


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("I am allergic to peanuts.", "I am no longer allergic to peanuts."),
        ("I'm allergic to peanuts.", "I'm not allergic to peanuts any more."),
        ("I am vegetarian.", "I'm no longer vegetarian."),
        ("I can't fly at night.", "I can fly at night now."),
        ("I don't drink wine.", "I drink wine again."),
        ("I don't want window seats.", "Window seats are fine now."),
        ("Soy alérgico al polen.", "Ya no soy alérgico al polen."),
        ("我不吃辣。", "我现在能吃辣了。"),
        ("我对花生过敏。", "我对花生不再过敏了。"),
    ],
)
def test_what_is_said_the_other_way_round_later_ends_it(before, after):
    between = ("a: Noted.", "u: I never eat pork.", "a: Noted.") if before.isascii() else ("a: 好的。",)
    assert superseded(f"u: {before}", *between, f"u: {after}")[0][0] == before
