"""What every format of models promises (`monitor.model.formats`): a new one is checked once it is in `FORMATS`.

That changed bytes bring nothing but ModelError is checked for every reader in `tests/fuzz`.
"""

from __future__ import annotations

import os
import re
import warnings
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from monitor.errors import ModelError, ModelWarning
from monitor.model import load_model, save_model
from monitor.model.formats import FORMATS, OPTIONAL, Format, written_forms
from monitor.model.npz import MAX_UNPACKED_BYTES
from tests.model.verification_models import carrying, random_model, same

every = pytest.mark.parametrize("form", FORMATS, ids=lambda form: form.shown)
files = pytest.mark.parametrize("form", [form for form in FORMATS if form.suffix], ids=lambda form: form.suffix)
written = pytest.mark.parametrize("form", [form for form in FORMATS if form.writer], ids=lambda form: form.suffix)


@every
def test_it_has_a_suffix_or_a_scheme_and_a_reader_that_explains_what_is_no_model(form: Format) -> None:
    assert bool(form.suffix) != bool(form.scheme)
    with pytest.raises(ModelError, match="model nothing: "):
        form.read(*([] if form.scheme else [{form.suffix: b""}]), "nothing")


@files
def test_a_file_too_large_or_absent_is_not_read(form: Format, tmp_path: Path) -> None:
    file = tmp_path / f"m{form.suffix}"
    for source in (file, f"a\0b{form.suffix}"):
        with pytest.raises(ModelError, match="cannot be read"):
            load_model(source)
    file.touch()
    os.truncate(file, MAX_UNPACKED_BYTES + 1)
    with pytest.raises(ModelError, match="larger than the limit"):
        load_model(file)


@files
def test_it_is_written_whole_or_not_at_all(form: Format, tmp_path: Path) -> None:
    file = tmp_path / "no" / f"m{form.suffix}"
    with pytest.raises(ModelError, match="cannot be written" if form.writer else re.escape(f"write {written_forms()}")):
        save_model(random_model(1, everywhere=True), file)
    assert not file.parent.exists()


@written
@pytest.mark.parametrize("seed", range(20))
def test_what_is_written_is_read_back_to_the_bit(form: Format, seed: int, tmp_path: Path) -> None:
    plain = random_model(seed, everywhere="action_order" not in form.keeps, by_successor=seed % 2 == 0)
    named = replace(plain, action_names=tuple(f"turn-{a}" for a in range(plain.actions)))
    for place, model in enumerate((plain, named, carrying(named, form, kept=True))):
        file = tmp_path / f"m{place}{form.suffix}"
        save_model(model, file)
        read = load_model(file)
        same(model, read)
        assert read.source == str(file)


@pytest.mark.parametrize("form", [form for form in FORMATS if form.writer and len(form.keeps) < len(OPTIONAL)])
def test_what_it_does_not_keep_is_listed(form: Format, tmp_path: Path) -> None:
    file, rich = tmp_path / f"m{form.suffix}", carrying(random_model(1, everywhere=True), form, kept=False)
    lost = [shown for name, shown in OPTIONAL.items() if name not in (*form.keeps, "action_order", "counts")]
    with pytest.warns(ModelWarning, match=re.escape(f"{form.suffix} cannot hold: {', '.join(lost)}")):
        save_model(rich, file)
    read = load_model(file)
    if "distribution" not in form.keeps:
        assert read.initial is None
        assert np.flatnonzero(read.labels["init"]).tolist() == [0, 1]


@written
def test_equal_models_give_equal_files(form: Format) -> None:
    with warnings.catch_warnings(action="ignore"):
        one, other = (form.write(random_model(3)) for _ in range(2))
    assert one == other
