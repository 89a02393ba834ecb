"""Address, secrets and certificates for one attempt. The files are read at each attempt."""

from __future__ import annotations

import ssl
from dataclasses import dataclass

from monitor.errors import ConfigError
from monitor.sidecar.config.webhook import WebhookConfig
from monitor.sidecar.mqtt.broker import Tls, read_secret
from monitor.sidecar.mqtt.tls import make_context
from monitor.sidecar.webhooks.signature import parse_secrets
from monitor.sidecar.webhooks.target import Target, parse_target


@dataclass(frozen=True)
class Endpoint:
    """Address to post to, secrets for signing, and TLS context; `context`: None for plain HTTP."""

    target: Target
    secrets: tuple[bytes, ...]
    context: ssl.SSLContext | None


def read_endpoint(name: str, config: WebhookConfig) -> Endpoint:
    """Return the endpoint of the webhook `name`, with the current content of its files.

    Raises ConfigError, beginning with the key of the setting, if a file is unusable. The error repeats no content.
    """
    section = f"webhooks.{name}"
    target = _target(section, config)
    secrets: tuple[bytes, ...] = ()
    if config.secret_file is not None:
        key = f"{section}.secret_file"
        try:
            secrets = parse_secrets(read_secret(config.secret_file, key))
        except ValueError as error:
            raise ConfigError(f"{key}: {config.secret_file} {error}") from None
    context = make_context(Tls(config.ca), section) if target.encrypted else None
    return Endpoint(target, secrets, context)


def _target(section: str, config: WebhookConfig) -> Target:
    if config.url is not None:
        return parse_target(config.url.get_secret_value(), plain=config.plain)
    assert config.url_file is not None, "one of the two is given"
    key = f"{section}.url_file"
    try:
        return parse_target(read_secret(config.url_file, key), plain=config.plain)
    except ValueError as error:
        raise ConfigError(f"{key}: the URL in {config.url_file} {error}") from None
