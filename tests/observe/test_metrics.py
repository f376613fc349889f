"""`/metrics` is Prometheus' text format, counts what was answered, and its labels are bounded."""

from prometheus_client.parser import text_string_to_metric_families

from serve_app.observe.metrics import Gauges, Metrics
from tests.api.running import Running
from tests.api.test_auth import ROUTES
from tests.write.shards import wait_until

Samples = dict[tuple[str, str, str], float]


def samples(text: str) -> Samples:
    """Values by name, route and the other labels."""
    found: Samples = {}
    for family in text_string_to_metric_families(text):
        assert family.documentation
        for one in family.samples:
            labels = dict(one.labels)
            key = one.name, labels.pop("route", ""), " ".join(labels[name] for name in sorted(labels))
            assert key not in found
            found[key] = one.value
    return found


def test_counters_and_timings_of_one_registry() -> None:
    metrics = Metrics()
    metrics.answered("GET /x", 200, 0.02)
    metrics.answered("GET /x", 200, 20.0)
    metrics.answered("GET /x", 404, 0.0001)
    metrics.watch(Gauges(lambda: [("depth", "How deep.", 7.0)]))
    found = samples(metrics.text().decode())
    assert found["memstrata_http_requests_total", "GET /x", "200"] == 2
    assert found["memstrata_http_requests_total", "GET /x", "404"] == 1
    name = "memstrata_http_request_duration_seconds_bucket"
    assert [found[name, "GET /x", le] for le in ("0.001", "0.025", "10.0", "+Inf")] == [1, 2, 2, 3]
    assert found["depth", "", ""] == 7
    fresh = samples(Metrics().text().decode()).items()
    assert {value for (name, _, _), value in fresh if not name.endswith("_created")} == {0}, "each counts for itself"


def test_what_the_write_path_tells() -> None:
    metrics = Metrics()
    metrics.committed(3, 0.004)
    metrics.committed(1_500, 0.7)
    metrics.searchable(1.5)
    for bound in ("queue_weight", "owner_pending", "queue_weight"):
        metrics.sent_away(bound)
    families = {family.name: family for family in text_string_to_metric_families(metrics.text().decode())}
    refused = families["memstrata_writes_refused"].samples
    assert {one.labels["bound"]: one.value for one in refused if one.name.endswith("_total")} == {
        "queue_weight": 2,
        "owner_pending": 1,
    }
    sums = {name: {one.name: one.value for one in family.samples} for name, family in families.items()}
    for name, count, total in (
        ("memstrata_commit_records", 2, 1_503),
        ("memstrata_commit_duration_seconds", 2, 0.704),
        ("memstrata_searchable_lag_seconds", 1, 1.5),
    ):
        assert (sums[name][f"{name}_count"], sums[name][f"{name}_sum"]) == (count, total)


def scraped(service: Running) -> Samples:
    return samples(service.call("GET", "/metrics", key=None).text)


def test_a_live_service_counts_what_it_answers(service: Running) -> None:
    service.append("u", "s", "one", "two")
    for _ in range(3):
        service.search("u", "one")
    for path in ("/v1/none/1", "/v1/none/2", "/none"):
        service.call("GET", path)
    service.call("GET", "/v1/turns/t1?user_id=a&session_id=b")
    service.call("GET", "/v1/turns/t2?user_id=a&session_id=b")
    answer = service.call("GET", "/metrics", key=None)
    assert answer.headers["content-type"].startswith("text/plain; version=")
    found = samples(answer.text)
    assert found["memstrata_http_requests_total", "POST /v1/search", "200"] == 3
    assert found["memstrata_http_requests_total", "unknown", "404"] == 3
    assert found["memstrata_http_requests_total", "GET /v1/turns/{turn_id}", "404"] == 2
    assert found["memstrata_turns_in_memory", "", ""] == 2
    assert found["memstrata_owners_in_memory", "", ""] == 2
    assert found["memstrata_commit_records_count", "", ""] >= 1
    wait_until(lambda: scraped(service)["memstrata_searchable_lag_seconds_count", "", ""] == 2)
    assert scraped(service)["memstrata_oldest_pending_turn_age_seconds", "", ""] == 0
    routes = {route for _, route, _ in found} - {""}
    assert routes <= {f"{one.method} {one.template}" for one in ROUTES} | {"unknown", "/healthz", "/readyz", "/metrics"}
