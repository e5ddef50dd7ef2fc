"""Classification of failed requests: which may be retried, and the errors shown to users."""

import errno
import os
import re

from corgipile.errors import BadArgument, CorgiPileError, CorruptFile, MissingFile, ReadFailed
from corgipile.urls import RemotePath, is_url, redacted

__all__ = ["Denied", "Transient", "changed", "of_obstore", "of_status", "refused"]

_STATUS = re.compile(r"status code: (\d{3})")
_EXPIRED = re.compile(r"ExpiredToken|TokenRefreshRequired|RequestTimeTooSkewed|InvalidToken|AuthenticationFailed")
_KINDS = {
    "Connect": "no connection",
    "Timeout": "no answer in time",
    "Interrupted": "the connection was interrupted",
    "Request": "the request could not be sent",
    "Decode": "the answer is malformed",
}
_KIND = re.compile(r"kind: (Connect|Timeout|Interrupted|Request|Decode)\b")
_CREDENTIALS = {
    "s3": "the variables AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY (AWS_SESSION_TOKEN), AWS_PROFILE with boto3 "
    "installed, AWS_REGION, AWS_ENDPOINT_URL, or AWS_SKIP_SIGNATURE=true for a public bucket",
    "gs": "the variable GOOGLE_APPLICATION_CREDENTIALS, `gcloud auth application-default login`, or "
    "GOOGLE_SKIP_SIGNATURE=true for a public bucket",
    "az": "the variables AZURE_STORAGE_ACCOUNT_NAME with AZURE_STORAGE_ACCOUNT_KEY or AZURE_STORAGE_SAS_KEY, or "
    "AZURE_SKIP_SIGNATURE=true for a public container",
    "hf": "`hf auth login` or the variable HF_TOKEN",
}
_CREDENTIALS |= {"abfs": _CREDENTIALS["az"], "abfss": _CREDENTIALS["az"], "adl": _CREDENTIALS["az"]}


class Transient(Exception):
    """A failure that a retry may fix."""


class Denied(Exception):
    """Credentials are missing, invalid or expired."""


def of_obstore(error: BaseException, url: str) -> BaseException:
    """Convert an error of obstore; its text is dropped, since it may contain a signed URL."""
    text, name = str(error), type(error).__name__
    status = _STATUS.search(text)
    code = int(status[1]) if status else 0
    if name in ("PermissionDeniedError", "UnauthenticatedError") or _EXPIRED.search(text):
        return Denied(f"the store denies access ({code or 'credentials'})")
    if isinstance(error, FileNotFoundError) or code == 404:
        return MissingFile(f"no object at {url}")
    return _permanent(name, text, code, url) or Transient(_reason(text, code))


def of_status(status: int, path: RemotePath) -> BaseException:
    """Convert an error status of the Hub, or of a storage server."""
    if status in (401, 403):
        return Denied(f"the Hub denies access ({status})")
    if status in (404, 410):
        return missing(path)
    if status == 416:
        return CorruptFile(f"{path} is shorter than before, or than the Hub reported")
    if status == 200:
        return no_ranges(path)
    if 400 <= status < 500 and status not in (408, 425, 429):
        return refused(path, f"the Hub answers with status {status}")
    return Transient(f"status {status}")


def _permanent(name: str, text: str, code: int, url: str) -> BaseException | None:
    """Return the error if a retry would fail too, else None."""
    failure: BaseException | None = None
    if name in ("PreconditionError", "NotModifiedError"):
        failure = changed(url)
    elif name == "NotSupportedError" or "non-partial response" in text:
        failure = no_ranges(url)
    elif name == "InvalidPathError" or "ath" in text[:40].partition(":")[0]:
        failure = BadArgument(f"{url} must name an object: keys must not have empty parts or dots between slashes")
    elif code == 416:
        failure = CorruptFile(f"{url} is shorter than before, or than the server reported")
    elif 400 <= code < 500 and code not in (408, 425, 429):
        failure = refused(url, f"the server answers with status {code}")
    return failure


def _reason(text: str, code: int) -> str:
    if "UnexpectedRange" in text:
        return "other bytes came than requested"
    kind = _KIND.search(text)
    return f"status {code}" if code else _KINDS[kind[1]] if kind else "the request failed"


def no_ranges(url: str) -> CorgiPileError:
    """Return the error for a server that sends whole files."""
    return ReadFailed(
        errno.ENOTSUP,
        f"{url}: the server ignores ranges and sends the whole file; download it first, for example with curl",
    )


def changed(url: str) -> CorruptFile:
    """Return the error for an object that has changed since it was opened."""
    return CorruptFile(f"{url} was changed or replaced since it was opened; open the table again")


def missing(url: str) -> MissingFile:
    """Return the error for a missing file, or a private one on the Hub."""
    hint = f", or it is private: credentials come from {_CREDENTIALS['hf']}" if url.startswith("hf:") else ""
    return MissingFile(f"no file at {url}{hint}")


def refused(url: str, reason: str) -> ReadFailed:
    """Return the error for a store that answers without bytes."""
    scheme = url.partition(":")[0]
    how = _CREDENTIALS.get(scheme, "sign the URL again if it was signed")
    how = f"credentials come from {how}" if scheme in _CREDENTIALS else how
    return ReadFailed(errno.EACCES, f"{url}: {reason}: {how}")


def unanswered(url: str, reason: str, seconds: float) -> ReadFailed:
    """Return the error for a store that did not answer for long."""
    where = os.environ.get("AWS_ENDPOINT_URL") if url.startswith("s3:") else None
    at = f" (AWS_ENDPOINT_URL is {redacted(where) if is_url(where) else 'not a URL'})" if where else ""
    return ReadFailed(errno.ETIMEDOUT, f"{url}: {reason}, tried again for {seconds:.0f} seconds{at}")
