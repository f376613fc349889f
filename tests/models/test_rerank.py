"""The cross-encoder's thread with models that hang, fail and take their time; and a tiny real one."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from tokenizers import Tokenizer, models, pre_tokenizers, processors
from transformers import BertConfig, BertForSequenceClassification, PreTrainedTokenizerFast

from serve_app.errors import Overloaded, RerankerUnavailable
from serve_app.models.cross_encoder import CrossEncoder
from serve_app.models.model_thread import OVERTIME_S, WAITING_MAX
from serve_app.models.rerank import CrossEncoding, ModelOptions, PairModel, open_reranker
from serve_app.ports import Shortlist

WORDS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "apple", "pear", "plum", "red", "green", "the", "is", "a"]
POSITIONS = 24
FOREVER = float("inf")


def small(folder: Path, labels: int = 1) -> Path:
    """A cross-encoder of some thousand weights, with a tokenizer of a dozen words."""
    torch.manual_seed(7)
    sizes = {"hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 32}
    config = BertConfig(
        vocab_size=len(WORDS), max_position_embeddings=POSITIONS, initializer_range=0.8, num_labels=labels, **sizes
    )
    BertForSequenceClassification(config).save_pretrained(folder)
    tokenizer = Tokenizer(models.WordLevel({word: at for at, word in enumerate(WORDS)}, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    tokenizer.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]", pair="[CLS] $A [SEP] $B:1 [SEP]:1", special_tokens=[("[CLS]", 2), ("[SEP]", 3)]
    )
    names = {"pad_token": "[PAD]", "unk_token": "[UNK]", "cls_token": "[CLS]", "sep_token": "[SEP]"}
    PreTrainedTokenizerFast(tokenizer_object=tokenizer, **names).save_pretrained(folder)
    return folder


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return small(tmp_path_factory.mktemp("reranker"))


def opened(folder: Path) -> CrossEncoder:
    return CrossEncoder(folder, max_tokens=512, device="cpu")


TEXTS = ["the apple is red", "a pear", "", "plum " * 200, "the apple is green " * 3, "a pear"]


def test_scores_do_not_depend_on_what_stands_beside_a_text(folder: Path) -> None:
    model = opened(folder)
    together = model.scores("red apple", TEXTS, FOREVER)
    alone = [model.scores("red apple", [text], FOREVER)[0] for text in TEXTS]
    assert together.shape == (len(TEXTS),)
    assert np.allclose(together, alone, atol=1e-5)
    assert together[1] == pytest.approx(together[5], abs=1e-6)
    assert ((together > 0) & (together < 1)).all()
    assert np.ptp(together) > 1e-3
    assert model.scores("red apple", [], FOREVER).shape == (0,)


def test_scores_are_what_the_model_says_by_itself(folder: Path) -> None:
    model = BertForSequenceClassification.from_pretrained(folder).eval()
    tokenizer = PreTrainedTokenizerFast.from_pretrained(folder)
    with torch.inference_mode():
        logits = model(**tokenizer("red apple", "the pear is green", return_tensors="pt")).logits
    ours = opened(folder).scores("red apple", ["the pear is green"], FOREVER)
    assert ours[0] == pytest.approx(torch.sigmoid(logits)[0, 0].item(), abs=1e-3)


def test_the_end_of_the_text_is_cut_first_and_a_long_query_leaves_it_half(folder: Path) -> None:
    model = opened(folder)
    whole = "red " * (POSITIONS - 5)
    assert model.scores("apple pear", [whole], FOREVER) == pytest.approx(
        model.scores("apple pear", [whole + "plum"], FOREVER), abs=1e-6
    )
    assert model.scores("apple " * 500, ["a pear", "a plum"], FOREVER).shape == (2,)
    differing = model.scores("apple " * 500, ["pear", "plum"], FOREVER)
    assert differing[0] != differing[1]


def test_two_classes_are_the_second_ones_share(tmp_path: Path) -> None:
    scores = opened(small(tmp_path, labels=2)).scores("red apple", TEXTS, FOREVER)
    assert ((scores > 0) & (scores < 1)).all()


def test_more_classes_are_no_reranker(tmp_path: Path) -> None:
    with pytest.raises(RerankerUnavailable, match="3 classes"):
        opened(small(tmp_path, labels=3))


def test_an_empty_folder_is_no_reranker(tmp_path: Path) -> None:
    with pytest.raises(RerankerUnavailable, match="cannot be loaded"):
        opened(tmp_path)


def test_nothing_is_begun_after_the_deadline(folder: Path) -> None:
    with pytest.raises(TimeoutError):
        opened(folder).scores("apple", TEXTS, time.monotonic() - 1)


def test_a_configured_folder_serves(folder: Path) -> None:
    service = open_reranker(ModelOptions(model=str(folder)))
    assert service is not None
    scores = eventually(service, shortlist("red apple", TEXTS))
    assert np.allclose(scores, opened(folder).scores("red apple", TEXTS, FOREVER), atol=1e-5)
    assert service.contributions(shortlist("red apple", TEXTS)) == {}
    service.close()
    assert open_reranker(ModelOptions()) is None


# ---- the thread


class Held:
    """A model that answers once it is let go; counts what it was asked."""

    def __init__(self) -> None:
        self.go = threading.Event()
        self.asked = 0

    def scores(self, query: str, texts: Sequence[str], deadline: float) -> NDArray[np.float64]:
        self.asked += 1
        self.go.wait()
        if query == "broken":
            raise ValueError("the text of a defect may quote a turn")
        return np.arange(len(texts), dtype=np.float64)


def shortlist(query: str, texts: Sequence[str] = ("a", "b")) -> Shortlist:
    return Shortlist(query, lambda: texts, np.zeros(len(texts)), np.zeros((len(texts), 0), np.float32))


def eventually(service: CrossEncoding, asked: Shortlist) -> NDArray[np.float64]:
    """Once it is loaded."""
    for _ in range(2_000):
        try:
            return service.scores(asked, time.monotonic() + 10)
        except Overloaded:
            time.sleep(0.01)
    raise AssertionError("the reranker did not come up")


@pytest.fixture
def held() -> Iterator[tuple[Held, CrossEncoding]]:
    model = Held()
    service = CrossEncoding("held", lambda: model)
    yield model, service
    model.go.set()
    service.close()


def test_a_model_that_hangs_costs_one_deadline_and_then_nothing(held: tuple[Held, CrossEncoding]) -> None:
    _, service = held
    began = time.monotonic()
    with pytest.raises(TimeoutError):
        service.scores(shortlist("hangs"), began + 0.1)
    assert 0.09 < time.monotonic() - began < 1.0
    time.sleep(OVERTIME_S + 0.02)
    began = time.monotonic()
    for _ in range(10):
        with pytest.raises(Overloaded):
            service.scores(shortlist("another"), began + 10)
    assert time.monotonic() - began < 0.5


def test_it_serves_again_once_the_model_comes_back(held: tuple[Held, CrossEncoding]) -> None:
    model, service = held
    with pytest.raises(TimeoutError):
        service.scores(shortlist("hangs"), time.monotonic() + 0.05)
    model.go.set()
    assert eventually(service, shortlist("again")).tolist() == [0, 1]


def test_what_waits_is_bounded(held: tuple[Held, CrossEncoding]) -> None:
    model, service = held
    far = time.monotonic() + 60
    service.ask("first", ["a"], far)
    while not model.asked:
        time.sleep(0.001)
    waiting = [service.ask("next", ["a"], far) for _ in range(WAITING_MAX)]
    with pytest.raises(Overloaded):
        service.ask("one more", ["a"], far)
    model.go.set()
    assert [one.result(10).tolist() for one in waiting] == [[0.0]] * WAITING_MAX


def test_what_is_late_before_its_turn_is_not_computed(held: tuple[Held, CrossEncoding]) -> None:
    model, service = held
    first = service.ask("first", ["a"], time.monotonic() + 60)
    late = service.ask("late", ["a"], time.monotonic() + 0.05)
    time.sleep(0.1)
    model.go.set()
    assert first.result(10).tolist() == [0.0]
    with pytest.raises(TimeoutError):
        late.result(10)
    assert model.asked == 1


def test_a_failure_is_its_callers_alone(held: tuple[Held, CrossEncoding]) -> None:
    model, service = held
    model.go.set()
    with pytest.raises(ValueError, match="defect"):
        service.scores(shortlist("broken"), time.monotonic() + 10)
    assert service.scores(shortlist("whole"), time.monotonic() + 10).tolist() == [0, 1]


def test_a_model_that_cannot_be_loaded_is_told_to_all() -> None:
    def load() -> PairModel:
        raise RerankerUnavailable("no such folder")

    service = CrossEncoding("none", load)
    service._thread._thread.join(10)
    with pytest.raises(RerankerUnavailable, match="no such folder"):
        service.scores(shortlist("x"), time.monotonic() + 10)
    service.close()


def test_while_it_loads_nobody_waits() -> None:
    model = Held()
    loading = threading.Event()

    def load() -> PairModel:
        loading.wait()
        model.go.set()
        return model

    service = CrossEncoding("slow", load)
    time.sleep(OVERTIME_S + 0.02)
    with pytest.raises(Overloaded):
        service.scores(shortlist("x"), time.monotonic() + 10)
    loading.set()
    assert eventually(service, shortlist("x")).tolist() == [0, 1]
    service.close()
