"""What says who and what this is: the package's metadata, the citation, the issue templates."""

from __future__ import annotations

import tomllib
from pathlib import Path

import yaml

from monitor import __version__

ROOT = Path(__file__).parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]


def test_the_package_says_what_it_is() -> None:
    kinds = PROJECT["classifiers"]
    assert len(set(kinds)) == len(kinds)
    assert all(" :: " in kind for kind in kinds)
    floor = PROJECT["requires-python"].removeprefix(">=")
    assert f"Programming Language :: Python :: {floor}" in kinds
    assert all(url.startswith("https://") for url in PROJECT["urls"].values())


def test_extras_hold_what_their_users_import() -> None:
    extras = PROJECT["optional-dependencies"]
    assert any(need.startswith("pytest") for need in extras["bench"])  # the peers' checks import it
    assert "counterfactual-monitor[models,png]" in extras["demo"]  # the demo tells people to explain and to convert


def test_the_citation_is_of_this_version() -> None:
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text())
    assert (citation["version"], citation["license"]) == (__version__, PROJECT["license"])
    assert citation["cff-version"] == "1.2.0"
    assert {"title", "message", "authors"} <= citation.keys()


def test_issue_templates_are_forms() -> None:
    for form in (ROOT / ".github" / "ISSUE_TEMPLATE").glob("*.yml"):
        told = yaml.safe_load(form.read_text())
        if form.stem != "config":
            assert {"name", "description", "body"} <= told.keys()
            ids = [field["id"] for field in told["body"] if field["type"] != "markdown"]
            assert len(set(ids)) == len(ids) > 0


def test_whoever_finds_a_weakness_is_told_where_to_go() -> None:
    assert "privately" in (ROOT / "SECURITY.md").read_text()
    assert (ROOT / "docs" / "security.md").is_file()


def test_no_shipped_configuration_leads_nowhere() -> None:
    for file in (ROOT / "config").glob("*.yaml"):
        assert "example.org" not in file.read_text()
