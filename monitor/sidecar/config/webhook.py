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

    Posts about one agent are sent in order. A post is repeated until the receiver answers with a status from 200 to
    299. If the receiver refuses a post but accepts others, the refused post is set aside. The URL may be a secret, so
    only its scheme and host are printed. The files are read again at each attempt.
    """

    url: SecretStr | None = None
    """Address of the receiver, `https://host/path`. `http://` is allowed on loopback, and with `plain`."""
    url_file: Path | None = None
    """A file that contains the URL, on one line."""
    plain: bool = False
    """Allow `http://` beyond loopback. Everyone on the network path can then read and change alerts."""
    secret_file: Path | None = None
    """A file that contains the secret that signs each post: `whsec_` followed by base64. While a secret is being
    replaced, the file contains the old and the new secret, separated by a space. If absent, posts are not signed.
    """
    ca: Path | None = None
    """PEM file of the authorities that may sign the receiver's certificate; if absent, the system's authorities."""
    severities: Annotated[tuple[Name, ...], Field(min_length=1, max_length=100)] | None = None
    """Severities of the alarms to post; if absent, all alarms are posted."""
    revisions: bool = True
    """Also post each new revision of a firing alarm. With `false`, only the start and the end are posted."""
    content_type: Literal["application/cloudevents+json", "application/json"] = "application/cloudevents+json"
    """Content type of a post. Use `application/json` for receivers that refuse the default, such as chat tools."""
    timeout: Duration = 10.0
    """How long one attempt may take."""
    give_up: Duration = 86400.0
    """A post is dropped if an attempt fails and the alarm changed longer ago than this."""

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
        """Scheme and host of `url`; None if the URL is in a file."""
        return None if self.url is None else parse_target(self.url.get_secret_value(), plain=self.plain).address
