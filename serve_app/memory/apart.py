"""The compressor in a process of its own, which yields the processor to requests and shares no interpreter lock with
them: a summary that takes a second of computing costs no request a millisecond.

For the extractive backend, which computes and waits for nobody. The process begins with the first summary and ends when
there was none for a while, or with the one that began it. It answers one order at a time.
"""

from __future__ import annotations

import contextlib
import json
import os
import socket
import struct
import subprocess
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from multiprocessing import Pipe
from multiprocessing.connection import Connection

import msgspec

from serve_app.compress.compressor import Compressed, Compressor
from serve_app.context.tokens import open_tokenizers, tokenizer_of
from serve_app.core import Turn
from serve_app.errors import SummariserFailed
from serve_app.memory.known import Known
from serve_app.ports import Tokenizer

NICENESS = 19

BURDEN = 1 / 9
"""What this process computes burdens requests so much less: it rests as long as it works, where a thread beside them
rests nine times as long. After an import its summaries are there soon."""

IDLE_S = 300.0
"""After so long without an order the process ends."""

ORDER_S = 60.0
"""Where nobody says how long a summary may take."""

TRIES = 2
"""The process may just have ended: then another one is begun."""

STOP_S = 1.0

TELL_S = 0.1
"""A process that does not take a word in so long is ended: whoever writes to the log waits for that."""

WAIT_S_MIN = 0.001
"""Of a socket; none would be for ever."""

TURNS_KEPT = 20_000
"""In each of two generations: what was worked out of a turn is kept with it, so that the same turn is sought again."""


class Order(msgspec.Struct, frozen=True, array_like=True):
    """`forget`: let go of all that is remembered first; `afresh`: remember nothing of it and use nothing remembered.

    Without turns nothing else is asked, and nothing answered.
    """

    turns: list[msgspec.Raw]
    target_tokens: int
    tokenizer: str
    forget: bool = False
    afresh: bool = False


class Answer(msgspec.Struct, frozen=True, array_like=True):
    """What was made, and what that took of a processor."""

    made: Compressed
    computed_s: float


class CompressorApart:
    """As `Compressor`. Safe for threads."""

    def __init__(self, inner: Compressor, worker: Worker | None = None, *, fresh: bool = False) -> None:
        self._inner = inner
        self._worker = worker or Worker()
        self._fresh = fresh

    @property
    def version(self) -> str:
        return self._inner.version

    @property
    def backend(self) -> str:
        return self._inner.backend

    def afresh(self) -> CompressorApart:
        return CompressorApart(self._inner, self._worker, fresh=True)

    def forget(self) -> None:
        self._inner.forget()  # which others may have asked
        self._worker.forget()

    def compress(
        self, turns: Sequence[Turn], target_tokens: int, tokenizer: Tokenizer, deadline_s: float | None = None
    ) -> Compressed:
        """Raises SummariserFailed where no answer comes in time."""
        packed = [msgspec.Raw(msgspec.msgpack.encode(turn)) for turn in turns]
        order = Order(packed, target_tokens, tokenizer.name, afresh=self._fresh)
        return self._worker.answer(order, time.monotonic() + (deadline_s or ORDER_S))

    def burden_s(self) -> float:
        """What the calling thread has computed, and a share of what was computed here for it."""
        return time.thread_time() + self._worker.computed_s * BURDEN

    def close(self) -> None:
        self._worker.close()


class Worker:
    """The process, from outside. `tokenizers`: as they are configured, beside those that are built in."""

    def __init__(self, idle_s: float = IDLE_S, tokenizers: Mapping[str, str] | None = None) -> None:
        self._idle_s = idle_s
        self._tokenizers = json.dumps(dict(tokenizers or {}))
        self._turn = threading.Lock()
        self._process: subprocess.Popen[bytes] | None = None
        self._line: Connection | None = None
        self._forget = False
        self._closed = False
        self._of_thread = threading.local()

    @property
    def computed_s(self) -> float:
        """What this process has computed for the calling thread."""
        return float(getattr(self._of_thread, "computed_s", 0.0))

    def forget(self) -> None:
        """Now, or when the order that is being answered is done."""
        self._forget = True
        self._tell()

    def answer(self, order: Order, deadline: float) -> Compressed:
        if not self._turn.acquire(timeout=max(0.0, deadline - time.monotonic())):
            raise SummariserFailed("busy")
        try:
            return self._answered(order, deadline)
        finally:
            self._turn.release()
            self._tell()

    def close(self) -> None:
        """Whoever waits for an answer hears that there is none."""
        self._closed = True
        if self._process is not None:
            self._process.kill()
        if self._turn.acquire(timeout=STOP_S):
            self._end()
            self._turn.release()

    def _answered(self, order: Order, deadline: float) -> Compressed:
        forget, self._forget = self._forget, False
        frame = msgspec.msgpack.encode(msgspec.structs.replace(order, forget=forget))
        for _ in range(TRIES):
            if self._closed:
                break
            try:
                line = self._line or self._begin()
                _let_wait(line, deadline - time.monotonic())
                line.send_bytes(frame)
                if not line.poll(max(0.0, deadline - time.monotonic())):
                    self._end()
                    raise SummariserFailed("deadline")
                answer = msgspec.msgpack.decode(line.recv_bytes(), type=Answer)
                self._of_thread.computed_s = self.computed_s + answer.computed_s
                return answer.made
            except (OSError, EOFError):
                self._end()
        raise SummariserFailed("the process that sums up has ended")

    def _tell(self) -> None:
        """What is to be forgotten is told once nobody is being answered, since the next order may be long in coming.

        Whoever is being answered tells it afterwards: no word is lost between the two.
        """
        while self._forget and self._turn.acquire(blocking=False):
            self._forget = False
            try:
                if self._line is not None:
                    _let_wait(self._line, TELL_S)
                    self._line.send_bytes(msgspec.msgpack.encode(Order([], 0, "", forget=True)))
            except OSError:
                self._end()  # and with it all that it remembered
            finally:
                self._turn.release()

    def _begin(self) -> Connection:
        ours, theirs = Pipe()
        asked = [str(theirs.fileno()), str(self._idle_s), self._tokenizers]
        command = [sys.executable, "-m", "serve_app.memory.apart", *asked]
        path = os.pathsep.join(filter(None, sys.path))
        with theirs:
            self._process = subprocess.Popen(
                command, pass_fds=[theirs.fileno()], stdin=subprocess.DEVNULL, env=os.environ | {"PYTHONPATH": path}
            )
        self._line = ours
        return ours

    def _end(self) -> None:
        line, self._line = self._line, None
        process, self._process = self._process, None
        if line is not None:
            line.close()
        if process is not None:
            process.kill()
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(STOP_S)


def _let_wait(line: Connection, seconds: float) -> None:
    """A process that is stopped takes nothing and gives nothing: after so long each call on the line raises OSError."""
    whole, part = divmod(max(seconds, WAIT_S_MIN), 1)
    with socket.socket(fileno=os.dup(line.fileno())) as end:
        for way in (socket.SO_SNDTIMEO, socket.SO_RCVTIMEO):
            end.setsockopt(socket.SOL_SOCKET, way, struct.pack("ll", int(whole), int(part * 1e6)))


def serve(line: Connection, idle_s: float, tokenizers: Mapping[str, Tokenizer]) -> None:
    """Answer until nobody asks any more."""
    compressor, known = Compressor(), Known(TURNS_KEPT)
    with contextlib.suppress(EOFError, OSError):  # whoever asked has gone
        while line.poll(idle_s):
            order = msgspec.msgpack.decode(line.recv_bytes(), type=Order)
            if order.forget:
                compressor, known = Compressor(), Known(TURNS_KEPT)
            if order.turns:
                line.send_bytes(_answered(order, compressor, known, tokenizers))
            del order  # while nobody asks nothing is held but what may be remembered


def _answered(order: Order, compressor: Compressor, known: Known, tokenizers: Mapping[str, Tokenizer]) -> bytes:
    if order.afresh:
        compressor, known = compressor.afresh(), Known(TURNS_KEPT)
    turns = [known.of(packed) for packed in order.turns]
    began = time.process_time()
    made = compressor.compress(turns, order.target_tokens, tokenizer_of(tokenizers, order.tokenizer))
    return msgspec.msgpack.encode(Answer(made, time.process_time() - began))


if __name__ == "__main__":
    os.nice(NICENESS)
    serve(Connection(int(sys.argv[1])), float(sys.argv[2]), open_tokenizers(json.loads(sys.argv[3])))
