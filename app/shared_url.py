"""Addresses of the shared store: checked, shown without their password. Knows no database."""

from __future__ import annotations

from urllib.parse import SplitResult, urlsplit

from app.errors import SharedAddressError

HIDDEN = "***"
_SCHEMES = ("postgresql", "postgres")


def checked(url: str) -> str:
    """Return an address in the form libpq takes, password included.

    Raises: SharedAddressError.
    """
    parts = _split(url)
    if parts.scheme not in _SCHEMES or not parts.path.strip("/"):
        raise SharedAddressError(
            "The address must read postgresql://user:password@host/database.", detail=masked(url)
        )
    return _join(parts._replace(scheme=_SCHEMES[0]))


def masked(url: str) -> str:
    """Return an address as it may be shown and logged; one that makes no sense is not shown."""
    try:
        parts = _split(url)
    except SharedAddressError:
        return HIDDEN
    if not url or parts.scheme not in _SCHEMES:
        return HIDDEN if url else ""
    query = "&".join(_masked_parameter(item) for item in parts.query.split("&"))
    return _join(parts._replace(netloc=_with_password(parts, HIDDEN), query=query))


def unmasked(typed: str, known: str) -> str:
    """Return what was typed, with the password known so far where the hidden one was left."""
    if typed == masked(known):
        return known
    try:
        parts, before = _split(typed), _split(known)
    except SharedAddressError:
        return typed
    password = _password(before)
    # A password goes only to the server it was given for.
    is_same_host = _host(parts) == _host(before)
    if _password(parts) != HIDDEN or password is None or not is_same_host:
        return typed
    return _join(parts._replace(netloc=_with_password(parts, password)))


def _split(url: str) -> SplitResult:
    try:
        return urlsplit(url.strip())
    except ValueError as error:
        raise SharedAddressError("This address makes no sense.", detail=HIDDEN) from error


def _join(parts: SplitResult) -> str:
    # urlunsplit() drops the slashes before an empty host: a socket, named by a parameter.
    query = f"?{parts.query}" if parts.query else ""
    return f"{parts.scheme}://{parts.netloc}{parts.path}{query}"


def _password(parts: SplitResult) -> str | None:
    user, _, _ = parts.netloc.rpartition("@")
    _, separator, password = user.partition(":")
    return password if separator else None


def _host(parts: SplitResult) -> str:
    return parts.netloc.rpartition("@")[2]


def _with_password(parts: SplitResult, password: str) -> str:
    user, at, host = parts.netloc.rpartition("@")
    name, separator, _ = user.partition(":")
    return f"{name}:{password}{at}{host}" if separator else parts.netloc


def _masked_parameter(item: str) -> str:
    name, _, _ = item.partition("=")
    return f"{name}={HIDDEN}" if "password" in name.lower() else item
