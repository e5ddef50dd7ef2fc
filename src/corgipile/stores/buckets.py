"""Buckets, containers and web servers through obstore: whose credentials, which object, what it says of itself."""

import contextlib
import importlib.util
import os
import time
from collections.abc import Iterator
from datetime import timedelta
from typing import Any, NamedTuple
from urllib.parse import unquote

from corgipile.errors import BadArgument, ReadFailed
from corgipile.stores.failures import Denied, Transient, changed, of_obstore, refused
from corgipile.stores.library import obstore
from corgipile.stores.line import AT_A_TIME, line
from corgipile.stores.urls import Parts, RemotePath, parts_of

__all__ = ["Bucket", "Listed", "Stated", "bucket_of", "is_obstore"]

TIMEOUT, CONNECT = "60s", "5s"
LISTING = 8.0  # seconds for which a list is asked for again
NO_TIME = "1970-01-01"
_AWS_KEYS = ("AWS_ACCESS_KEY_ID", "AWS_WEB_IDENTITY_TOKEN_FILE", "AWS_CONTAINER_CREDENTIALS_RELATIVE_URI")
_AZURE = ("az", "abfs", "abfss", "adl")


class Stated(NamedTuple):
    """What a store says of an object.

    Attributes:
        size: Its bytes.
        etag: Its ETag as it is written, empty if there is none.
        time: When it was last changed, empty if that is not said.
    """

    size: int
    etag: str
    time: str

    @property
    def strong(self) -> str:
        """Return the ETag if it changes with every byte, else nothing."""
        return "" if self.etag.startswith("W/") else self.etag


class Listed(NamedTuple):
    """An object in a list: its key, its bytes, and its ETag where that is said."""

    key: str
    size: int
    etag: str = ""


class Bucket:
    """A bucket, or whatever else has objects by key.

    Args:
        path: The URL of an object in it.
    """

    def __init__(self, path: RemotePath) -> None:
        self._path, self._made = path, _made(path)

    def renew(self) -> None:
        """Look for credentials anew."""
        if self._path.system is None:
            self._made = _made(self._path)

    async def ask(self, key: str, url: str, start: int, stop: int, known: Stated) -> memoryview:
        """Ask for bytes of an object, which must be the one that is known."""
        options: dict[str, Any] = {"range": (start, stop)}
        if known.strong:
            options["if_match"] = known.strong
        data, found = await self._get(key, url, options)
        now, then = found.etag or found.time, known.etag or known.time
        if found.size != known.size or (then and now != then):
            raise changed(url)
        return data

    async def tail(self, key: str, url: str, nbytes: int) -> tuple[memoryview, Stated]:
        """Ask for the last bytes of an object, and what it is."""
        if parts_of(url).scheme in _AZURE:  # which knows no such ranges
            found = await self._head(key, url)
            if not found.size:
                return memoryview(b""), found
            start = max(0, found.size - nbytes)
            return await self._get(key, url, {"range": (start, found.size)})
        return await self._get(key, url, {"range": {"suffix": nbytes}})

    async def _get(self, key: str, url: str, options: dict[str, Any]) -> tuple[memoryview, Stated]:
        api = obstore()
        try:
            result = await api.get_async(self._made, key, options=options)
            return memoryview(await result.bytes_async()), _stated(result.meta)
        except Exception as error:  # noqa: BLE001 - whatever the library raises, as ours
            found = of_obstore(error, url)
        if "suffix" in str(options) and not isinstance(found, (Transient, Denied)):
            stated = await self._head(key, url)
            if not stated.size:
                return memoryview(b""), stated
            if isinstance(found, ReadFailed):
                raise found
            return await self._get(key, url, {"range": (0, stated.size)})  # shorter than a tail
        raise found

    async def _head(self, key: str, url: str) -> Stated:
        api = obstore()
        try:
            return _stated(await api.head_async(self._made, key))
        except Exception as error:  # noqa: BLE001 - as above
            found = of_obstore(error, url)
        raise found

    def listed(self, prefix: str, url: str) -> Iterator[Listed]:
        """Yield the objects whose keys begin with folders; asked again where it fails, for a while.

        Raises:
            ReadFailed: The store does not say.
        """
        api, began, wait = obstore(), time.monotonic(), 0.1
        while True:
            try:
                pages = list(api.list(self._made, prefix or None, chunk_size=1000))
            except Exception as error:  # noqa: BLE001 - as above
                found = of_obstore(error, url)
            else:
                yield from (
                    Listed(meta["path"], int(meta["size"]), meta["e_tag"] or "") for page in pages for meta in page
                )
                return
            if not isinstance(found, (Transient, Denied)):
                raise found
            if isinstance(found, Denied) or time.monotonic() - began > LISTING:
                raise refused(url, f"its objects cannot be listed ({found})")
            time.sleep(wait)
            wait *= 2


def _stated(meta: Any) -> Stated:
    changed_at = str(meta["last_modified"])
    return Stated(int(meta["size"]), meta["e_tag"] or "", "" if changed_at.startswith(NO_TIME) else changed_at)


def is_obstore(system: object) -> bool:
    """Say whether something is a store of obstore."""
    return (type(system).__module__ or "").partition(".")[0] == "obstore"


def bucket_of(path: RemotePath) -> tuple[Bucket, str]:
    """Return the bucket of an object, one a process, and the key there."""
    parts = parts_of(path.full)
    if not parts.place and path.system is None:
        raise BadArgument(f"{path} names no bucket, or host: {parts.scheme}://PLACE/KEY is right")
    mine = line()
    name = (*parts._replace(key=""), _surroundings(parts.scheme), id(path.system) if path.system else 0)
    with mine.lock:
        if name not in mine.kept:
            mine.kept[name] = Bucket(path)
        found: Bucket = mine.kept[name]
    return found, unquote(parts.key) if parts.web else parts.key


def _surroundings(scheme: str) -> int:
    """Return a number that changes with the variables that a store is found by."""
    begin = {"s3": "AWS_", "gs": "GOOGLE_"}.get(scheme, "AZURE_" if scheme in _AZURE else None)
    return 0 if begin is None else hash(frozenset(item for item in os.environ.items() if item[0].startswith(begin)))


def _made(path: RemotePath) -> Any:
    """Make what obstore calls a store."""
    if path.system is not None:
        return _again(path.system)
    parts, api = parts_of(path.full), obstore().store
    client: dict[str, Any] = {"timeout": TIMEOUT, "connect_timeout": CONNECT, "pool_max_idle_per_host": str(AT_A_TIME)}
    shared: dict[str, Any] = {"client_options": client, "retry_config": {"max_retries": 0}}
    try:
        if parts.scheme == "s3":
            return _s3(api, parts, client, shared)
        if parts.scheme == "gs":
            client["allow_http"] = True
            return api.GCSStore(parts.place, **shared)
        if parts.scheme in _AZURE:
            endpoint = os.environ.get("AZURE_STORAGE_ENDPOINT") or os.environ.get("AZURE_ENDPOINT") or ""
            emulated = os.environ.get("AZURE_STORAGE_USE_EMULATOR", "").lower() == "true"
            client["allow_http"] = emulated or endpoint.startswith("http://")
            return api.from_url(f"{parts.scheme}://{path.full.partition('://')[2].partition('/')[0]}", **shared)
        user = f"{parts.user}@" if parts.user else ""
        query = f"?{parts.query}" if parts.query else ""
        client["allow_http"] = True
        return api.HTTPStore.from_url(f"{parts.scheme}://{user}{parts.place}/{query}", **shared)
    except Exception as error:  # noqa: BLE001 - the library's, whose words may hold secrets
        found = of_obstore(error, path)
    raise BadArgument(
        f"{path} cannot be read: {found}: is the variable of the region, the endpoint or the account right?"
    )


def _s3(api: Any, parts: Parts, client: dict[str, Any], shared: dict[str, Any]) -> Any:
    endpoint = os.environ.get("AWS_ENDPOINT_URL_S3") or os.environ.get("AWS_ENDPOINT_URL") or ""
    client["allow_http"] = endpoint.startswith("http://") or os.environ.get("AWS_ALLOW_HTTP", "").lower() == "true"
    more = {"endpoint": endpoint} if endpoint else {}
    known = any(os.environ.get(name) for name in _AWS_KEYS) or os.environ.get("AWS_SKIP_SIGNATURE")
    if not known and importlib.util.find_spec("boto3") is not None:  # profiles, single sign-on
        from obstore.auth.boto3 import Boto3CredentialProvider  # noqa: PLC0415 - optional

        with contextlib.suppress(ValueError):  # it finds none either; a machine of the cloud has its own
            shared = {**shared, "credential_provider": Boto3CredentialProvider(ttl=timedelta(minutes=5))}
    return api.S3Store(parts.place, **more, **shared)


def _again(system: Any) -> Any:
    """Return the store that somebody gave, made anew if this process was forked since."""
    api = obstore().store
    if type(system) is getattr(api, type(system).__name__, None):
        return system
    try:
        args, options = system.__getnewargs_ex__()
    except Exception:  # noqa: BLE001 - a store in memory says no in its own way
        raise BadArgument(
            f"a {type(system).__name__} cannot be used in a process that was forked since it was made; "
            "open the table in that process"
        ) from None
    return getattr(api, type(system).__name__)(*args, **options)
