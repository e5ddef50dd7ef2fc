"""URLs: redaction of secrets, and paths that keep secrets out of messages."""

import hashlib
import os
import re
from typing import Any, NamedTuple, Self
from urllib.parse import parse_qsl, unquote, urlencode

from corgipile.errors import BadArgument
from corgipile.sizes import Size

__all__ = [
    "GLOB", "Parts", "RemotePath", "is_url", "local_path", "parts_of", "redacted", "redacted_in", "scrubbed", "secret",
]  # fmt: skip

GLOB = re.compile(r"[*?[]")
_URL = re.compile(r"([A-Za-z][A-Za-z0-9+.-]+)://")
_SECRET = re.compile(
    r"sig|token|key|secret|pass|pwd|psk|pin$|cred|policy|auth|security|expires|jwt|hmac|session|ticket|cookie|bearer|sas|"
    r"(?<![a-z])(code|api|sp|se|st|sv|sr)(?![a-z])",
    re.IGNORECASE,
)
_HARMLESS = {"versionid", "version", "generation", "snapshot", "revision"}  # query parameters without secrets
_PLAIN = {  # settings of a store without secrets
    "account_name", "anon", "bucket", "cache_type", "container_name", "endpoint", "endpoint_url", "host", "location",
    "project", "protocol", "region", "repo_id", "repo_type", "revision", "skip_signature", "target_protocol", "url",
}  # fmt: skip
_PLAIN_WORDS = {"host", "hostaddr", "port", "dbname", "user", "sslmode", "connect_timeout"}
_WORD = re.compile(r"(\w+)(\s*=\s*)('(?:[^'\\]|\\.)*'|\S+)")  # of a connection string of PostgreSQL
_ANY = re.compile(r"[A-Za-z][A-Za-z0-9+.-]+://[^\s'\"]+")
_QUERY = re.compile(r"\?([\w.~%-]+=.*)", re.DOTALL)  # of a URL whose keys may contain question marks
_SAME = {"s3a": "s3", "s3n": "s3", "gcs": "gs", "azure": "az"}


class Parts(NamedTuple):
    """The parts of a URL.

    Attributes:
        scheme: The scheme, such as ``s3``.
        place: The part before the first slash: a bucket, or a host with its port; without user and password.
        key: The part after it.
        query: The part after a question mark, in web URLs.
        user: User and password, if present.
    """

    scheme: str
    place: str
    key: str
    query: str = ""
    user: str = ""

    @property
    def web(self) -> bool:
        """Return whether the URL is of a web server."""
        return self.scheme in ("http", "https")


def is_url(path: object) -> bool:
    """Return whether a path is a URL.

    Example:
        >>> is_url("s3://bucket/a.parquet"), is_url("/data/a.parquet")
        (True, False)
    """
    return isinstance(path, str | os.PathLike) and _URL.match(str(os.fspath(path))) is not None


def parts_of(url: str) -> Parts:
    """Split a URL into its parts.

    Raises:
        BadArgument: It is not a URL.

    Example:
        >>> parts_of("https://me:pw@host/a/b.csv?sig=x")
        Parts(scheme='https', place='host', key='a/b.csv', query='sig=x', user='me:pw')
    """
    found = _URL.match(url)
    if found is None:
        raise BadArgument(f"{url!r} must be a URL: s3://BUCKET/KEY, gs://, az://, https:// or file://")
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
    """Return a URL without user, password, and query parameters other than versions.

    Connection strings of PostgreSQL keep only host, port, database and user.

    Example:
        >>> redacted("https://me:pw@host/a.csv?version=2&X-Amz-Signature=0f3a")
        'https://host/a.csv?version=2'
        >>> redacted("s3://AKIA:secret@bucket/a.csv")
        's3://bucket/a.csv'
        >>> redacted("host=here password=x")
        'host=here password=***'
    """
    if not is_url(url) and "=" in url:
        return _WORD.sub(lambda one: one[0] if one[1].lower() in _PLAIN_WORDS else f"{one[1]}{one[2]}***", url)
    parts, query = parts_of(url), _query(url)
    if parts.scheme in ("abfs", "abfss") and "@" in url:  # CONTAINER@ACCOUNT, not a user
        return url.partition("?")[0]
    place, key = parts.place, _QUERY.sub("", parts.key)
    if re.search(r":[^\]\d][^\]]*$", place):  # not a port, but a password with a slash
        place, _, key = f"{place}/{key}".rpartition("@")[2].partition("/")
    shown = urlencode([(name, value) for name, value in query if name.lower() in _HARMLESS])
    return f"{parts.scheme}://{place}/{key}" + (f"?{shown}" if shown else "")


def redacted_in(text: str) -> str:
    """Return a text with its URLs redacted.

    Example:
        >>> redacted_in("no answer of 'https://host/a?jwt=x'")
        "no answer of 'https://host/a'"
    """
    return _ANY.sub(lambda found: redacted(found[0]), text)


def scrubbed(text: str, url: str) -> str:
    """Return a library's message about a URL, without the parts that `redacted` removes.

    Example:
        >>> scrubbed('bad token: "pw%"', "postgresql://me:pw%@host/db")
        'bad token: "***"'
    """
    shown, user = redacted(url), parts_of(url).user.partition(":")[0] if is_url(url) else ""
    return re.sub(
        r"""(["'])(.+?)\1""",
        lambda one: f"{one[1]}***{one[1]}" if one[2] in url and one[2] not in shown and one[2] != user else one[0],
        text,
    )


def _query(url: str) -> list[tuple[str, str]]:
    parts = parts_of(url)
    found = _QUERY.search(parts.key)
    return parse_qsl(parts.query or (found[1] if found else ""), keep_blank_values=True)


def secret(name: str) -> bool:
    """Return whether a parameter with this name may be secret.

    Example:
        >>> secret("X-Amz-Signature"), secret("version")
        (True, False)
    """
    return _SECRET.search(name) is not None


def has_secret(url: str) -> bool:
    """Return whether a URL contains secrets that `redacted` removes."""
    parts = parts_of(url)
    inside = parts.scheme not in ("abfs", "abfss") and parts.user
    return bool(inside) or any(name.lower() not in _HARMLESS for name, _ in _query(url))


def _identity(shown: str, url: str) -> str:
    """Return an object's identity, which includes query parameters except renewed signatures."""
    identifying = [pair for pair in _query(url) if pair[0].lower() not in _HARMLESS and not secret(pair[0])]
    return (
        f"{shown} {hashlib.blake2b(repr(identifying).encode(), digest_size=16).hexdigest()}" if identifying else shown
    )


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
        shown = redacted(url)
        here = f"file:///{parts_of(shown).key}"
        raise BadArgument(f"{shown!r} must not name another host, got {parts.place!r}; {here} is a local file")
    return "/" + unquote(parts.key)


class RemotePath(str):
    """The redacted URL of an object, with everything needed to read it; secrets stay within this process.

    Args:
        url: The URL, which may contain secrets.
        system: The obstore store or fsspec file system that reads it; None: chosen by scheme.
        cache: Folder of the cache on disk, and its bytes; None: no cache.

    Attributes:
        identity: Distinguishes objects whose redacted URLs are equal; for digests, never shown.

    Example:
        >>> path = RemotePath("https://host/a.csv?sig=x")
        >>> path, path.full
        ('https://host/a.csv', 'https://host/a.csv?sig=x')
    """

    __slots__ = ("_locked", "_url", "cache", "identity", "system")
    cache: tuple[str, Size | None] | None
    identity: str
    system: Any
    _url: str
    _locked: bool

    def __new__(cls, url: str, *, system: Any = None, cache: tuple[str, Size | None] | None = None) -> Self:
        """Create the redacted path."""
        if isinstance(url, RemotePath):
            system, cache, url = system or url.system, cache or url.cache, url.full
        path = super().__new__(cls, redacted(url))
        path.identity = _identity(str(path), url)
        path._url, path.system, path.cache, path._locked = url, system, cache, False
        return path

    @property
    def full(self) -> str:
        """Return the original URL.

        Raises:
            BadArgument: It belongs to another process, which keeps its secrets.
        """
        if self._locked:
            raise BadArgument(
                f"{self} was opened in another process by a URL with a query or a password, which are not passed on: "
                "open the table in this process, or set credentials in the environment"
            )
        return self._url

    def sibling(self, url: str) -> "RemotePath":
        """Return the path of another object that is read like this one."""
        return RemotePath(url, system=self.system, cache=self.cache)

    def __reduce__(self) -> tuple[Any, ...]:
        if self.system is not None and _has_secrets(self.system):
            raise BadArgument(
                f"{self} is read by a {type(self.system).__name__} with secrets, which are not passed to "
                "another process: set credentials in the environment, or open the table in that process"
            )
        locked = self._locked or has_secret(self._url)
        return _unpickled, (str(self), self.system, self.cache, locked, self.identity)


def _has_secrets(system: Any) -> bool:
    """Return whether an obstore store or fsspec file system has secrets."""
    settings = {**(getattr(system, "config", None) or {}), **(getattr(system, "storage_options", None) or {})}
    given = any(not _is_plain(name.lower(), value) for name, value in settings.items())
    return given or getattr(system, "credential_provider", None) is not None


def _is_plain(name: str, value: Any) -> bool:
    """Return whether a store's setting is known to contain no secret."""
    if isinstance(value, bool | int | float | type(None)) or value in ("", "true", "false", (), [], {}):
        return True
    known = name.removeprefix("aws_").removeprefix("azure_storage_").removeprefix("google_") in _PLAIN
    return known and isinstance(value, str) and not (is_url(value) and has_secret(value))


def _unpickled(
    shown: str, system: Any, cache: tuple[str, Size | None] | None, locked: bool, identity: str = ""
) -> RemotePath:  # by position
    path = RemotePath(shown, system=system, cache=cache)
    path._locked, path.identity = locked, identity or shown  # noqa: SLF001 - its own
    return path
