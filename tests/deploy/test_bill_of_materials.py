"""`make sbom`: a valid CycloneDX document that names every package of the lock file, with its hashes.

That of an installation is looked at in test_install.py.
"""

import json
import shutil
import subprocess
from pathlib import Path

import pytest
from cyclonedx.schema import SchemaVersion
from cyclonedx.validation.json import JsonStrictValidator

from tests.deploy.test_lock import ROOT, pins


def test_every_package_of_the_lock_file_is_in_it_with_its_hashes(tmp_path: Path) -> None:
    if shutil.which("make") is None:
        pytest.skip("make is missing")
    say = ["make", "--no-print-directory", "-n", "sbom"]
    recipe = subprocess.run(say, cwd=ROOT, capture_output=True, text=True, check=True).stdout
    command = recipe[recipe.index("PYTHONWARNINGS=") :].replace("var/sbom.cdx.json", str(tmp_path / "bill.json"))
    done = subprocess.run(["sh", "-c", command], cwd=ROOT, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    text = (tmp_path / "bill.json").read_text()
    validator = JsonStrictValidator(SchemaVersion.V1_6)
    assert validator.validate_str(text) is None
    assert validator.validate_str(text.replace('"bomFormat"', '"format"')) is not None
    bill = json.loads(text)
    assert bill["metadata"]["component"]["name"] == "counterfactual-monitor"
    told = {
        (component["name"], component["version"]): {
            f"sha256:{digest['content']}"
            for reference in component["externalReferences"]
            for digest in reference.get("hashes", [])
        }
        for component in bill["components"]
    }
    assert told == {(pin.name, str(pin.version)): set(pin.hashes) for pin in pins("requirements.lock")}
