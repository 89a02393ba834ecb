"""Base of the sections of a configuration: unknown keys are errors, and no error repeats a value."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict

from monitor.sidecar.config.derived import describe


class Section(BaseModel):
    """A section of the configuration; the text below a field documents it."""

    model_config = ConfigDict(
        extra="forbid",
        frozen=True,
        populate_by_name=False,
        hide_input_in_errors=True,
        strict=False,
        json_schema_extra=describe,
    )
