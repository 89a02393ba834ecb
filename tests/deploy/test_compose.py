"""The compose file: valid against the compose specification, and it agrees with what it mounts and builds."""

import runpy
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

DEPLOY = Path(__file__).parents[2] / "deploy"
VERSION: str = runpy.run_path(str(DEPLOY.parent / "monitor" / "_version.py"))["__version__"]
COMPOSE: dict[str, Any] = yaml.safe_load((DEPLOY / "compose.yaml").read_text())
SERVICES: dict[str, Any] = COMPOSE["services"]


def test_valid_against_the_compose_specification() -> None:
    command = [sys.executable, "-m", "check_jsonschema", "--builtin-schema", "vendor.compose-spec"]
    done = subprocess.run([*command, str(DEPLOY / "compose.yaml")], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("service", SERVICES)
def test_what_is_mounted_from_the_repository_exists_and_is_read_only(service: str) -> None:
    for volume in SERVICES[service].get("volumes", []):
        source, _target, *mode = volume.split(":")
        if source.startswith("."):
            assert (DEPLOY / source).exists(), source
            assert mode == ["ro"]
        else:
            assert source in COMPOSE["volumes"]


@pytest.mark.parametrize("service", SERVICES)
def test_confined_and_published_on_loopback_only(service: str) -> None:
    assert SERVICES[service]["read_only"] is True
    assert SERVICES[service]["cap_drop"] == ["ALL"]
    assert all(port.startswith("127.0.0.1:") for port in SERVICES[service].get("ports", []))


def test_image_is_the_containerfile_of_this_version() -> None:
    build = SERVICES["cfmon"]["build"]
    context = DEPLOY / build["context"]
    assert (context / build["dockerfile"]).samefile(DEPLOY / "Containerfile")
    for service in ("cfmon", "agent"):
        assert SERVICES[service]["image"] == f"counterfactual-monitor:{VERSION}"


def test_prometheus_scrapes_the_service_under_its_name_and_port() -> None:
    config = yaml.safe_load((DEPLOY / "prometheus" / "prometheus.yml").read_text())
    (job,) = config["scrape_configs"]
    (target,) = job["static_configs"][0]["targets"]
    name, port = target.split(":")
    assert SERVICES[name]["ports"] == [f"127.0.0.1:{port}:{port}"]
