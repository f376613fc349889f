"""Policies: defaults, what was set, whose it is, and that another process's change counts at once."""

from __future__ import annotations

from pathlib import Path

import pytest

from serve_app.errors import InvalidRequest, NotFound, StoreUnavailable
from serve_app.policies import BackupPolicy, LifecyclePolicy, PrivacyPolicy, TtlPolicy
from serve_app.stores.documents_disk import DiskDocuments
from serve_app.stores.policy_file import POLICIES_FILE, PolicyFile, PrivacyFloor


def test_nothing_set_means_the_defaults(tmp_path: Path) -> None:
    policies = PolicyFile(DiskDocuments(tmp_path))
    assert policies.of("acme", PrivacyPolicy) == PrivacyPolicy("secrets")
    assert policies.get("acme", "ttl") == TtlPolicy()
    assert policies.of_service(BackupPolicy).uri == ""


def test_what_is_set_counts_for_its_tenant_alone_in_every_process(tmp_path: Path) -> None:
    policies, other_process = PolicyFile(DiskDocuments(tmp_path)), PolicyFile(DiskDocuments(tmp_path))
    assert other_process.of("acme", PrivacyPolicy).level == "secrets"
    policies.put("acme", "privacy", b'{"level": "strict"}')
    policies.put("acme", "lifecycle", b'{"cold_after_s": null}')
    assert other_process.of("acme", PrivacyPolicy).level == "strict"
    assert other_process.of("acme", LifecyclePolicy) == LifecyclePolicy(cold_after_s=None)
    assert other_process.of("other", PrivacyPolicy).level == "secrets"


def test_a_policy_of_the_service_is_nobodys_tenant(tmp_path: Path) -> None:
    policies = PolicyFile(DiskDocuments(tmp_path))
    policies.put("acme", "backup", b'{"uri": "/backups", "keep_s": 60}')
    assert policies.of_service(BackupPolicy) == BackupPolicy("/backups", keep_s=60)
    assert policies.get("other", "backup") == BackupPolicy("/backups", keep_s=60)


@pytest.mark.parametrize("body", [b"", b"{", b"[]", b'{"level": "most"}', b'{"level": "off", "more": 1}'])
def test_a_wrong_policy_is_refused_and_changes_nothing(tmp_path: Path, body: bytes) -> None:
    policies = PolicyFile(DiskDocuments(tmp_path))
    policies.put("acme", "privacy", b'{"level": "strict"}')
    with pytest.raises(InvalidRequest):
        policies.put("acme", "privacy", body)
    assert policies.of("acme", PrivacyPolicy).level == "strict"


def test_an_unknown_name_is_no_policy(tmp_path: Path) -> None:
    with pytest.raises(NotFound):
        PolicyFile(DiskDocuments(tmp_path)).get("acme", "colour")


def test_a_file_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    (tmp_path / POLICIES_FILE).write_text("{")
    with pytest.raises(StoreUnavailable, match=r"policies\.json"):
        PolicyFile(DiskDocuments(tmp_path)).of("acme", PrivacyPolicy)


def test_what_is_stored_lags_behind_a_policy_that_tightens_until_it_has_caught_up(tmp_path: Path) -> None:
    policies = PolicyFile(DiskDocuments(tmp_path))
    assert policies.lagging() == {}
    policies.put("acme", "privacy", b'{"level": "strict"}')
    assert policies.lagging() == {"acme": PrivacyFloor("secrets", 1)}
    assert policies.raise_floor("acme", PrivacyFloor("strict", 1))
    assert policies.lagging() == {}


def test_the_loosest_policy_that_was_ever_in_force_since_counts(tmp_path: Path) -> None:
    policies = PolicyFile(DiskDocuments(tmp_path))
    for level in (b"off", b"secrets", b"strict"):
        policies.put("acme", "privacy", b'{"level": "%b"}' % level)
    assert policies.floor("acme") == PrivacyFloor("off", 3)


def test_a_policy_that_loosens_leaves_nothing_to_do(tmp_path: Path) -> None:
    policies = PolicyFile(DiskDocuments(tmp_path))
    policies.put("acme", "privacy", b'{"level": "off"}')
    policies.put("other", "ttl", b"{}")
    assert policies.lagging() == {}
    assert policies.floor("acme").level == "off"


def test_catching_up_with_a_policy_that_was_set_again_does_not_count(tmp_path: Path) -> None:
    policies = PolicyFile(DiskDocuments(tmp_path))
    policies.put("acme", "privacy", b'{"level": "strict"}')
    begun = policies.floor("acme").changes
    policies.put("acme", "privacy", b'{"level": "off"}')
    policies.put("acme", "privacy", b'{"level": "strict"}')
    assert not policies.raise_floor("acme", PrivacyFloor("strict", begun))
    assert policies.floor("acme").level == "off"


@pytest.mark.parametrize("uri", ["a\\u0000b", "file:///%00", ".", "~/x", "foo://bar", "s3://", "x" * 3_000])
def test_backups_go_nowhere_that_cannot_work(tmp_path: Path, uri: str) -> None:
    policies = PolicyFile(DiskDocuments(tmp_path))
    with pytest.raises(InvalidRequest, match="uri"):
        policies.put("acme", "backup", b'{"uri": "%b"}' % uri.encode())
    assert policies.of_service(BackupPolicy).uri == ""


def test_backups_go_not_into_the_store_itself(tmp_path: Path) -> None:
    for folder in (tmp_path, tmp_path / "bk"):
        with pytest.raises(InvalidRequest, match="within the store"):
            PolicyFile(DiskDocuments(tmp_path)).put("acme", "backup", b'{"uri": "%b"}' % str(folder).encode())
