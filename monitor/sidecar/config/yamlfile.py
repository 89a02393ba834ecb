"""Read a YAML file from disk; `monitor.yamltext` defines the permitted subset."""

from __future__ import annotations

from pathlib import Path

from monitor.errors import ConfigError
from monitor.yamltext import MAX_BYTES, Location, YamlFile, dotted, parse_yaml

__all__ = ["Location", "YamlFile", "dotted", "read_yaml"]


def read_yaml(path: Path) -> YamlFile:
    """Read `path`. Raises ConfigError, which names the file and, if known, the line."""
    try:
        with path.open("rb") as file:
            content = file.read(MAX_BYTES + 1)
    except OSError as error:
        raise ConfigError(f"{path}: cannot be read: {error.strerror or error}") from error
    return parse_yaml(content, path.name)
