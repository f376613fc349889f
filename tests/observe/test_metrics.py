"""`/metrics` is Prometheus' text format, counts what was answered, and its labels are bounded."""

from prometheus_client.parser import text_string_to_metric_families

from serve_app.observe.metrics import Gauges, Metrics
from tests.api.running import Running
from tests.api.test_auth import ROUTES

Samples = dict[tuple[str, str, str], float]


def samples(text: str) -> Samples:
    """Values by (name, route, status or le)."""
    found: Samples = {}
    for family in text_string_to_metric_families(text):
        assert family.documentation
        for one in family.samples:
            key = one.name, one.labels.get("route", ""), one.labels.get("status", one.labels.get("le", ""))
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
    assert samples(Metrics().text().decode()) == {}


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
    routes = {route for _, route, _ in found} - {""}
    assert routes <= {f"{one.method} {one.template}" for one in ROUTES} | {"unknown", "/healthz", "/readyz", "/metrics"}
