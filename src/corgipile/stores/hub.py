"""Files of the Hugging Face Hub, read at the commit of their opening.

The Hub answers a request for a file with a signed address of a storage server, valid for about an hour. Requests go
to that address until it expires, then to the Hub for another one.
"""

import asyncio
import importlib
from typing import Any

from corgipile.errors import ReadFailed
from corgipile.stores import files
from corgipile.stores.failures import Transient, changed, of_status
from corgipile.stores.files import FileRanges, is_hub, system_of
from corgipile.stores.line import line
from corgipile.stores.requests import Ask
from corgipile.urls import RemotePath

__all__ = ["HubRanges", "open_file"]

TIMEOUT = 60.0
OK, PARTIAL = 200, 206
EXPIRED = (400, 401, 403, 404, 410)  # answers to an address that is no longer signed


def open_file(path: RemotePath) -> FileRanges:
    """Open a file; one in a repository of the Hub at its commit.

    Raises:
        MissingFile: The file does not exist.
    """
    found = (
        files.query(path, lambda system, name: _resolved(path, system, name)) if is_hub(system_of(path)[0]) else None
    )
    return found or files.open_file(path)


def _resolved(path: RemotePath, system: Any, name: str) -> "HubRanges | None":
    """Return a file of a repository; None if it is in a bucket, which has no commits."""
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
        if signed != self._address and answer.status_code in EXPIRED:
            self._sent_to = self._address
            answer = self._answer(self._address, token, start, stop)
        status = answer.status_code
        if status != PARTIAL and (status != OK or stop - start != self.size):
            raise of_status(status, self.path)
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
