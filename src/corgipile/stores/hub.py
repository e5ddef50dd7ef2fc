"""Files of the Hugging Face Hub, read at the commit of their opening.

The Hub answers a request for a file with a signed address of a storage server, valid for about an hour. Requests go
to that address until it expires, then to the Hub for another one.
"""

import asyncio
import importlib
from typing import Any

from corgipile.errors import CorruptFile, ReadFailed
from corgipile.stores.failures import Denied, Transient, changed, missing, no_ranges, refused
from corgipile.stores.files import FileRanges, system_of
from corgipile.stores.line import line
from corgipile.stores.requests import Ask
from corgipile.urls import RemotePath

__all__ = ["HubRanges", "failure", "is_hub", "open_file"]

TIMEOUT = 60.0
OK, PARTIAL, BAD, UNKNOWN, FORBIDDEN, MISSING, GONE, BEYOND = 200, 206, 400, 401, 403, 404, 410, 416


def is_hub(system: Any) -> bool:
    """Return whether an fsspec file system is the Hub's."""
    return (type(system).__module__ or "").partition(".")[0] == "huggingface_hub"


def open_file(path: RemotePath, system: Any, name: str) -> "HubRanges | None":
    """Open a file of a repository; None if it is in a bucket, which has no commits.

    Raises:
        MissingFile: The file does not exist.
    """
    import huggingface_hub as hub  # noqa: PLC0415 - optional

    found = system.resolve_path(name)
    if getattr(found, "repo_id", None) is None:
        return None
    where = {"repo_type": found.repo_type, "endpoint": system.endpoint}
    url = hub.hf_hub_url(found.repo_id, found.path_in_repo, revision=found.revision, **where)
    metadata = hub.get_hf_file_metadata(url, token=system.token)
    if metadata.size is None or not metadata.etag:
        raise ReadFailed(0, f"{path}: the Hub does not report its size or digest")
    if metadata.commit_hash:  # pin the commit, since the branch may move
        url = hub.hf_hub_url(found.repo_id, found.path_in_repo, revision=metadata.commit_hash, **where)
    return HubRanges(path, int(metadata.size), str(metadata.etag), url)


class HubRanges(FileRanges):
    """Reads ranges of a file of a repository; see `corgipile.stores.ranges.Ranges`.

    Args:
        path: Its location.
        size: Its bytes.
        etag: The digest of its content.
        address: Its URL at the Hub.
    """

    def __init__(self, path: RemotePath, size: int, etag: str, address: str) -> None:
        super().__init__(path, size, etag)
        self._address, self._sent_to = address, address

    def __reduce__(self) -> tuple[Any, ...]:
        return HubRanges, (self.path, self.size, self.etag, self._address)

    def _asking(self) -> Ask:
        """Return the function that requests bytes."""
        workers, (system, _) = line().workers, system_of(self.path)

        async def ask(start: int, stop: int) -> memoryview:
            return await asyncio.get_running_loop().run_in_executor(workers, self._bytes, system.token, start, stop)

        return ask

    def _bytes(self, token: Any, start: int, stop: int) -> memoryview:
        signed = self._sent_to
        answer = self._answer(signed, token, start, stop)
        if signed != self._address and answer.status_code in (
            BAD,
            UNKNOWN,
            FORBIDDEN,
            MISSING,
            GONE,
        ):  # the address has expired
            self._sent_to = self._address
            answer = self._answer(self._address, token, start, stop)
        status = answer.status_code
        if status != PARTIAL and (status != OK or stop - start != self.size):
            raise failure(status, self.path)
        total = answer.headers.get("Content-Range", "").rpartition("/")[2]
        if total.isdecimal() and int(total) != self.size:
            raise changed(self.path)
        self._sent_to = str(answer.url)
        return memoryview(answer.content)

    def _answer(self, url: str, token: Any, start: int, stop: int) -> Any:
        utils: Any = importlib.import_module("huggingface_hub.utils")  # its types do not list its exports
        headers = {"Range": f"bytes={start}-{stop - 1}", "Accept-Encoding": "identity"}
        if url == self._address:  # other servers must not get the token
            headers |= utils.build_hf_headers(token=token)
        try:
            return utils.get_session().get(url, headers=headers, timeout=TIMEOUT)
        except Exception as error:  # noqa: BLE001 - library errors may contain a signed URL
            found = Transient(type(error).__name__)
        raise found


def failure(status: int, path: RemotePath) -> BaseException:
    """Convert an error status of the Hub, or of a storage server."""
    if status in (UNKNOWN, FORBIDDEN):
        return Denied(f"the Hub denies access ({status})")
    if status in (MISSING, GONE):
        return missing(path)
    if status == BEYOND:
        return CorruptFile(f"{path} is shorter than before, or than the Hub reported")
    if status == OK:
        return no_ranges(path)
    if BAD <= status < 500 and status not in (408, 425, 429):
        return refused(path, f"the Hub answers with status {status}")
    return Transient(f"status {status}")
