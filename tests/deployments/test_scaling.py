"""What replicas report, and the policy as Serve's controller calls it: with Serve's own config and context."""

from __future__ import annotations

from typing import Any

import pytest
from ray.serve._private.autoscaling_state import _resolve_policy_callable
from ray.serve._private.common import DeploymentID
from ray.serve.config import AutoscalingContext

from serve_app.deployments.scaling import Reports, Work, scaled
from serve_app.errors import Overloaded
from serve_app.models.batching import EmbedLoad
from serve_app.models.placed import Placed

Metrics = dict[str, dict[Any, float]]


def context(now: float, target: int, metrics: Metrics, state: dict[str, Any], most: int = 8) -> AutoscalingContext:
    return AutoscalingContext(
        deployment_id=DeploymentID("Embedder@x", "a"),
        deployment_name="Embedder@x",
        app_name="a",
        current_num_replicas=target,
        target_num_replicas=target,
        running_replicas=[],
        total_num_requests=0,
        total_queued_requests=0,
        aggregated_metrics=lambda: metrics,
        raw_metrics=None,
        capacity_adjusted_min_replicas=1,
        capacity_adjusted_max_replicas=most,
        policy_state=state,
        last_scale_up_time=None,
        last_scale_down_time=None,
        current_time=now,
        config=None,
    )


def reported(waiting: float, came_s: float) -> Metrics:
    """Of two replicas, one of which has only just come."""
    return {
        "waiting_tokens": {"a": waiting, "b": 0.0},
        "came_tokens_s": {"a": came_s},
        "tokens_s": {"a": 1000.0},
        "running_requests": {"a": 3.0},
    }


def test_the_policy_that_serve_opens_from_the_options_follows_what_is_reported() -> None:
    options = scaled(Placed(replicas=1, replicas_max=8, delay_s=2.0, quiet_s=30.0))
    policy = _resolve_policy_callable(options["autoscaling_config"].policy)
    target, state = policy(context(0.0, 2, reported(0.0, 100.0), {}))
    assert target == 2, "nobody knows yet why there are two"
    target, state = policy(context(10.0, target, reported(8000.0, 1000.0), state))
    assert target == 5
    target, state = policy(context(39.0, target, reported(0.0, 0.0), state))
    assert target == 5
    target, state = policy(context(41.0, target, reported(0.0, 0.0), state))
    assert target == 1
    target, state = policy(context(42.0, target, reported(1e9, 0.0), state, most=3))
    assert target == 3
    assert policy(context(43.0, target, {}, state))[0] == 3


def test_options_say_how_many_replicas_and_what_each_takes() -> None:
    assert scaled(Placed()) == {"num_replicas": 1, "ray_actor_options": {"num_cpus": 0, "num_gpus": 0.0}}
    assert scaled(Placed(replicas=2, gpus=0.5))["ray_actor_options"]["num_gpus"] == 0.5
    assert "num_replicas" not in scaled(Placed(replicas=1, replicas_max=2))


def test_a_report_says_what_came_since_the_last_one() -> None:
    loads, times = [EmbedLoad(0, 0, 0.0), EmbedLoad(70, 100, 50.0), EmbedLoad(0, 100, 60.0)], [0.0, 2.0, 4.0]
    reports = Reports(lambda: loads.pop(0), lambda: times.pop(0))
    assert reports.next() == {"waiting_tokens": 70.0, "came_tokens_s": 50.0, "tokens_s": 50.0}
    assert reports.next() == {"waiting_tokens": 0.0, "came_tokens_s": 0.0, "tokens_s": 60.0}


def test_what_a_full_replica_refuses_makes_it_no_faster() -> None:
    now = [0.0]
    work = Work(lambda: now[0])
    with work.of(100):
        for _ in range(9):
            with pytest.raises(Overloaded), work.of(100):
                raise Overloaded("full")
        now[0] = 10.0
    assert work.load == EmbedLoad(waiting=0, came=1000, a_second=10.0)
