"""The Helm chart, rendered by helm: as it is, it gives the plain manifest; every value does what it says.

Without helm (`.ci/setup.py system` fetches it) only what can be seen in the files is checked, and the rest skips.
"""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from monitor import __version__
from monitor.sidecar.config.reading import load_config
from tests.deploy.test_compose import check_schema
from tests.deploy.test_kubernetes import OPERATOR, RESOURCES, ROOT, VERSIONS, refused

CHART = ROOT / "deploy" / "helm" / "cfmon"
SHARDS = ROOT / "deploy" / "kubernetes" / "shards.yaml"
RULES = ROOT / "deploy" / "prometheus" / "cfmon.rules.yml"
VALUES: dict[str, Any] = yaml.safe_load((CHART / "values.yaml").read_text())
SCHEMA: dict[str, Any] = json.loads((CHART / "values.schema.json").read_text())
EVERYTHING: dict[str, Any] = {
    "mqtt": {"existingSecret": "broker"},
    "http": {"existingSecret": "page", "hosts": ["monitor.example"]},
    "runbooks": {"baseUrl": "https://monitor.example/"},
    "podMonitor": {"enabled": True, "labels": {"release": "prometheus"}},
    "prometheusRule": {"enabled": True, "labels": {"release": "prometheus"}},
    "persistence": {"storageClassName": "fast", "size": "5Gi"},
    "serviceAccount": {"annotations": {"example.com/role": "none"}},
    "imagePullSecrets": [{"name": "registry"}],
    "podLabels": {"team": "ours"},
    "podAnnotations": {"example.com/note": "yes"},
    "priorityClassName": "high",
    "nodeSelector": {"disk": "ssd"},
    "tolerations": [{"key": "special", "operator": "Exists"}],
    "affinity": {"podAntiAffinity": {}},
    "extraEnv": [{"name": "TZ", "value": "UTC"}],
    "extraVolumes": [{"name": "policies", "persistentVolumeClaim": {"claimName": "policies"}}],
    "extraVolumeMounts": [{"name": "policies", "mountPath": "/policies", "readOnly": True}],
}
Resources = dict[str, dict[str, Any]]


def helm(*arguments: str) -> subprocess.CompletedProcess[str]:
    program = shutil.which("helm") or shutil.which("helm", path=str(Path(sys.executable).parent))
    if program is None:
        pytest.skip("helm is missing (.ci/setup.py system fetches it where it can)")
    return subprocess.run([program, *arguments], cwd=CHART, capture_output=True, text=True, check=False)


def rendered(folder: Path, values: dict[str, Any], release: str = "watched-agent") -> str:
    """What would be sent to the cluster, `helm test`'s pod apart."""
    file = folder / "values.yaml"
    file.write_text(yaml.safe_dump(values))
    done = helm("template", release, ".", "--skip-tests", "--values", str(file))
    assert done.returncode == 0, done.stderr
    return done.stdout


def resources(folder: Path, values: dict[str, Any] | None = None, release: str = "watched-agent") -> Resources:
    documents = yaml.safe_load_all(rendered(folder, values or {}, release))
    return {one["kind"]: one for one in documents if one is not None}


def pod(made: Resources) -> dict[str, Any]:
    found: dict[str, Any] = made["StatefulSet"]["spec"]["template"]["spec"]
    return found


# ---- the files ----


def test_the_rules_in_it_are_prometheus_rules() -> None:
    assert (CHART / "files" / RULES.name).read_text() == RULES.read_text(), "run deploy/kubernetes/make_operator.py"


def test_its_versions_are_those_of_the_monitor() -> None:
    chart = yaml.safe_load((CHART / "Chart.yaml").read_text())
    assert chart["appVersion"] == chart["version"] == __version__


def test_every_value_is_described_in_the_schema_and_used(tmp_path: Path) -> None:
    everything = tmp_path / "everything.json"
    everything.write_text(json.dumps(EVERYTHING))
    schema = str(CHART / "values.schema.json")
    for arguments in (
        ["--check-metaschema", schema],
        ["--schemafile", schema, str(CHART / "values.yaml"), str(everything)],
    ):
        check_schema(*arguments)
    templates = "".join(path.read_text() for path in (CHART / "templates").rglob("*.*"))
    assert set(VALUES) == set(SCHEMA["properties"]) - {"global"}
    for name, described in SCHEMA["properties"].items():
        if name == "global":
            continue
        inner = described.get("properties", {})
        assert set(inner) == (set(VALUES[name]) if inner else set())
        for value in [f"{name}.{key}" for key in inner] or [name]:
            assert re.search(rf"\.Values\.{re.escape(value)}\b", templates), value


# ---- rendered ----


@pytest.mark.parametrize("values", [{}, EVERYTHING], ids=["as it is", "everything"])
def test_helm_lints_it(values: dict[str, Any], tmp_path: Path) -> None:
    file = tmp_path / "values.yaml"
    file.write_text(yaml.safe_dump(values))
    done = helm("lint", "--strict", ".", "--values", str(file))
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("version", VERSIONS)
def test_kubernetes_takes_it(version: str, tmp_path: Path) -> None:
    """As it is, with everything, and alone; not the operator's own resources, whose schema is not at hand."""
    ways: list[dict[str, Any]] = [
        {},
        {**EVERYTHING, "podMonitor": {}, "prometheusRule": {}},
        {"agent": {"enabled": False}, "persistence": {"enabled": False}},
        {"agent": {"enabled": False}, "shards": 4},
    ]
    test = helm("template", "one", ".", "--show-only", "templates/tests/healthz.yaml")
    text = "\n".join([*(rendered(tmp_path, values) for values in ways), test.stdout])
    assert refused(text, version) == []
    assert len(refused(text.replace("startupProbe:", "startProbe:"), version)) == len(ways)


def test_as_it_is_it_gives_the_plain_manifest(tmp_path: Path) -> None:
    """But for labels, a service account of its own, and a restart when the configuration changes."""
    made = resources(tmp_path, {"fullnameOverride": "watched-agent"})
    assert made.keys() == {*RESOURCES, "ServiceAccount"}
    assert made["ConfigMap"]["data"] == RESOURCES["ConfigMap"]["data"]
    ours, theirs = made["StatefulSet"]["spec"], RESOURCES["StatefulSet"]["spec"]
    spec = ours["template"]["spec"]
    assert spec.pop("serviceAccountName") == made["ServiceAccount"]["metadata"]["name"]
    assert made["ServiceAccount"]["automountServiceAccountToken"] is False
    (container,) = spec["initContainers"]
    assert container.pop("imagePullPolicy") == "IfNotPresent"
    (config,) = (volume for volume in spec["volumes"] if volume["name"] == "config")
    assert config["configMap"]["name"] == made["ConfigMap"]["metadata"]["name"]
    config["configMap"]["name"] = RESOURCES["ConfigMap"]["metadata"]["name"]
    assert spec == theirs["template"]["spec"]
    annotations = ours["template"]["metadata"]["annotations"]
    assert annotations.pop("checksum/config")
    assert annotations == theirs["template"]["metadata"]["annotations"]
    assert ours["template"]["metadata"]["labels"]["cfmon/monitored"] == "true"
    for same in ("serviceName", "replicas", "volumeClaimTemplates"):
        assert ours[same] == theirs[same]
    service, plain = made["Service"]["spec"], RESOURCES["Service"]["spec"]
    for selector in (service.pop("selector"), ours["selector"]["matchLabels"]):
        assert selector.items() <= ours["template"]["metadata"]["labels"].items()
    assert service == {key: value for key, value in plain.items() if key != "selector"}


def test_two_releases_in_one_namespace_keep_apart(tmp_path: Path) -> None:
    one, other = resources(tmp_path, release="one"), resources(tmp_path, release="other")
    for kind in one:
        assert one[kind]["metadata"]["name"] != other[kind]["metadata"]["name"]
    labels = other["StatefulSet"]["spec"]["template"]["metadata"]["labels"]
    assert not one["Service"]["spec"]["selector"].items() <= labels.items()


def test_alone_the_monitor_is_an_ordinary_container(tmp_path: Path) -> None:
    spec = pod(resources(tmp_path, {"agent": {"enabled": False}}))
    assert "initContainers" not in spec
    (container,) = spec["containers"]
    assert container["name"] == "cfmon"
    assert "restartPolicy" not in container


def test_shards_are_pods_that_know_their_number(tmp_path: Path) -> None:
    plain = {one["kind"]: one for one in yaml.safe_load_all(SHARDS.read_text())}
    values = {"shards": 3, "agent": {"enabled": False}, "config": plain["ConfigMap"]["data"]["config.yaml"]}
    made = resources(tmp_path, values)
    for same in ("replicas", "podManagementPolicy"):
        assert made["StatefulSet"]["spec"][same] == plain["StatefulSet"]["spec"][same]
    (ours,), (theirs,) = pod(made)["containers"], pod(plain)["containers"]
    assert ours["env"] == theirs["env"]
    assert "env" not in pod(resources(tmp_path))["initContainers"][0]


def test_an_agent_cannot_be_in_the_pods_of_shards(tmp_path: Path) -> None:
    (tmp_path / "values.yaml").write_text("shards: 2")
    done = helm("template", "one", ".", "--values", str(tmp_path / "values.yaml"))
    assert done.returncode != 0
    assert "set agent.enabled to false" in done.stderr


def test_secrets_are_mounted_and_the_monitor_takes_what_it_is_told_of_them(tmp_path: Path) -> None:
    made = resources(tmp_path, EVERYTHING)
    assert "Secret" not in made
    spec = pod(made)
    (container,) = spec["initContainers"]
    mounted = {mount["name"]: mount["mountPath"] for mount in container["volumeMounts"]}
    keys = {"mqtt-secret": ("username", "password"), "http-secret": ("token",)}
    secrets = {volume["name"]: volume["secret"]["secretName"] for volume in spec["volumes"] if "secret" in volume}
    assert secrets == {"mqtt-secret": "broker", "http-secret": "page"}
    told = {one["name"]: one.get("value", "10.0.0.7") for one in container["env"]}
    environment = {name: value.replace("$(POD_IP)", told["POD_IP"]) for name, value in told.items()}
    for place, key in [(mounted[volume], key) for volume, names in keys.items() for key in names]:
        environment = {
            name: value.replace(f"{place}/{key}", str(tmp_path / key)) for name, value in environment.items()
        }
    for name, text in {"username": "us", "password": "secret", "token": "0123456789abcdef"}.items():
        (tmp_path / name).write_text(text)
    file = tmp_path / "config.yaml"
    file.write_text(made["ConfigMap"]["data"]["config.yaml"].replace("/opt/cfmon/share/", f"{ROOT}/"))
    config = load_config(file, {name: value for name, value in environment.items() if name.startswith("CFMON_")})
    assert (config.mqtt.username_file, config.mqtt.password_file) == (tmp_path / "username", tmp_path / "password")
    assert config.http.token_file == tmp_path / "token"
    assert config.http.url == "https://monitor.example"
    assert list(config.http.hosts) == ["monitor.example", "10.0.0.7"]
    assert list(told).index("POD_IP") < list(told).index("CFMON_HTTP__HOSTS")  # else it would not be filled in


def test_the_pod_monitor_is_the_operators(tmp_path: Path) -> None:
    made = resources(tmp_path, EVERYTHING)
    theirs, _ = yaml.safe_load_all(OPERATOR.read_text())
    ours = made["PodMonitor"]
    assert (ours["apiVersion"], ours["metadata"]["labels"]["release"]) == (theirs["apiVersion"], "prometheus")
    pods = made["StatefulSet"]["spec"]["template"]["metadata"]
    assert ours["spec"].pop("selector")["matchLabels"].items() <= pods["labels"].items()
    assert "prometheus.io/scrape" not in pods["annotations"]  # or it would be scraped twice
    (endpoint,) = ours["spec"]["podMetricsEndpoints"]
    assert endpoint.pop("authorization") == {"credentials": {"name": "page", "key": "token"}}
    assert ours["spec"]["podMetricsEndpoints"] == theirs["spec"]["podMetricsEndpoints"]


def test_its_rules_are_ours_and_their_links_lead_where_it_is_said(tmp_path: Path) -> None:
    theirs = yaml.safe_load(RULES.read_text())
    made = resources(tmp_path, {"prometheusRule": {"enabled": True}})["PrometheusRule"]
    assert made["spec"] == theirs
    made = resources(tmp_path, EVERYTHING)["PrometheusRule"]
    assert made["metadata"]["labels"]["release"] == "prometheus"
    told, text = yaml.safe_dump(made["spec"], width=10_000), yaml.safe_dump(theirs, width=10_000)
    assert "externalLabels" not in told
    assert told.count("{{ with `https://monitor.example` }}") == text.count("{{ with $externalLabels.monitor_url }}")
    (tmp_path / "rules.yml").write_text(told)
    case = {
        "rule_files": ["rules.yml"],
        "evaluation_interval": "5s",
        "tests": [
            {
                "interval": "5s",
                "input_series": [{"series": 'cfmon_mqtt_connected{job="cfmon", instance="m"}', "values": "0x20"}],
                "alert_rule_test": [
                    {
                        "alertname": "CfmonBrokerDisconnected",
                        "eval_time": "1m",
                        "exp_alerts": [
                            {
                                "exp_labels": {"severity": "critical", "job": "cfmon", "instance": "m"},
                                "exp_annotations": {
                                    **next(
                                        {
                                            name: " ".join(words.replace("{{ $labels.instance }}", "m").split())
                                            for name, words in rule["annotations"].items()
                                        }
                                        for group in theirs["groups"]
                                        for rule in group["rules"]
                                        if rule["alert"] == "CfmonBrokerDisconnected"
                                    ),
                                    "runbook_url": "https://monitor.example/runbooks/CfmonBrokerDisconnected",
                                },
                            }
                        ],
                    }
                ],
            }
        ],
    }
    (tmp_path / "test.yml").write_text(yaml.safe_dump(case))
    if shutil.which("promtool") is None:
        pytest.skip("promtool is missing (Debian: prometheus)")
    for arguments in (("check", "rules", "--lint-fatal", "rules.yml"), ("test", "rules", "test.yml")):
        done = subprocess.run(["promtool", *arguments], cwd=tmp_path, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize(
    "wrong",
    [
        {"podmonitor": {"enabled": True}},
        {"persistence": {"size": "much"}},
        {"shards": 0},
        {"runbooks": {"baseUrl": "monitor.example"}},
        {"runbooks": {"baseUrl": "https://`x`"}},
        {"config": {"model": "m.npz"}},
        {"agent": {"containers": [{"name": "agent"}]}},
    ],
    ids=str,
)
def test_a_wrong_value_is_refused(wrong: dict[str, Any], tmp_path: Path) -> None:
    file = tmp_path / "values.yaml"
    file.write_text(yaml.safe_dump(wrong))
    done = helm("template", "one", ".", "--values", str(file))
    assert done.returncode != 0
    assert "schema" in done.stderr


def test_a_configuration_of_ones_own_and_a_store_that_forgets(tmp_path: Path) -> None:
    values = {"existingConfigMap": "mine", "persistence": {"enabled": False}, "serviceAccount": {"create": False}}
    made = resources(tmp_path, values)
    assert made.keys() == {"StatefulSet", "Service"}
    volumes = {volume["name"]: volume for volume in pod(made)["volumes"]}
    assert volumes["config"]["configMap"] == {"name": "mine"}
    assert "emptyDir" in volumes["state"]
    assert "volumeClaimTemplates" not in made["StatefulSet"]["spec"]
    assert pod(made)["serviceAccountName"] == "default"
    assert "checksum/config" not in made["StatefulSet"]["spec"]["template"]["metadata"]["annotations"]


def test_the_notes_say_what_is_still_open(tmp_path: Path) -> None:
    """`helm install` shows them, and needs a cluster: so they are rendered as the content of a ConfigMap."""
    chart = tmp_path / "chart"
    shutil.copytree(CHART, chart)
    (chart / "templates" / "NOTES.txt").rename(chart / "files" / "NOTES.txt")
    shown = '{{ dict "kind" "ConfigMap" "notes" (tpl (.Files.Get "files/NOTES.txt") .) | toYaml }}\n'
    (chart / "templates" / "notes.yaml").write_text(shown)

    def notes(*values: str) -> str:
        done = helm("template", "one", str(chart), "--show-only", "templates/notes.yaml", *values)
        assert done.returncode == 0, done.stderr
        text: str = yaml.safe_load(done.stdout)["notes"]
        return text

    for told in ("runs as a sidecar", "http.existingSecret", "runbooks.baseUrl", "podMonitor.enabled"):
        assert told in notes()
    everything = tmp_path / "everything.yaml"
    everything.write_text(yaml.safe_dump(EVERYTHING))
    settled = notes("--values", str(everything), "--set", "agent.enabled=false,restartOnConfigChange=false")
    assert "runs on its own" in settled
    assert "shards" not in settled
    assert "It has 2 shards" in notes("--set", "agent.enabled=false,shards=2")
    assert "kill -HUP 1" in settled
    for told in ("http.existingSecret", "runbooks.baseUrl", "podMonitor.enabled"):
        assert told not in settled
