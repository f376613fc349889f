"""Ray Serve's side of `models/scaling.py`: what replicas report, and the policy that Serve's controller runs.

The policy is one object for each deployment, in the controller's process; what it keeps in mind lies in the state that
Serve hands back to it. With the controller that state is gone: the next decision begins with the replicas there are.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from ray.serve.config import AutoscalingConfig, AutoscalingContext, AutoscalingPolicy

from serve_app.models.batching import EmbedLoad
from serve_app.models.placed import Placed
from serve_app.models.scaling import Aim, Peaks, Reported, decided, target, total

__all__ = ["QueuedTokens", "Reports", "Work", "scaled"]

REPORT_S = 1.0
"""Between two reports of a replica."""

LOOK_BACK_S = 4.0
"""The mean of so long is what is decided by."""

POLICY = "serve_app.deployments.scaling:QueuedTokens"
PEAKS = "peaks"


class Reports:
    """What a replica reports, made from the counters of its model."""

    def __init__(self, load: Callable[[], EmbedLoad], clock: Callable[[], float] = time.monotonic) -> None:
        self._load, self._clock = load, clock
        self._came, self._at = load().came, clock()

    def next(self) -> dict[str, float]:
        load, now = self._load(), self._clock()
        seconds = max(now - self._at, 1e-3)
        came_s, self._came, self._at = (load.came - self._came) / seconds, load.came, now
        return Reported(float(load.waiting), came_s, load.a_second)._asdict()


class Work:
    """The load of a model whose own counters say nothing: what is given to it and not done yet. On one loop."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._waiting = self._came = self._done = 0
        self._busy_s, self._since = 0.0, 0.0

    @property
    def load(self) -> EmbedLoad:
        busy_s = self._busy_s + (self._clock() - self._since if self._waiting else 0.0)
        return EmbedLoad(self._waiting, self._came, self._done / busy_s if self._done and busy_s else 0.0)

    @contextmanager
    def of(self, tokens: int) -> Iterator[None]:
        """While this runs so many tokens wait. What raises has come and is not done: a replica that refuses is full,
        and not fast.
        """
        if not self._waiting:
            self._since = self._clock()
        self._waiting += tokens
        self._came += tokens
        try:
            yield
            self._done += tokens
        finally:
            self._waiting -= tokens
            if not self._waiting:
                self._busy_s += self._clock() - self._since


class QueuedTokens:
    """As Serve calls a policy: a context in, a number of replicas and the state for the next time out."""

    def __init__(self, delay_s: float, quiet_s: float) -> None:
        self._delay_s, self._quiet_s = delay_s, quiet_s

    def __call__(self, context: AutoscalingContext) -> tuple[int, dict[str, Any]]:
        bounds = context.capacity_adjusted_min_replicas, context.capacity_adjusted_max_replicas
        aim, now = Aim(*bounds, self._delay_s, quiet_s=self._quiet_s), context.current_time or time.time()
        peaks: Peaks = context.policy_state.get(PEAKS) or ((now, context.target_num_replicas),)
        peaks = decided(peaks, total(_reported(context.aggregated_metrics or {})), aim, now)
        return target(peaks, aim), {PEAKS: peaks}


def _reported(metrics: Mapping[str, Mapping[Any, float]]) -> list[Reported]:
    """By replica; of one that has just come there may be less than all."""
    replicas = {replica for values in metrics.values() for replica in values}
    return [
        Reported(*(float(metrics.get(name, {}).get(replica, 0.0)) for name in Reported._fields)) for replica in replicas
    ]


def scaled(placed: Placed) -> dict[str, Any]:
    """The options of a Serve deployment that say how many replicas it has, and what each takes."""
    actor = {"num_cpus": 0, "num_gpus": placed.gpus}
    if not placed.scales:
        return {"num_replicas": placed.replicas, "ray_actor_options": actor}
    return {"autoscaling_config": _autoscaling(placed), "ray_actor_options": actor}


def _autoscaling(placed: Placed) -> AutoscalingConfig:
    """Serve's own delays are off: the policy has its own."""
    kept = {"delay_s": placed.delay_s, "quiet_s": placed.quiet_s}
    policy = AutoscalingPolicy(policy_function=POLICY, policy_kwargs=kept)  # type: ignore[no-untyped-call]
    return AutoscalingConfig(
        min_replicas=placed.replicas,
        max_replicas=placed.replicas_max,
        metrics_interval_s=REPORT_S,
        look_back_period_s=LOOK_BACK_S,
        upscale_delay_s=0.0,
        downscale_delay_s=0.0,
        policy=policy,
    )
