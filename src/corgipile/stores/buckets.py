"""Buckets, containers and web servers through obstore: credentials, objects and their metadata."""

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
from corgipile.stores.line import MAX_REQUESTS, line
from corgipile.urls import Parts, RemotePath, parts_of

__all__ = ["Bucket", "Listed", "Stated", "bucket_of", "is_obstore"]

TIMEOUT, CONNECT = "60s", "5s"
LISTING_SECONDS = 8.0  # seconds for which a failed listing is retried
NO_TIME = "1970-01-01"
_AWS_KEYS = ("AWS_ACCESS_KEY_ID", "AWS_WEB_IDENTITY_TOKEN_FILE", "AWS_CONTAINER_CREDENTIALS_RELATIVE_URI")
_AZURE = ("az", "abfs", "abfss", "adl")


class Stated(NamedTuple):
    """Metadata of an object in a store.

    Attributes:
        size: Its bytes.
        etag: Its ETag as sent, empty if there is none.
        time: Its modification time, empty if unknown.
    """

    size: int
    etag: str
    time: str

    @property
    def strong(self) -> str:
        """Return a strong ETag, which changes with every byte; empty if it is weak."""
        return "" if self.etag.startswith("W/") else self.etag


class Listed(NamedTuple):
    """A listed object: key, bytes, and ETag if known."""

    key: str
    size: int
    etag: str = ""


class Bucket:
    """A bucket, or any other store of objects by key.

    Args:
        path: The URL of an object in it.
    """

    def __init__(self, path: RemotePath) -> None:
        self._path, self._store = path, _store(path)

    def renew(self) -> None:
        """Reload the credentials."""
        if self._path.system is None:
            self._store = _store(self._path)

    async def ask(self, key: str, url: str, start: int, stop: int, known: Stated) -> memoryview:
        """Request bytes of an object, which must not have changed."""
        options: dict[str, Any] = {"range": (start, stop)}
        if known.strong:
            options["if_match"] = known.strong
        data, found = await self._get(key, url, options)
        now, then = found.etag or found.time, known.etag or known.time
        if found.size != known.size or (then and now != then):
            raise changed(url)
        return data

    async def tail(self, key: str, url: str, nbytes: int) -> tuple[memoryview, Stated]:
        """Request the last bytes of an object, and its metadata."""
        if parts_of(url).scheme in _AZURE:  # Azure does not support suffix ranges
            found = await self._head(key, url)
            if not found.size:
                return memoryview(b""), found
            start = max(0, found.size - nbytes)
            return await self._get(key, url, {"range": (start, found.size)})
        return await self._get(key, url, {"range": {"suffix": nbytes}})

    async def _get(self, key: str, url: str, options: dict[str, Any]) -> tuple[memoryview, Stated]:
        api = obstore()
        try:
            result = await api.get_async(self._store, key, options=options)
            return memoryview(await result.bytes_async()), _stated(result.meta)
        except Exception as error:  # noqa: BLE001 - library errors of any kind are converted
            found = of_obstore(error, url)
        if "suffix" in str(options) and not isinstance(found, (Transient, Denied)):
            stated = await self._head(key, url)
            if not stated.size:
                return memoryview(b""), stated
            if isinstance(found, ReadFailed):
                raise found
            return await self._get(key, url, {"range": (0, stated.size)})  # the object is shorter than a tail
        raise found

    async def _head(self, key: str, url: str) -> Stated:
        api = obstore()
        try:
            return _stated(await api.head_async(self._store, key))
        except Exception as error:  # noqa: BLE001 - as above
            found = of_obstore(error, url)
        raise found

    def listed(self, prefix: str, url: str) -> Iterator[Listed]:
        """Yield the objects whose keys start with a folder; failures are retried for a while.

        Raises:
            ReadFailed: The store does not list them.
        """
        api, began, wait = obstore(), time.monotonic(), 0.1
        while True:
            try:
                pages = list(api.list(self._store, prefix or None, chunk_size=1000))
            except Exception as error:  # noqa: BLE001 - as above
                found = of_obstore(error, url)
            else:
                yield from (
                    Listed(meta["path"], int(meta["size"]), meta["e_tag"] or "") for page in pages for meta in page
                )
                return
            if not isinstance(found, (Transient, Denied)):
                raise found
            if isinstance(found, Denied) or time.monotonic() - began > LISTING_SECONDS:
                raise refused(url, f"listing its objects failed ({found})")
            time.sleep(wait)
            wait *= 2


def _stated(meta: Any) -> Stated:
    changed_at = str(meta["last_modified"])
    return Stated(int(meta["size"]), meta["e_tag"] or "", "" if changed_at.startswith(NO_TIME) else changed_at)


def is_obstore(system: object) -> bool:
    """Return whether a system is an obstore store."""
    return (type(system).__module__ or "").partition(".")[0] == "obstore"


def bucket_of(path: RemotePath) -> tuple[Bucket, str]:
    """Return the bucket of an object, one per process, and its key."""
    parts = parts_of(path.full)
    if not parts.place and path.system is None:
        raise BadArgument(f"{path} must name a bucket or host: write {parts.scheme}://PLACE/KEY")
    requester = line()
    name = (*parts._replace(key=""), _environment_hash(parts.scheme), id(path.system) if path.system else 0)
    with requester.lock:
        if name not in requester.kept:
            requester.kept[name] = Bucket(path)
        found: Bucket = requester.kept[name]
    return found, unquote(parts.key) if parts.web else parts.key


def _environment_hash(scheme: str) -> int:
    """Return a number that changes with the environment variables of a store."""
    begin = {"s3": "AWS_", "gs": "GOOGLE_"}.get(scheme, "AZURE_" if scheme in _AZURE else None)
    return 0 if begin is None else hash(frozenset(item for item in os.environ.items() if item[0].startswith(begin)))


def _store(path: RemotePath) -> Any:
    """Create the obstore store of a path."""
    if path.system is not None:
        return _recreated(path.system)
    parts, api = parts_of(path.full), obstore().store
    client: dict[str, Any] = {
        "timeout": TIMEOUT,
        "connect_timeout": CONNECT,
        "pool_max_idle_per_host": str(MAX_REQUESTS),
    }
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
    except Exception as error:  # noqa: BLE001 - library errors may contain secrets
        found = of_obstore(error, path)
    raise BadArgument(
        f"{path} cannot be read: {found}; check the variables of the region, the endpoint and the account"
    )


def _s3(api: Any, parts: Parts, client: dict[str, Any], shared: dict[str, Any]) -> Any:
    endpoint = os.environ.get("AWS_ENDPOINT_URL_S3") or os.environ.get("AWS_ENDPOINT_URL") or ""
    client["allow_http"] = endpoint.startswith("http://") or os.environ.get("AWS_ALLOW_HTTP", "").lower() == "true"
    more = {"endpoint": endpoint} if endpoint else {}
    known = any(os.environ.get(name) for name in _AWS_KEYS) or os.environ.get("AWS_SKIP_SIGNATURE")
    if not known and importlib.util.find_spec("boto3") is not None:  # boto3 adds profiles and single sign-on
        from obstore.auth.boto3 import Boto3CredentialProvider  # noqa: PLC0415 - optional

        with contextlib.suppress(ValueError):  # boto3 has no credentials; cloud machines have their own
            shared = {**shared, "credential_provider": Boto3CredentialProvider(ttl=timedelta(minutes=5))}
    return api.S3Store(parts.place, **more, **shared)


def _recreated(system: Any) -> Any:
    """Return a given store, recreated if this process was forked since its creation."""
    api = obstore().store
    if type(system) is getattr(api, type(system).__name__, None):
        return system
    try:
        args, options = system.__getnewargs_ex__()
    except Exception:  # noqa: BLE001 - stores in memory fail in their own way
        raise BadArgument(
            f"a {type(system).__name__} cannot be used in a process forked after its creation; "
            "open the table in that process"
        ) from None
    return getattr(api, type(system).__name__)(*args, **options)
