"""URLs: what of them may be shown, and paths that remember what may not."""

import os
import re
from typing import Any, NamedTuple, Self
from urllib.parse import parse_qsl, unquote, urlencode

from corgipile.errors import BadArgument
from corgipile.sizes import Size

__all__ = ["GLOB", "Parts", "RemotePath", "is_url", "local_path", "parts_of", "redacted", "secret"]

GLOB = re.compile(r"[*?[]")
_URL = re.compile(r"([A-Za-z][A-Za-z0-9+.-]+)://")
_SECRET = re.compile(r"sig|token|key|secret|passw|credential|policy|auth|security|expires|^s[epv]$", re.IGNORECASE)
_SAME = {"s3a": "s3", "s3n": "s3", "gcs": "gs", "azure": "az"}


class Parts(NamedTuple):
    """A URL taken apart.

    Attributes:
        scheme: Such as ``s3``.
        place: What comes before the first slash: a bucket, or a host with its port; without user and password.
        key: What comes after it.
        query: What comes after a question mark, in URLs of the web.
        user: User and password, if there are any.
    """

    scheme: str
    place: str
    key: str
    query: str = ""
    user: str = ""

    @property
    def web(self) -> bool:
        """Say whether a web server is asked."""
        return self.scheme in ("http", "https")


def is_url(path: object) -> bool:
    """Say whether a path is a URL.

    Example:
        >>> is_url("s3://bucket/a.parquet"), is_url("/data/a.parquet")
        (True, False)
    """
    return isinstance(path, str | os.PathLike) and _URL.match(str(os.fspath(path))) is not None


def parts_of(url: str) -> Parts:
    """Take a URL apart.

    Raises:
        BadArgument: It is none.

    Example:
        >>> parts_of("https://me:pw@host/a/b.csv?sig=x")
        Parts(scheme='https', place='host', key='a/b.csv', query='sig=x', user='me:pw')
    """
    found = _URL.match(url)
    if found is None:
        raise BadArgument(f"{url!r} is no URL: s3://BUCKET/KEY, gs://, az://, https:// or file:// is right")
    scheme = found[1].lower()
    scheme = _SAME.get(scheme, scheme)
    place, _, key = url[found.end() :].partition("/")
    query = ""
    if scheme in ("http", "https"):
        key, _, query = key.partition("#")[0].partition("?")
        if "?" in place:
            place, _, query = place.partition("?")
    user, at, host = place.rpartition("@")
    return Parts(scheme, host if at else place, key, query, user)


def redacted(url: str) -> str:
    """Return a URL that may be shown: without user, password, and those parameters of a query that may be secret.

    Example:
        >>> redacted("https://me:pw@host/a.csv?version=2&X-Amz-Signature=0f3a")
        'https://host/a.csv?version=2'
        >>> redacted("s3://AKIA:secret@bucket/a.csv")
        's3://bucket/a.csv'
    """
    parts = parts_of(url)
    if parts.scheme in ("abfs", "abfss") and "@" in url:  # CONTAINER@ACCOUNT, no user
        return url.partition("?")[0]
    shown = urlencode([(name, value) for name, value in _pairs(parts.query) if not secret(name)])
    return f"{parts.scheme}://{parts.place}/{parts.key}" + (f"?{shown}" if shown else "")


def _pairs(query: str) -> list[tuple[str, str]]:
    return parse_qsl(query, keep_blank_values=True)


def secret(name: str) -> bool:
    """Say whether what has such a name may be secret.

    Example:
        >>> secret("X-Amz-Signature"), secret("version")
        (True, False)
    """
    return _SECRET.search(name) is not None


def has_secret(url: str) -> bool:
    """Say whether a URL holds what `redacted` leaves out."""
    parts = parts_of(url)
    inside = parts.scheme not in ("abfs", "abfss") and parts.user
    return bool(inside) or any(secret(name) for name, _ in _pairs(parts.query))


def local_path(url: str) -> str | None:
    """Return the path of a ``file://`` URL, None for others.

    Raises:
        BadArgument: It names another host.

    Example:
        >>> local_path("file:///data/a%20b.csv"), local_path("s3://bucket/a.csv")
        ('/data/a b.csv', None)
    """
    parts = parts_of(url)
    if parts.scheme != "file":
        return None
    if parts.place not in ("", "localhost"):
        raise BadArgument(f"{url!r} names the host {parts.place!r}; file:///{parts.key} is a file of this machine")
    return "/" + unquote(parts.key)


class RemotePath(str):
    """The URL of an object, as it may be shown; what is needed to read it goes along, secrets within this process only.

    Args:
        url: The URL, which may hold secrets.
        system: What reads it, an obstore store or a file system of fsspec; None: what its scheme says.
        cache: Folder of the cache on disk, and its bytes; None: there is none.

    Example:
        >>> path = RemotePath("https://host/a.csv?sig=x")
        >>> path, path.full
        ('https://host/a.csv', 'https://host/a.csv?sig=x')
    """

    __slots__ = ("_locked", "_url", "cache", "system")
    cache: tuple[str, Size | None] | None
    system: Any
    _url: str
    _locked: bool

    def __new__(cls, url: str, *, system: Any = None, cache: tuple[str, Size | None] | None = None) -> Self:
        """Make the path that may be shown."""
        if isinstance(url, RemotePath):
            system, cache, url = system or url.system, cache or url.cache, url.full
        made = super().__new__(cls, redacted(url))
        made._url, made.system, made.cache, made._locked = url, system, cache, False
        return made

    @property
    def full(self) -> str:
        """Return the URL as it was given.

        Raises:
            BadArgument: It was given to another process, which kept its secrets.
        """
        if self._locked:
            raise BadArgument(
                f"{self} was opened in another process by a signed URL, or one with a password, which is not carried "
                "along: open the table in this process, or give credentials by the environment"
            )
        return self._url

    def beside(self, url: str) -> "RemotePath":
        """Return the path of another object that is read as this one is."""
        return RemotePath(url, system=self.system, cache=self.cache)

    def __reduce__(self) -> tuple[Any, ...]:
        if self.system is not None and _has_secrets(self.system):
            raise BadArgument(
                f"{self} is read by a {type(self.system).__name__} that was given secrets, which are not carried to "
                "another process: give credentials by the environment, or open the table in that process"
            )
        return _unpickled, (str(self), self.system, self.cache, self._locked or has_secret(self._url))


def _has_secrets(system: Any) -> bool:
    """Say whether a store of obstore, or a file system of fsspec, was given secrets."""
    settings = {**(getattr(system, "config", None) or {}), **(getattr(system, "storage_options", None) or {})}
    given = [name for name, value in settings.items() if value and _SECRET.search(name)]
    return bool(given) or getattr(system, "credential_provider", None) is not None


def _unpickled(
    shown: str, system: Any, cache: tuple[str, Size | None] | None, locked: bool
) -> RemotePath:  # by position
    made = RemotePath(shown, system=system, cache=cache)
    made._locked = locked  # noqa: SLF001 - its own
    return made
