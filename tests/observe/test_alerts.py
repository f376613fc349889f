"""The rules for Prometheus speak of what a service shows, and each level of degradation has one."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any, get_args

import pytest
import yaml

from serve_app.core import Level
from tests.api.running import Running

RULES = Path(__file__).parents[2] / "serve_app/observe/alerts.yaml"
PAGE = Path(__file__).parents[2] / "docs/degradation.md"


@pytest.fixture(scope="module")
def rules() -> list[dict[str, Any]]:
    return [rule for group in yaml.safe_load(RULES.read_text())["groups"] for rule in group["rules"]]


def test_rules_are_whole(rules: list[dict[str, Any]]) -> None:
    assert len({rule["alert"] for rule in rules}) == len(rules)
    for rule in rules:
        assert set(rule) <= {"alert", "expr", "for", "labels", "annotations"}
        assert rule["expr"].count("(") == rule["expr"].count(")")
        assert re.fullmatch(r"\d+[smh]", rule.get("for", "1m"))
        assert rule["labels"]["severity"] in ("warning", "critical")
        assert rule["annotations"]["summary"]


def test_rules_speak_of_metrics_that_there_are(service: Running, rules: list[dict[str, Any]]) -> None:
    service.context("u", "anything")
    shown = service.call("GET", "/metrics", key=None).text
    there = set(re.findall(r"^# TYPE (\w+) ", shown, re.MULTILINE))
    for rule in rules:
        for name in re.findall(r"memstrata_\w+", rule["expr"]):
            assert name in there, name
    routes = set(re.findall(r'^memstrata_http_requests_total\{route="([^"]+)"', shown, re.MULTILINE))
    assert "POST /v1/context" in routes


def test_each_level_has_a_rule_and_the_page_names_each_rule(rules: list[dict[str, Any]]) -> None:
    told = " ".join(rule["expr"] for rule in rules)
    assert all(f'level="{level}"' in told for level in get_args(Level))
    page = PAGE.read_text()
    assert all(f"`{rule['alert']}`" in page for rule in rules)
