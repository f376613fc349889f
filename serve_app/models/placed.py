"""Where a model runs: inside the service's process, or in replicas of its own, and how many of them. Plain settings."""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from serve_app.models.scaling import Aim

__all__ = ["Placed", "Placement"]

Placement = Literal["inside", "deployment"]


class Placed(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Sections `[encoder.deployment]`, `[rerank.deployment]` and `[compress.deployment]`: for what runs in a
    deployment of its own. None of it is a part of a version or of a configuration's name.

    Above `replicas` there are more where that is needed: what waits should be done within `delay_s`, and fewer replicas
    must have been enough for `quiet_s` before there are fewer. `gpus` is the share of a GPU that each replica takes of
    its node. `batch_tokens` is what one batch may hold, by estimate, 0 for the model's own bound.
    """

    replicas: Annotated[int, Meta(ge=1, le=1024)] = 1
    replicas_max: Annotated[int, Meta(ge=0, le=1024)] = 0
    gpus: Annotated[float, Meta(ge=0, le=16)] = 0.0
    delay_s: Annotated[float, Meta(gt=0, le=3600)] = 1.0
    quiet_s: Annotated[float, Meta(ge=0, le=86_400)] = 60.0
    batch_tokens: Annotated[int, Meta(ge=0, le=1 << 20)] = 0

    def __post_init__(self) -> None:
        """Raises ValueError where there may be fewer replicas than there are to be."""
        if self.replicas_max and self.replicas_max < self.replicas:
            raise ValueError(f"deployment: replicas_max {self.replicas_max} is below replicas {self.replicas}")
        if self.gpus > 1 and self.gpus != int(self.gpus):
            raise ValueError("deployment: gpus is a share below 1, or a whole number")

    @property
    def aim(self) -> Aim:
        return Aim(self.replicas, max(self.replicas, self.replicas_max), self.delay_s, quiet_s=self.quiet_s)

    @property
    def scales(self) -> bool:
        return self.replicas_max > self.replicas

    @property
    def several(self) -> bool:
        return max(self.replicas, self.replicas_max) > 1
