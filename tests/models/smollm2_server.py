"""An OpenAI-compatible server on loopback that serves a real language model: `python -m tests.models.smollm2_server`.

Streaming is not spoken: who asks for it gets the answer in one piece. Other models do not exist.
"""

from __future__ import annotations

import argparse
import threading
import time
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path

from serve_app.models.causal import CausalModel
from serve_app.models.summarise import PACKAGE, PACKAGE_FILE, PACKAGED
from tests.models.chat_server import Answer, Asked, ChatServer

LIMIT_S = 300.0
"""Of one answer, whoever still waits for it."""

TOKENS_MAX = 512
"""Of an answer to who sets no bound."""


def packaged_model() -> CausalModel:
    spec = find_spec(PACKAGE)
    assert spec
    assert spec.origin
    return CausalModel(Path(spec.origin).parent, PACKAGE_FILE, device="cpu")


def answering(model: CausalModel) -> Answer:
    """One at a time; for whoever has gone nothing more is computed, as real servers do it."""
    one_at_a_time = threading.Lock()

    def answer(asked: Asked, gone: Callable[[], bool]) -> Asked:
        with one_at_a_time:
            until = time.monotonic() + LIMIT_S
            said = model.answer(
                asked["messages"],
                asked.get("max_tokens") or TOKENS_MAX,
                lambda: time.monotonic() >= until or gone(),
            )
        prompt = _tokens(model, "\n".join(one["content"] for one in asked["messages"]))
        completion = _tokens(model, said.content)
        return {
            "object": "chat.completion",
            "model": asked.get("model", PACKAGED),
            "choices": [
                {
                    "index": 0,
                    "message": {"role": "assistant", "content": said.content},
                    "finish_reason": "stop" if said.whole else "length",
                }
            ],
            "usage": {
                "prompt_tokens": prompt,
                "completion_tokens": completion,
                "total_tokens": prompt + completion,
            },
        }

    return answer


def _tokens(model: CausalModel, text: str) -> int:
    return len(model._tokenizer(text)["input_ids"])


SAID = {
    "nonsense": "}{ ]] \ufffd\ufffd 123 !!! <|im_end|> ok ok ok\n" * 50,
    "empty": "",
    "refuses": "I'm sorry, but I can't help with that request.",
    "invents": "The user has agreed to pay 99999 dollars.\nThe user no longer wants anything.",
}
SET: dict[str, tuple[str, object]] = {
    "garbage": ("raw", b"\xff<html>" * 100),
    "endless": ("drips", 0.01),
    "hangs": ("delay_s", LIMIT_S),
    "resets": ("resets", True),
    "fails": ("status", 500),
}
WAYS = (*SAID, *SET)
"""In which it can misbehave."""


def misbehaving(way: str, port: int = 0) -> ChatServer:
    server = ChatServer(port=port)
    if way in SAID:
        server.content = SAID[way]
    else:
        setattr(server, *SET[way])
    return server


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--port", type=int, default=8340)
    parser.add_argument("--misbehave", choices=WAYS, help="instead of serving the model")
    arguments = parser.parse_args()
    if arguments.misbehave:
        server = misbehaving(arguments.misbehave, arguments.port)
    else:
        server = ChatServer(answering(packaged_model()), arguments.port)
    print(f"serving at {server.url}", flush=True)
    threading.Event().wait()


if __name__ == "__main__":
    main()
