"""The Kubernetes manifest: valid for the first version with native sidecars and the newest known; confined; its
configuration is one the monitor takes."""

import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from monitor.sidecar.config.reading import load_config

ROOT = Path(__file__).parents[2]
MANIFEST = ROOT / "deploy" / "kubernetes" / "cfmon.yaml"
FLEET = ROOT / "deploy" / "kubernetes" / "shards.yaml"
OPERATOR = ROOT / "deploy" / "kubernetes" / "operator.yaml"
CONTAINERFILE = (ROOT / "deploy" / "Containerfile").read_text()
RESOURCES: dict[str, Any] = {one["kind"]: one for one in yaml.safe_load_all(MANIFEST.read_text())}
POD: dict[str, Any] = RESOURCES["StatefulSet"]["spec"]["template"]["spec"]
SIDECAR: dict[str, Any] = POD["initContainers"][0]


VERSIONS = ("1.29", "newest")


def refused(text: str, version: str) -> list[str]:
    """Return what is wrong with resources for a version of Kubernetes, an error each."""
    # It takes a second, in each process that collects tests.
    from kubernetes_validate import utils  # type: ignore[import-untyped]  # noqa: PLC0415

    found = []
    for resource in filter(None, yaml.safe_load_all(text)):
        try:
            utils.validate(resource, utils.latest_version() if version == "newest" else version, strict=True)
        except utils.ValidationError as error:
            found.append(error.message)
    return found


@pytest.mark.parametrize("version", VERSIONS)
def test_valid(version: str) -> None:
    assert refused(MANIFEST.read_text(), version) == []
    assert len(refused(MANIFEST.read_text().replace("startupProbe:", "startProbe:"), version)) == 1


def test_it_is_a_native_sidecar_that_is_up_before_the_agent_starts() -> None:
    assert SIDECAR["name"] == "cfmon"
    assert SIDECAR["restartPolicy"] == "Always"
    assert SIDECAR["startupProbe"]["httpGet"]["path"] == "/startupz"
    assert SIDECAR["livenessProbe"]["httpGet"]["path"] == "/healthz"
    assert SIDECAR["readinessProbe"]["httpGet"]["path"] == "/readyz"
    (port,) = SIDECAR["ports"]
    assert f"EXPOSE {port['containerPort']}\n" in CONTAINERFILE


def test_everything_is_confined_and_bounded() -> None:
    (user,) = re.findall(r"(?m)^USER (\d+)$", CONTAINERFILE)
    assert POD["securityContext"]["runAsNonRoot"] is True
    assert POD["securityContext"]["runAsUser"] == POD["securityContext"]["fsGroup"] == int(user)
    assert POD["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    assert POD["automountServiceAccountToken"] is False
    for container in [*POD["initContainers"], *POD["containers"]]:
        confined = container["securityContext"]
        assert confined["readOnlyRootFilesystem"] is True
        assert confined["allowPrivilegeEscalation"] is False
        assert confined["capabilities"] == {"drop": ["ALL"]}
        assert "memory" in container["resources"]["limits"]


def test_what_it_mounts_is_there_and_the_state_is_on_a_volume() -> None:
    claims = RESOURCES["StatefulSet"]["spec"]["volumeClaimTemplates"]
    volumes = {volume["name"] for volume in POD["volumes"]} | {claim["metadata"]["name"] for claim in claims}
    for container in [*POD["initContainers"], *POD["containers"]]:
        assert {mount["name"] for mount in container["volumeMounts"]} <= volumes
    (store,) = re.findall(r"CFMON_STORE__PATH=(\S+)/[^/]+", CONTAINERFILE)
    assert store in {mount["mountPath"] for mount in SIDECAR["volumeMounts"]}


def test_the_configuration_is_one_the_monitor_takes(tmp_path: Path) -> None:
    """With the examples of the image exchanged for those of the repository, which they are copies of."""
    (text,) = RESOURCES["ConfigMap"]["data"].values()
    assert "/opt/cfmon/share/policies/" in text
    file = tmp_path / "config.yaml"
    file.write_text(text.replace("/opt/cfmon/share/", f"{ROOT}/"))
    config = load_config(file)
    assert Path(config.model).is_file()
    assert all(manifest.is_file() for manifest in config.policies.values())
    assert SIDECAR["args"] == ["run", f"{SIDECAR['volumeMounts'][0]['mountPath']}/config.yaml"]
    assert list(RESOURCES["ConfigMap"]["data"]) == ["config.yaml"]


def test_the_operator_scrapes_the_sidecar_under_the_name_that_the_rules_rely_on() -> None:
    monitor, _ = yaml.safe_load_all(OPERATOR.read_text())
    assert (monitor["apiVersion"], monitor["kind"]) == ("monitoring.coreos.com/v1", "PodMonitor")
    labels = RESOURCES["StatefulSet"]["spec"]["template"]["metadata"]["labels"]
    assert monitor["spec"]["selector"]["matchLabels"].items() <= labels.items()
    (endpoint,) = monitor["spec"]["podMetricsEndpoints"]
    assert endpoint["port"] in [port["name"] for port in SIDECAR["ports"]]
    named, kept = endpoint["relabelings"]
    assert (named["targetLabel"], named["replacement"]) == ("job", "cfmon")
    assert kept["regex"] == SIDECAR["name"]


def test_the_operators_rules_are_ours() -> None:
    _, rule = yaml.safe_load_all(OPERATOR.read_text())
    assert (rule["apiVersion"], rule["kind"]) == ("monitoring.coreos.com/v1", "PrometheusRule")
    ours = yaml.safe_load((ROOT / "deploy" / "prometheus" / "cfmon.rules.yml").read_text())
    assert rule["spec"] == ours
    made = subprocess.run(
        [sys.executable, "-c", "import make_operator; print(make_operator.document(), end='')"],
        cwd=OPERATOR.parent,
        capture_output=True,
        text=True,
        check=True,
    )
    assert made.stdout == OPERATOR.read_text()


# ---- a fleet ----

SHARDS: dict[str, Any] = {one["kind"]: one for one in yaml.safe_load_all(FLEET.read_text())}


@pytest.mark.parametrize("version", VERSIONS)
def test_the_manifest_of_a_fleet_is_valid(version: str) -> None:
    assert refused(FLEET.read_text(), version) == []


def test_each_pod_is_one_of_as_many_shards_as_there_are_pods(tmp_path: Path) -> None:
    spec = SHARDS["StatefulSet"]["spec"]
    (container,) = spec["template"]["spec"]["containers"]
    index, shard = container["env"]
    assert index["valueFrom"]["fieldRef"]["fieldPath"] == "metadata.labels['apps.kubernetes.io/pod-index']"
    file = tmp_path / "config.yaml"
    file.write_text(SHARDS["ConfigMap"]["data"]["config.yaml"].replace("/opt/cfmon/share/", f"{ROOT}/"))
    names = set()
    for number in range(spec["replicas"]):
        value = shard["value"].replace(f"$({index['name']})", str(number))
        names.add(load_config(file, {shard["name"]: value}).mqtt.session)
    assert names == {"fleet-0-3", "fleet-1-3", "fleet-2-3"}


def test_a_shard_is_confined_probed_and_scraped_as_the_sidecar_is() -> None:
    template = SHARDS["StatefulSet"]["spec"]["template"]
    (container,) = template["spec"]["containers"]
    same = ("name", "image", "args", "ports", "startupProbe", "livenessProbe", "readinessProbe", "resources")
    for key in (*same, "securityContext", "volumeMounts"):
        assert container[key] == SIDECAR[key], key
    assert template["spec"]["securityContext"] == POD["securityContext"]
    assert template["spec"]["automountServiceAccountToken"] is False
    assert template["metadata"]["labels"]["cfmon/monitored"] == "true"
    sidecars = RESOURCES["StatefulSet"]["spec"]
    assert SHARDS["StatefulSet"]["spec"]["volumeClaimTemplates"] == sidecars["volumeClaimTemplates"]
