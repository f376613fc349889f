"""What the docs state is so: codes, files, names, settings, limits."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import get_args, get_type_hints

import msgspec
import pytest

from serve_app.api import limits, schemas
from serve_app.api.door import IN_FLIGHT_MAX
from serve_app.api.openapi import OPERATIONS
from serve_app.api.problems import STATUS_OF_CODE
from serve_app.backup.repair import HOLES_MAX
from serve_app.config import load_settings
from serve_app.migrate.record import FOLLOWS, State
from serve_app.policies import ENTITY_CLASSES_MAX, OF_SERVICE, OF_TENANT, Terms
from serve_app.write.hits import OWNERS_A_PART
from tests.api.running import Running

ROOT = Path(__file__).parent.parent
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]


def test_every_error_code_is_in_the_table() -> None:
    rows = re.findall(r"^\| (\d+) \| `(\w+)` \|", (ROOT / "docs/errors.md").read_text(), re.MULTILINE)
    assert {code: int(status) for status, code in rows} == STATUS_OF_CODE


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_and_files_of_a_page_are_there(page: Path) -> None:
    text = page.read_text()
    links = [link.partition("#")[0] for link in re.findall(r"\]\(([^)]+)\)", text) if "://" not in link]
    for link in filter(None, links):
        assert (page.parent / link).exists(), link
    for path in re.findall(r"`((?:serve_app|docs|benchmarks|tests)/[\w/]+\.\w+)`", text):
        assert (ROOT / path).exists(), path


def test_walks_name_what_is_there() -> None:
    """Each `file` `name` pair of the walks: the file is there and defines the name."""
    text = (ROOT / "docs/walks.md").read_text()
    pairs = re.findall(r"`([\w/]+\.py)` `([\w.]+)`", text)
    assert len(pairs) >= 12
    for path, name in pairs:
        found = ROOT / path if path.startswith("serve_app") else ROOT / "serve_app" / path
        last = name.rpartition(".")[2]
        assert re.search(rf"(def|class) {last}\b", found.read_text()), f"{path} {name}"


def test_each_state_of_a_migration_is_told_in_its_order() -> None:
    page = (ROOT / "docs/migrations.md").read_text()
    assert re.findall(r"^\| `(\w+)` \|", page.split("## States")[1].split("##")[0], re.MULTILINE) == [
        *FOLLOWS["embedding"]
    ]
    assert all(f"`{state}`" in page for state in get_args(State))
    contract = (ROOT / "docs/design.md").read_text()
    assert all(re.search(rf"\b{state}\b", contract) for state in get_args(State))


def test_each_term_of_a_migration_is_told_with_its_default() -> None:
    told = (ROOT / "docs/migrations.md").read_text().split("## Terms")[1].split("##")[0]
    stated = {name: json.loads(value) for name, value in re.findall(r"`(\w+)` (true|false|[\d.]+\d|\d)", told)}
    assert stated == msgspec.to_builtins(Terms())


def test_each_policy_has_its_row() -> None:
    page = (ROOT / "docs/configuration.md").read_text()
    assert re.findall(r'^\| `(\w+)` \| `\{"', page, re.MULTILINE) == [*OF_TENANT, *OF_SERVICE]


def test_each_metric_of_a_migration_is_told(service: Running) -> None:
    shown = service.call("GET", "/metrics", key=None).text
    own = re.findall(
        r"^# TYPE (memstrata_(?:migration|backfill|gate|shadow)_\w+|memstrata_\w+_target) ", shown, re.MULTILINE
    )
    assert len(own) >= 10
    page = (ROOT / "docs/migrations.md").read_text()
    assert [name for name in own if f"`{name}" not in page] == []


OF_ANOTHER_SHAPE = "/v1/embeddings"
"""Its row says whose shape it has."""

ROWS = [line for line in (ROOT / "docs/design.md").read_text().splitlines() if line.startswith("| `")]


@pytest.mark.parametrize("operation", OPERATIONS, ids=lambda one: " ".join(one[:2]))
def test_the_contract_names_what_a_route_takes(operation: tuple[str, str, str, object, tuple[str, ...], int]) -> None:
    """Its row in the table of routes: the query parameters, and the fields of the body."""
    method, path, _, body, query, _ = operation
    pattern = rf"`([A-Z|\\]+) {re.escape(path)}(?:\?([\w=&]*))?`"
    named = [
        (row, frozenset(re.findall(r"(\w+)=", parameters)))
        for row in ROWS
        for methods, parameters in re.findall(pattern, row.replace("`, `/", "` `GET /"))
        if method.upper() in re.findall("[A-Z]+", methods)
    ]
    assert [parameters for _, parameters in named] == [frozenset(name.rstrip("?") for name in query)]
    if isinstance(body, type) and path != OF_ANOTHER_SHAPE:
        fields = {field.encode_name for field in msgspec.structs.fields(body)}
        assert fields - set(re.findall(r"\w+", named[0][0])) == set()


def test_the_contract_names_every_action_of_maintenance() -> None:
    page = (ROOT / "docs/design.md").read_text()
    actions = re.search(r"\{action: (.*?), shard", page)
    assert actions
    assert re.findall(r'"(\w+)"', actions[1]) == list(get_args(get_type_hints(schemas.MaintenanceIn)["action"]))


def test_sample_configuration_is_read(tmp_path: Path) -> None:
    sample = re.search(r"```toml\n(.*?)```", (ROOT / "docs/configuration.md").read_text(), re.DOTALL)
    assert sample
    (tmp_path / "memstrata.toml").write_text(sample[1])
    settings = load_settings(tmp_path, tmp_path / "memstrata.toml")
    assert msgspec.structs.replace(settings, data="") == msgspec.structs.replace(load_settings(tmp_path), data="")


EXAMPLE = re.compile(
    r"\$URL/compress -d '(?P<asked>.*?)'\n```\n```json\n"
    r'.*?"text":(?P<text>".*?"),.*?"constraints":(?P<ledger>\[.*?\])',
    re.DOTALL,
)


@pytest.mark.parametrize("page", ["README.md", "docs/compression.md"])
def test_the_example_of_compression_answers_as_the_page_says(service: Running, page: str) -> None:
    """Its text but for the day, and its ledger."""
    example = EXAMPLE.search((ROOT / page).read_text())
    assert example
    answered = service.ok("POST", "/v1/compress", json=json.loads(example["asked"]))
    assert re.sub(r"^\d\d-\d\d", "12-01", answered["text"]) == json.loads(example["text"])
    assert answered["constraints"] == json.loads(example["ledger"])


def test_limits_of_the_page_are_those_of_the_schemas() -> None:
    page = (ROOT / "docs/limits.md").read_text()
    stated = {
        "turns in one append | 1,000": schemas.TURNS_A_CALL_MAX == 1_000,
        "`k` | 1-1,000": schemas.RESULTS_MAX == 1_000,
        "body | 8 MiB": schemas.BODY_BYTES_MAX == 8 << 20,
        "content and data | 1 MiB": schemas.CONTENT_BYTES_MAX == 1 << 20,
        "`budget_tokens` | 2,000,000": schemas.BUDGET_TOKENS_MAX == 2_000_000,
        "`deadline_ms` | 1-60,000": schemas.DEADLINE_MS_MAX == 60_000,
        "turns a page | 1,000": schemas.PAGE_TURNS_MAX == 1_000,
        "worked on at once | 512": IN_FLIGHT_MAX == 512,
        "rate is remembered | 10,000": limits.BUCKETS_MAX == 10_000,
        "policy `ttl` | 100": ENTITY_CLASSES_MAX == 100,
        "a repair mends | 1,000": HOLES_MAX == 1_000,
        "call of the duty writes | 200": OWNERS_A_PART == 200,
    }
    assert all(stated.values())
    assert all(text in page for text in stated)
