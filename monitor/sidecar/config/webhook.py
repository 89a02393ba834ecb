"""Settings of one webhook."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field, SecretStr, model_validator

from monitor.sidecar.config.derived import Section
from monitor.sidecar.config.fields import Duration, Name
from monitor.sidecar.webhooks.target import parse_target


class WebhookConfig(Section):
    """A receiver of alerts over HTTP: each change of an alarm is posted to it as a CloudEvent.

    Posts about an agent are sent in order. Each is repeated until the receiver answers with a status from 200 to 299;
    if the receiver refuses it and accepts others, it is set aside. The URL may be a secret, so only scheme and host are
    printed. Files are read again at each attempt.
    """

    url: SecretStr | None = None
    """Where to post: `https://host/path`; `http://` on loopback only, or with `plain`."""
    url_file: Path | None = None
    """A file that holds it, on one line."""
    plain: bool = False
    """Allow `http://` beyond loopback: everyone on the way can read and change alerts."""
    secret_file: Path | None = None
    """A file with the secret that signs each post, `whsec_` and base64; two, separated by a space, while one replaces
    the other. Not signed if absent.
    """
    ca: Path | None = None
    """PEM file of the authorities that may sign the receiver's certificate; those of the system if absent."""
    severities: Annotated[tuple[Name, ...], Field(min_length=1, max_length=100)] | None = None
    """Severities of the alarms to post; all if absent."""
    revisions: bool = True
    """Post each new revision of a firing alarm too; `false`: only that it fires and how it closes."""
    content_type: Literal["application/cloudevents+json", "application/json"] = "application/cloudevents+json"
    """Content type of a post; the second for receivers that refuse the first, such as chat tools."""
    timeout: Duration = 10.0
    """How long one attempt may take."""
    give_up: Duration = 86400.0
    """A post is dropped if an attempt fails this long after the change of the alarm."""

    @model_validator(mode="after")
    def _consistent(self) -> WebhookConfig:
        if (self.url is None) == (self.url_file is None):
            raise ValueError("give one of url and url_file")
        if self.url is not None:
            try:
                target = parse_target(self.url.get_secret_value(), plain=self.plain)
            except ValueError as error:
                raise ValueError(f"url {error}") from None
            if self.ca is not None and not target.encrypted:
                raise ValueError("ca is for TLS: write https:// in the url")
        return self

    @property
    def address(self) -> str | None:
        """Scheme and host of `url`; None if it is in a file."""
        return None if self.url is None else parse_target(self.url.get_secret_value(), plain=self.plain).address
