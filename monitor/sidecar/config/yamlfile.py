"""The one door by which a configuration file comes in; what may stand in it is told in `monitor.yamltext`."""

from __future__ import annotations

from pathlib import Path

from monitor.errors import ConfigError
from monitor.yamltext import MAX_BYTES, Location, YamlFile, dotted, parse_yaml

__all__ = ["Location", "YamlFile", "dotted", "read_yaml"]


def read_yaml(path: Path) -> YamlFile:
    """Read `path`; every failure is a ConfigError that names the file and, where it can, the line."""
    try:
        with path.open("rb") as file:
            content = file.read(MAX_BYTES + 1)
    except OSError as error:
        raise ConfigError(f"{path}: cannot be read: {error.strerror or error}") from error
    return parse_yaml(content, path.name)
