"""TLS context, with certificates reread for each connection, and explanations of failed handshakes.

There is no option to disable verification, because without verification encryption does not protect.
"""

from __future__ import annotations

import ssl
from pathlib import Path

from monitor.errors import ConfigError
from monitor.sidecar.mqtt.broker import Tls

_MEANINGS = {
    "WRONG_VERSION_NUMBER": "it does not speak TLS on this port; use its TLS listener (usually 8883), or mqtt://",
    "TLSV13_ALERT_CERTIFICATE_REQUIRED": "it requires a client certificate: set mqtt.certificate and mqtt.key",
    "SSLV3_ALERT_CERTIFICATE_EXPIRED": "it reports that our certificate has expired: renew mqtt.certificate",
    "SSLV3_ALERT_CERTIFICATE_REVOKED": "it reports that our certificate was revoked: renew mqtt.certificate",
    "SSLV3_ALERT_BAD_CERTIFICATE": "it does not accept our certificate: check mqtt.certificate",
    "TLSV1_ALERT_UNKNOWN_CA": "it does not trust the CA of our certificate: check mqtt.certificate",
    "SSLV3_ALERT_HANDSHAKE_FAILURE": "it refuses the handshake; it may require a client certificate: see "
    "mqtt.certificate and mqtt.key",
    "TLSV1_ALERT_PROTOCOL_VERSION": "it does not support TLS 1.2 or later",
    "UNSUPPORTED_PROTOCOL": "it does not support TLS 1.2 or later",
}
"""OpenSSL's reason -> explanation and remedy."""


def make_context(tls: Tls, section: str = "mqtt") -> ssl.SSLContext:
    """Return a context for TLS 1.2+ that verifies certificate and host name.

    Raises ConfigError if a file is unusable. `section`: section of the settings that name the files.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)  # verifies, and ignores SSLKEYLOGFILE
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.options |= ssl.OP_NO_RENEGOTIATION
    if tls.ca is None:
        context.load_default_certs()
    else:
        _load_ca(context, tls.ca, f"{section}.ca")
    if tls.certificate is not None:
        _load_own(context, tls.certificate, tls.key)
    return context


def explain(error: OSError) -> str:
    """Return the reason why a connection ended or failed, for one line of the log."""
    match error:
        case ssl.SSLCertVerificationError():
            return f"its certificate is not accepted: {error.verify_message.rstrip('.')}"
        case ssl.SSLError():
            reason = getattr(error, "reason", None) or str(error)
            return _MEANINGS.get(reason, f"TLS failed ({reason})")
        case _:
            return error.strerror or str(error)


def _load_ca(context: ssl.SSLContext, path: Path, key: str) -> None:
    try:
        context.load_verify_locations(path)
    except ssl.SSLError:
        raise ConfigError(f"{key}: {path} contains no PEM certificates") from None
    except OSError as error:
        raise ConfigError(f"{key}: {path} cannot be read: {error.strerror}") from error


def _load_own(context: ssl.SSLContext, certificate: Path, key: Path | None) -> None:
    for path, name in ((certificate, "mqtt.certificate"), (key, "mqtt.key")):
        if path is not None:
            _check_readable(path, name)
    try:
        context.load_cert_chain(certificate, key, password=_no_password)
    except ssl.SSLError as error:
        mismatch = error.reason == "KEY_VALUES_MISMATCH"
        problem = "do not match" if mismatch else "are not a certificate and key in PEM, or the key is encrypted"
        raise ConfigError(f"mqtt.certificate: {certificate} and {key or 'the key in it'} {problem}") from None
    except OSError as error:
        raise ConfigError(f"mqtt.certificate: {certificate} cannot be read: {error.strerror}") from error


def _check_readable(path: Path, name: str) -> None:
    """Raise ConfigError with the name of an unreadable file, because OpenSSL does not name it."""
    try:
        path.open("rb").close()
    except OSError as error:
        raise ConfigError(f"{name}: {path} cannot be read: {error.strerror}") from error


def _no_password() -> str:
    """Return an empty password. Otherwise OpenSSL would prompt on the terminal, and the sidecar would hang."""
    return ""
