"""What the docs state is so: codes, files, names, settings, limits."""

from __future__ import annotations

import re
from pathlib import Path

import msgspec
import pytest

from serve_app.api import schemas
from serve_app.api.app import IN_FLIGHT_MAX
from serve_app.api.problems import STATUS_OF_CODE
from serve_app.config import load_settings

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


def test_sample_configuration_is_read(tmp_path: Path) -> None:
    sample = re.search(r"```toml\n(.*?)```", (ROOT / "docs/configuration.md").read_text(), re.DOTALL)
    assert sample
    (tmp_path / "memstrata.toml").write_text(sample[1])
    settings = load_settings(tmp_path, tmp_path / "memstrata.toml")
    assert msgspec.structs.replace(settings, data="") == msgspec.structs.replace(load_settings(tmp_path), data="")


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
    }
    assert all(stated.values())
    assert all(text in page for text in stated)
