"""What of a GPU is measured inside one process: an encoder's passes, and a hot index.

`benchmarks/gpu.py` runs each part as a process of its own (`python -m serve_app.measuring_gpu hot --rows 1000000 …`):
a device that fails ends that part and no other, and what it held is free again. One JSON object is printed last.
"""

from __future__ import annotations

import argparse
import json
import resource
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from serve_app.models.weights import PACKAGED, encoder_files
from serve_app.ports import Vectors
from serve_app.stores.device import HostDevice, gpu_count
from serve_app.stores.hot_device import DeviceHotIndex
from serve_app.stores.hot_snapshot import load, save

Json = dict[str, Any]

SEED = 8
OWNER_ROWS = 500
"""Vectors of one user: the newest turns that the design keeps hot."""

DIMENSION, K = 384, 10
POOL_ROWS = 65_536
"""Different vectors that all are made of: ten million of their own would take longer than what is measured."""

SLACK = 1.2
"""Slots for each vector."""

CHECKED = 20
"""Searches that are compared with the exact answer."""

TOLERANCE = 1e-5

TOKENS_OF_A_TEXT = (16, 257)
WORDS = 30_000
PEAKS = {"H200": 989e12, "H100": 989e12, "A100": 312e12, "L40S": 362e12, "L4": 121e12, "T4": 65e12}
"""Dense half precision, floating point operations a second, as their maker states them."""


def machine() -> Json:
    """What torch and FAISS see."""
    import torch

    seen = torch.cuda.is_available()
    return {
        "torch": torch.__version__,
        "torch_gpus": torch.cuda.device_count() if seen else 0,
        "faiss_gpus": gpu_count(),
        "gpu": torch.cuda.get_device_name(0) if seen else None,
    }


# ---- the encoder


def encoder(args: argparse.Namespace) -> Json:
    """Tokens a second by the tokens of a batch, and which share of the matrix peak that is."""
    if args.layers:
        with tempfile.TemporaryDirectory(prefix="mst-gpu-") as name:
            return _encoder(_random_encoder(Path(name), args.layers, args.width), args)
    return _encoder(encoder_files(PACKAGED, None).folder, args)


def _random_encoder(folder: Path, layers: int, width: int) -> Path:
    import torch
    from transformers import BertConfig, BertModel

    torch.manual_seed(SEED)
    shape = BertConfig(
        hidden_size=width, num_hidden_layers=layers, num_attention_heads=width // 64, intermediate_size=4 * width
    )
    BertModel(shape, add_pooling_layer=False).save_pretrained(folder)
    return folder


def _encoder(folder: Path, args: argparse.Namespace) -> Json:
    import torch

    from serve_app.models.device import number_format, usable_device
    from serve_app.models.forward import Forward

    device = usable_device("cpu" if args.cpu else "cuda")
    shape = json.loads((folder / "config.json").read_text())
    forward = Forward(folder, pooling="mean", normalise=True, device=device)
    measured_peak = _matrix_rate(device, 512 if args.cpu else 8_192)
    name = None if args.cpu else torch.cuda.get_device_name(0)
    stated_peak = next((peak for key, peak in PEAKS.items() if name and key in name), None)
    rows = []
    for batch_tokens in args.batch_tokens:
        texts = list(_texts(batch_tokens))
        rate = _rate(partial(forward.vectors, texts), args.seconds) * sum(map(len, texts))
        flops = rate * sum(len(text) * _token_flops(shape, len(text)) for text in texts) / sum(map(len, texts))
        rows.append(
            {
                "batch_tokens": batch_tokens,
                "tokens_per_s": round(rate),
                "share_of_measured_peak": round(flops / measured_peak, 4),
                "share_of_stated_peak": stated_peak and round(flops / stated_peak, 4),
            }
        )
    return {
        "layers": shape["num_hidden_layers"],
        "width": shape["hidden_size"],
        "format": str(number_format(torch.device(device))).removeprefix("torch."),
        "matrix_flops_measured": round(measured_peak),
        "matrix_flops_stated": stated_peak,
        "batches": rows,
        **_memory(args.cpu),
    }


def _texts(tokens: int) -> Iterator[list[int]]:
    """Of mixed lengths, so many tokens in all."""
    rng = np.random.default_rng(SEED)
    while tokens > 0:
        length = min(tokens, int(rng.integers(*TOKENS_OF_A_TEXT)))
        yield rng.integers(1_000, WORDS, length).tolist()
        tokens -= length


def _token_flops(shape: Json, length: int) -> float:
    """Of one token in a text of this length: the matrices of each layer, and attention to the others."""
    width, inner = shape["hidden_size"], shape["intermediate_size"]
    layer = 2 * (4 * width * width + 2 * width * inner) + 4 * length * width
    return float(shape["num_hidden_layers"] * layer)


def _matrix_rate(device: str, size: int) -> float:
    """Floating point operations a second of one large product in the encoder's format."""
    import torch

    from serve_app.models.device import number_format

    kind = number_format(torch.device(device))
    left, right = (torch.randn(size, size, device=device).to(kind) for _ in range(2))

    def product() -> None:
        left @ right
        if device != "cpu":
            torch.cuda.synchronize()

    return _rate(product, 0.2 if device == "cpu" else 1.0) * 2 * size**3


def _rate(call: Callable[[], object], seconds: float) -> float:
    """Calls a second, after one that does not count."""
    call()
    calls, started = 0, time.perf_counter()
    while (taken := time.perf_counter() - started) < seconds or not calls:
        call()
        calls += 1
    return calls / taken


# ---- the hot index


def hot(args: argparse.Namespace) -> Json:
    """Searches a second by clients, each for its own user's best; each hit is checked to be that user's."""
    owners = max(1, args.rows // OWNER_ROWS)
    slots = int(SLACK * max(args.rows, OWNER_ROWS)) + OWNER_ROWS
    index = _opened(args.cpu, slots)
    pool = _unit(np.random.default_rng(SEED).standard_normal((POOL_ROWS, DIMENSION), np.float32))
    started = time.perf_counter()
    for owner in range(owners):
        index.add(str(owner), _rows(owner), pool[_rows(owner) % POOL_ROWS])
    filled_s = time.perf_counter() - started
    answers = [_clients(index, owners, pool, clients, args.seconds) for clients in args.clients]
    result = {
        "rows": owners * OWNER_ROWS,
        "owners": owners,
        "fill_s": round(filled_s, 2),
        "clients": answers,
        "wrong_owner": sum(one["wrong_owner"] for one in answers),
        "inexact": _inexact(index, owners, pool),
        **(_reloaded(index, args.cpu, slots) if args.snapshot else {}),
        "figures": index.figures()._asdict(),
        **_memory(args.cpu),
    }
    index.close()
    return result


def _opened(cpu: bool, slots: int) -> DeviceHotIndex:
    return DeviceHotIndex(DIMENSION, HostDevice, slots) if cpu else DeviceHotIndex.on_gpu(DIMENSION, slots)


def _rows(owner: int) -> np.ndarray[Any, np.dtype[np.int64]]:
    return np.arange(owner * OWNER_ROWS, (owner + 1) * OWNER_ROWS, dtype=np.int64)


def _unit(vectors: Vectors) -> Vectors:
    unit: Vectors = vectors / np.linalg.norm(vectors, axis=1, keepdims=True)
    return unit


def _clients(index: DeviceHotIndex, owners: int, pool: Vectors, clients: int, seconds: float) -> Json:
    taken: list[float] = []
    wrong: list[int] = []
    before, ends = index.figures(), time.perf_counter() + seconds

    def ask(number: int) -> None:
        rng = np.random.default_rng((SEED, clients, number))
        while (started := time.perf_counter()) < ends:
            owner = int(rng.integers(owners))
            rows, _ = index.search(str(owner), pool[rng.integers(POOL_ROWS)], K)
            taken.append(time.perf_counter() - started)
            wrong.extend(rows[rows // OWNER_ROWS != owner].tolist())

    threads = [threading.Thread(target=ask, args=(number,)) for number in range(clients)]
    started = time.perf_counter()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    spent, after = time.perf_counter() - started, index.figures()
    p50, p95 = (1e3 * np.percentile(taken, [50, 95])).tolist()
    return {
        "clients": clients,
        "searches_per_s": round(len(taken) / spent),
        "p50_ms": round(p50, 3),
        "p95_ms": round(p95, 3),
        "searches_a_batch": round((after.searches - before.searches) / max(1, after.batches - before.batches), 2),
        "wrong_owner": len(wrong),
    }


def _inexact(index: DeviceHotIndex, owners: int, pool: Vectors) -> int:
    """How many of some searches gave others than the exact best, up to rounding."""
    rng = np.random.default_rng(SEED)
    inexact = 0
    for owner, at in zip(rng.integers(owners, size=CHECKED), rng.integers(POOL_ROWS, size=CHECKED), strict=True):
        rows, halves = index.held(str(owner))
        best = np.sort(halves.astype(np.float32) @ pool[at])[::-1][:K]
        _, scores = index.search(str(owner), pool[at], K)
        inexact += len(rows) != OWNER_ROWS or not np.allclose(scores, best, atol=TOLERANCE)
    return inexact


def _reloaded(index: DeviceHotIndex, cpu: bool, slots: int) -> Json:
    with tempfile.TemporaryDirectory(prefix="mst-gpu-") as name:
        started = time.perf_counter()
        size = save(index, Path(name) / "hot", "bench", DIMENSION, {}, index.owners())
        saved = time.perf_counter()
        again = _opened(cpu, slots)
        load(again, Path(name) / "hot", "bench", DIMENSION)
        loaded = time.perf_counter()
        again.close()
    return {"snapshot": {"bytes": size, "save_s": round(saved - started, 2), "load_s": round(loaded - saved, 2)}}


def _memory(cpu: bool) -> Json:
    """Of this process at its largest; and of the whole GPU, whoever takes it, at this moment."""
    host = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss << 10
    if cpu:
        return {"host_bytes_max": host, "gpu_bytes": None}
    import torch

    free, total = torch.cuda.mem_get_info(0)
    return {"host_bytes_max": host, "gpu_bytes": total - free}


def _numbers(text: str) -> list[int]:
    return [int(part) for part in text.split(",")]


def main(words: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m serve_app.measuring_gpu", description=__doc__)
    parts = parser.add_subparsers(dest="part", required=True)
    parts.add_parser("machine")
    of_encoder, of_hot = parts.add_parser("encoder"), parts.add_parser("hot")
    for part in (of_encoder, of_hot):
        part.add_argument("--cpu", action="store_true")
        part.add_argument("--seconds", type=float, required=True)
    of_encoder.add_argument("--layers", type=int, default=0, help="random weights; 0: the packaged encoder")
    of_encoder.add_argument("--width", type=int, default=1_024)
    of_encoder.add_argument("--batch-tokens", type=_numbers, required=True)
    of_hot.add_argument("--rows", type=int, required=True)
    of_hot.add_argument("--clients", type=_numbers, required=True)
    of_hot.add_argument("--snapshot", action="store_true")
    args = parser.parse_args(words)
    measured = {"machine": lambda _: machine(), "encoder": encoder, "hot": hot}[args.part](args)
    print(json.dumps(measured))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
