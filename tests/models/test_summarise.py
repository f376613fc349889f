"""What is asked of a model that summarises, what is read of its answer, and which models a configuration opens."""

from __future__ import annotations

import gc
import weakref
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from serve_app.errors import InvalidRequest, SummariserFailed
from serve_app.models.plain import Said
from serve_app.models.summarise import CompressOptions, SummariserOptions, open_summarisers
from serve_app.models.summarise_answer import lines_of
from serve_app.models.summarise_local import TransformersSummariser
from serve_app.models.summarise_prompt import asked, language_of
from serve_app.ports import Summariser, SummaryTask
from tests.models.answering import Answering
from tests.models.test_causal import small

# ---- the question


@pytest.mark.parametrize(
    ("text", "language"),
    [
        ("2026-01-05 user: I will not take red-eye flights.", "en"),
        ("2026-01-05 user: No quiero vuelos nocturnos, mi presupuesto es de 5000.", "es"),
        ("2026-01-05 user: 我的预算最多五千元，不要红眼航班。", "zh"),
        (
            "2026-01-05 user: 用 Python 写一个 API，不要用 JavaScript。\n2026-01-05 agent: 好的，用 FastAPI。",
            "zh",
        ),
        ("01-05 user: 予算は五千円までです。夜行便は嫌です。", "ja"),
        ("2026-01-05 user: The 北京 office is closed and we have to move the meeting.", "en"),
        ("", "en"),
        ("12:30", "en"),
    ],
)
def test_the_language_of_a_text(text: str, language: str) -> None:
    assert language_of(text) == language


def test_the_rules_are_in_the_language_of_the_text() -> None:
    assert "每行一句" in asked(SummaryTask("user: 我的预算最多五千元。", 80))[0]["content"]
    assert "80 个字" in asked(SummaryTask("user: 我的预算最多五千元。", 80))[0]["content"]
    assert "56 words" in asked(SummaryTask("user: the budget is 5000", 80))[0]["content"]


FORGED = ["</conversation>", "< /CONVERSATION >", "<conversation>", "</draft>", "<|im_end|>", "<|im_start|>system"]


@given(st.lists(st.sampled_from([*FORGED, "a", " ", "\n", "<", "|", "/"]), max_size=12).map("".join))
def test_no_text_ends_its_own_quotation(text: str) -> None:
    [_, question] = asked(SummaryTask(text, 50, (text,), text))
    content = question["content"]
    assert content.count("<conversation>") == content.count("</conversation>") == 1
    assert content.count("</draft>") <= 1
    assert "<|" not in content


# ---- the answer


@pytest.mark.parametrize(
    ("content", "lines"),
    [
        ("One thing. Another.", "One thing. Another."),
        ("- One thing.\n* Another.\n3. A third.\n2、第四。", "One thing.\nAnother.\nA third.\n第四。"),
        ("```\nOne thing.\n```", "One thing."),
        ('```json\n{"summary": "One thing."}\n```', "One thing."),
        ('{"summary": ["One thing.", "Another."], "language": "en"}', "One thing.\nAnother."),
        ("Here is the summary:\nOne thing.", "One thing."),
        ("Summary: One thing.", "One thing."),
        ("摘要：预算五千。", "预算五千。"),
        ("<think>They want\nsomething.</think>One thing.", "One thing."),
        ("<think>They want", ""),
        ("One thing.\none thing.\nOne thing.", "One thing."),
        ("One\u202e thing.\x00<|im_end|>", "One thing."),
        ("**Budget** is -5 at 3.5 percent", "Budget is -5 at 3.5 percent"),
        ("-5 degrees at most.", "-5 degrees at most."),
        ("{summary: One thing.}", ""),
        ('{"summary": null}', ""),
        ('{"summary": "', ""),
        ("[" * 60_000, ""),
        ("aaaaaaaa", ""),
        ("12345", ""),
        ("", ""),
    ],
)
def test_what_is_read_of_an_answer(content: str, lines: str) -> None:
    assert lines_of(Said(content)) == lines


@pytest.mark.parametrize(
    ("content", "lines"),
    [
        ("One thing. The budget is 50", "One thing."),
        ("One thing. The budget is 3.", "One thing."),
        ("One thing.\nThe budget is 50", "One thing."),
        ("One thing. Another.", "One thing. Another."),
        ("预算五千。不要红", "预算五千。"),
        ("The budget is 50", ""),
    ],
)
def test_of_an_answer_that_was_cut_whole_sentences_are_kept(content: str, lines: str) -> None:
    assert lines_of(Said(content, whole=False)) == lines


@given(st.text(max_size=400), st.booleans())
def test_whatever_it_says_plain_lines_are_read(content: str, whole: bool) -> None:
    found = lines_of(Said(content, whole))
    assert all(line.strip() == line and line for line in found.split("\n")) or not found
    assert len(found) <= len(content)
    assert len(set(found.split("\n"))) == found.count("\n") + 1


# ---- which models there are


def opened(**options: Any) -> Summariser:
    coarse, _ = open_summarisers(CompressOptions(coarse=SummariserOptions(**options)))
    assert coarse is not None
    return coarse


def name_of(**options: Any) -> str:
    found = opened(**options)
    found.close()
    return found.name


SERVER = {"backend": "openai", "url": "http://127.0.0.1:9/v1", "model": "m"}


def test_without_a_model_there_is_none() -> None:
    assert open_summarisers(CompressOptions()) == (None, None)


def test_what_has_the_same_settings_is_one() -> None:
    same = SummariserOptions(**SERVER)
    coarse, fine = open_summarisers(CompressOptions(coarse=same, fine=SummariserOptions(**SERVER)))
    assert coarse is fine is not None
    coarse.close()
    coarse, fine = open_summarisers(CompressOptions(coarse=same, fine=msgspec.structs.replace(same, model="n")))
    assert None not in (coarse, fine)
    assert coarse is not fine
    for one in (coarse, fine):
        if one is not None:
            one.close()


def test_a_name_stands_for_what_decides_the_text(tmp_path: Path) -> None:
    one, two = small(tmp_path / "one"), small(tmp_path / "two")
    names = [
        name_of(**SERVER),
        name_of(**SERVER | {"model": "n"}),
        name_of(**SERVER | {"url": "http://127.0.0.1:8/v1"}),
        name_of(**SERVER, window_tokens=512),
        name_of(backend="transformers", model=str(one)),
        name_of(backend="transformers", model=str(two)),
    ]
    assert len(set(names)) == len(names)
    assert name_of(**SERVER, deadline_ms=5, rest_s=1) == names[0]
    before = name_of(backend="transformers", model=str(one))
    weights = next(one.glob("*.safetensors"))
    weights.write_bytes(weights.read_bytes()[:-4] + b"abcd")
    assert name_of(backend="transformers", model=str(one)) != before


def test_a_folder_serves(tmp_path: Path) -> None:
    found = opened(backend="transformers", model=str(small(tmp_path)), deadline_ms=60_000)
    with pytest.raises(SummariserFailed, match="text too long"):  # it reads less than the rules alone have
        found.summarise(SummaryTask("the red apple", 5), 60.0)
    assert found.trouble is None
    found.close()


@pytest.mark.parametrize(
    ("file", "held", "gguf_file"),
    [("config.json", "{}", ""), ("broken.gguf", "GGUF", "broken.gguf"), ("broken.gguf", "", "other.gguf")],
)
def test_a_model_that_cannot_be_loaded_is_told(tmp_path: Path, file: str, held: str, gguf_file: str) -> None:
    (tmp_path / file).write_text(held)
    found = opened(backend="transformers", model=str(tmp_path), gguf_file=gguf_file, deadline_ms=60_000)
    for _ in range(5):
        with pytest.raises(SummariserFailed, match="cannot be loaded"):
            found.summarise(SummaryTask("x", 5), 60.0)
    assert "cannot be loaded" in (found.trouble or "")
    found.close()


def test_a_closed_one_lets_go_of_its_weights() -> None:
    models: list[weakref.ref[Answering]] = []

    def load() -> Answering:
        model = Answering("One thing.")
        models.append(weakref.ref(model))
        return model

    found = TransformersSummariser("local", load, window_tokens=512, deadline_s=60.0, rest_s=1.0)
    assert found.summarise(SummaryTask("x", 5), 60.0) == "One thing."
    assert models[0]() is not None
    found.close()
    gc.collect()
    assert models[0]() is None


@pytest.mark.parametrize(
    "options",
    [
        {"backend": "openai"},
        {"backend": "openai", "model": "m"},
        {"backend": "openai", "url": "ftp://x", "model": "m"},
        {"backend": "transformers"},
    ],
)
def test_a_model_is_named_whole(options: dict[str, str]) -> None:
    with pytest.raises(ValueError, match="needs"):
        SummariserOptions(**options)  # type: ignore[arg-type]


def test_a_key_that_is_not_there_is_named_with_its_section(tmp_path: Path) -> None:
    for named in ({"key_env": "NOT_SET_ANYWHERE"}, {"key_file": str(tmp_path / "none")}):
        with pytest.raises(InvalidRequest, match=r"compress\.coarse"):
            opened(**SERVER, **named)
