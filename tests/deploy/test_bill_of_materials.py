"""`make sbom`: a valid CycloneDX document that names every package of the lock file, with its hashes.

That of an installation is looked at in test_install.py.
"""

import json
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.deploy.test_lock import ROOT, pins
from tests.tiers import slow


def fault_of(bill: str) -> object:
    """Return what is wrong with a CycloneDX 1.6 document; None if nothing is."""
    from cyclonedx.schema import SchemaVersion  # noqa: PLC0415 - takes seconds, in each process that collects tests
    from cyclonedx.validation.json import JsonStrictValidator  # noqa: PLC0415 - likewise

    return JsonStrictValidator(SchemaVersion.V1_6).validate_str(bill)


@slow
def test_every_package_of_the_lock_file_is_in_it_with_its_hashes(tmp_path: Path) -> None:
    if shutil.which("make") is None:
        pytest.skip("make is missing")
    say = ["make", "--no-print-directory", "-n", "sbom"]
    recipe = subprocess.run(say, cwd=ROOT, capture_output=True, text=True, check=True).stdout
    command = recipe[recipe.index("PYTHONWARNINGS=") :].replace("var/sbom.cdx.json", str(tmp_path / "bill.json"))
    done = subprocess.run(["sh", "-c", command], cwd=ROOT, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    text = (tmp_path / "bill.json").read_text()
    assert fault_of(text) is None
    assert fault_of(text.replace('"bomFormat"', '"format"')) is not None
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
