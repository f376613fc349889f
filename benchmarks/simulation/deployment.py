"""What is assumed of a deployment: `deployments.toml` beside this file, or one like it. Frozen values."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Annotated

import msgspec
from msgspec import Meta

from benchmarks.simulation.measured import Spread
from serve_app.errors import InvalidRequest

SHIPPED = Path(__file__).with_name("deployments.toml")

Positive = Annotated[float, Meta(gt=0)]
NotNegative = Annotated[float, Meta(ge=0)]
Part = Annotated[float, Meta(ge=0, lt=1)]
RATES_MAX = 16


class _Frozen(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    pass


class Loaded(_Frozen, frozen=True):
    turns: Positive
    turns_a_user: Positive
    zipf: NotNegative
    known_part: Part
    mix: dict[str, Positive]


class Use(_Frozen, frozen=True):
    gateway: Part
    encoder: Part
    writer: Part
    follow: Part


class Machine(_Frozen, frozen=True):
    cores: NotNegative
    memory_gb: NotNegative


class GatewayParts(Machine, frozen=True):
    hot_gb: Positive
    hot_bytes_a_turn: Positive
    forward_s: NotNegative
    poll_s: Positive


class WriterParts(Machine, frozen=True):
    background_part: Part


class Store(_Frozen, frozen=True):
    put_s: Positive
    get_s: NotNegative
    spread: Spread
    gets_a_load: Annotated[int, Meta(ge=0)]
    load_cpu_s: NotNegative
    bytes_a_turn: Positive
    versions_factor: Positive


class EncoderParts(Machine, frozen=True):
    """Without times of its own it is the one that was measured."""

    gpus: NotNegative = 0.0
    base_s: NotNegative | None = None
    token_s: NotNegative | None = None
    batch_tokens_max: Positive | None = None


class Prices(_Frozen, frozen=True):
    as_of: str
    month_h: Positive
    core_h: NotNegative
    memory_gb_h: NotNegative
    gpu_h: NotNegative
    storage_gb_month: NotNegative
    puts_1000: NotNegative
    gets_1000: NotNegative


class Deployment(_Frozen, frozen=True):
    rates: Annotated[tuple[Positive, ...], Meta(min_length=1, max_length=RATES_MAX)]
    slo_p95_ms: Positive
    load: Loaded
    use: Use
    gateway: GatewayParts
    writer: WriterParts
    store: Store
    encoders: dict[str, EncoderParts]
    prices: Prices

    @property
    def users(self) -> float:
        return self.load.turns / self.load.turns_a_user


def read_deployment(path: Path = SHIPPED) -> Deployment:
    """Raises InvalidRequest, which names what is wrong in the file."""
    try:
        found = msgspec.convert(tomllib.loads(path.read_text(encoding="utf-8")), Deployment)
    except (OSError, tomllib.TOMLDecodeError, msgspec.ValidationError, UnicodeDecodeError) as error:
        raise InvalidRequest(f"{path}: {error}") from error
    if found.use.writer <= found.writer.background_part or found.use.gateway <= found.use.follow:
        raise InvalidRequest(f"{path}: what goes on beside takes all that a writer, or a gateway, may be used")
    return found
