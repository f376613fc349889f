"""A causal language model that answers: greedy, one conversation at a time. torch is imported here.

Owns the weights on their device. The same messages give the same answer in any process on machines of one kind.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Final

import torch
from jinja2 import TemplateError
from transformers import (
    AutoModelForCausalLM,
    AutoTokenizer,
    GenerationConfig,
    StoppingCriteria,
    StoppingCriteriaList,
)
from transformers.utils import logging as transformers_logging

from serve_app.errors import SummariserFailed
from serve_app.models.device import number_format, usable_device
from serve_app.models.plain import Said
from serve_app.models.summarise_prompt import Message

__all__ = ["CausalModel"]

CHARACTERS_PER_TOKEN_MAX: Final = 16
"""A conversation of more characters for each token that the model reads is refused without being tokenised."""

POSITIONS_UNSTATED: Final = 2_048
"""Of an architecture that sets no bound."""

_no_progress_bar: Callable[[], None] = transformers_logging.disable_progress_bar
_no_advice: Callable[[], None] = transformers_logging.set_verbosity_error
_Config: Callable[..., Any] = GenerationConfig


class CausalModel:
    """One model on one device. Not thread-safe."""

    def __init__(self, folder: Path, gguf_file: str | None, *, device: str) -> None:
        """Raises whatever the libraries do where the folder holds no language model that can be loaded."""
        torch.set_num_threads(1)  # two threads beside a busy core are many times slower than one
        _no_progress_bar()
        _no_advice()
        target = torch.device(usable_device(device))
        files: dict[str, Any] = {"gguf_file": gguf_file} if gguf_file else {}
        self._tokenizer: Any = AutoTokenizer.from_pretrained(folder, local_files_only=True, **files)
        model: Any = AutoModelForCausalLM.from_pretrained(
            folder, dtype=number_format(target), local_files_only=True, use_safetensors=True, **files
        )
        self._model = model.to(target).eval()
        self._model.generation_config = self._greedy()
        self._positions = _positions(model.config.get_text_config())
        self._special = _any_of(self._tokenizer.all_special_tokens)

    def answer(self, messages: Sequence[Message], new_tokens_max: int, stopped: Callable[[], bool]) -> Said:
        """`stopped` is asked before each token. Raises TimeoutError once it says yes, SummariserFailed, and
        what torch throws.
        """
        read = self._read(messages, new_tokens_max)
        stop = StoppingCriteriaList([_Stopped(stopped)])
        with torch.inference_mode():
            out = self._model.generate(**read, max_new_tokens=new_tokens_max, stopping_criteria=stop)
        if stopped():
            raise TimeoutError("the deadline passed before the answer was whole")
        new = out[0, read["input_ids"].shape[1] :]
        return Said(str(self._tokenizer.decode(new, skip_special_tokens=True)), whole=len(new) < new_tokens_max)

    def _greedy(self) -> Any:
        """One way to go on, whatever the model's files propose; it ends where they say that it ends."""
        own = self._model.generation_config
        ends = own.eos_token_id if isinstance(own.eos_token_id, list) else [own.eos_token_id]
        ends = sorted({end for end in [*ends, self._tokenizer.eos_token_id] if end is not None})
        padding = self._tokenizer.pad_token_id
        return _Config(
            do_sample=False,
            num_beams=1,
            eos_token_id=ends or None,
            pad_token_id=padding if padding is not None else (ends or [None])[0],
        )

    def _read(self, messages: Sequence[Message], new_tokens_max: int) -> dict[str, torch.Tensor]:
        """Raises SummariserFailed for what is longer than the model reads, so that nothing is left out unseen."""
        room = self._positions - new_tokens_max
        if sum(len(message["content"]) for message in messages) > room * CHARACTERS_PER_TOKEN_MAX:
            raise SummariserFailed("text too long")
        plain: list[Message] = [
            {"role": one["role"], "content": self._special.sub(_broken, one["content"])} for one in messages
        ]
        read = self._tokenizer(self._prompt(plain), add_special_tokens=not self._templated, return_tensors="pt")
        if read["input_ids"].shape[1] > room:
            raise SummariserFailed("text too long")
        device = self._model.device
        return {name: read[name].to(device) for name in ("input_ids", "attention_mask")}

    @property
    def _templated(self) -> bool:
        return bool(self._tokenizer.chat_template)

    def _prompt(self, messages: Sequence[Message]) -> str:
        """By the model's own template where it has one; some know no role `system`."""
        if not self._templated:
            return "\n\n".join([*(message["content"] for message in messages), ""])
        try:
            return self._rendered(messages)
        except TemplateError:
            first, second, *rest = messages
            return self._rendered([{**second, "content": f"{first['content']}\n\n{second['content']}"}, *rest])

    def _rendered(self, messages: Sequence[Message]) -> str:
        return str(self._tokenizer.apply_chat_template(list(messages), tokenize=False, add_generation_prompt=True))


class _Stopped(StoppingCriteria):
    def __init__(self, stopped: Callable[[], bool]) -> None:
        self._stopped = stopped

    def __call__(self, input_ids: torch.Tensor, scores: torch.Tensor, **_: Any) -> torch.Tensor:
        return torch.full((input_ids.shape[0],), self._stopped(), dtype=torch.bool, device=input_ids.device)


def _positions(config: Any) -> int:
    """Tokens that the architecture can read."""
    stated = [getattr(config, name, None) for name in ("max_position_embeddings", "n_positions")]
    return next((one for one in stated if isinstance(one, int)), POSITIONS_UNSTATED)


def _any_of(tokens: Sequence[str]) -> re.Pattern[str]:
    return re.compile("|".join(map(re.escape, sorted(filter(None, tokens), key=len, reverse=True))) or r"(?!)")


def _broken(token: re.Match[str]) -> str:
    """A token that steers the model, as letters that do not: text is data."""
    return f"{token[0][:1]} {token[0][1:]}"
