"""What can go wrong with a request, told apart: what may be tried again, and what it says to whoever reads."""

import errno
import os
import re

from corgipile.errors import BadArgument, CorgiPileError, CorruptFile, MissingFile, ReadFailed
from corgipile.stores.urls import is_url, redacted

__all__ = ["Denied", "Transient", "changed", "of_obstore", "refused"]

_STATUS = re.compile(r"status code: (\d{3})")
_EXPIRED = re.compile(r"ExpiredToken|TokenRefreshRequired|RequestTimeTooSkewed|InvalidToken|AuthenticationFailed")
_KINDS = {
    "Connect": "no connection",
    "Timeout": "no answer in time",
    "Interrupted": "the connection broke",
    "Request": "the request could not be sent",
    "Decode": "the answer makes no sense",
}
_KIND = re.compile(r"kind: (Connect|Timeout|Interrupted|Request|Decode)\b")
_TELLS = {
    "s3": "the variables AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY (AWS_SESSION_TOKEN), AWS_PROFILE with boto3 "
    "installed, AWS_REGION, AWS_ENDPOINT_URL, or AWS_SKIP_SIGNATURE=true for a public bucket",
    "gs": "the variable GOOGLE_APPLICATION_CREDENTIALS, `gcloud auth application-default login`, or "
    "GOOGLE_SKIP_SIGNATURE=true for a public bucket",
    "az": "the variables AZURE_STORAGE_ACCOUNT_NAME with AZURE_STORAGE_ACCOUNT_KEY or AZURE_STORAGE_SAS_KEY, or "
    "AZURE_SKIP_SIGNATURE=true for a public container",
    "hf": "`hf auth login` or the variable HF_TOKEN",
}
_TELLS |= {"abfs": _TELLS["az"], "abfss": _TELLS["az"], "adl": _TELLS["az"]}


class Transient(Exception):
    """What may go better the next time."""


class Denied(Exception):
    """The credentials do not serve, or no longer."""


def of_obstore(error: BaseException, url: str) -> BaseException:
    """Return what an error of obstore is for us; its own text, which may hold a signed URL, is not passed on."""
    text, name = str(error), type(error).__name__
    status = _STATUS.search(text)
    code = int(status[1]) if status else 0
    if name in ("PermissionDeniedError", "UnauthenticatedError") or _EXPIRED.search(text):
        return Denied(f"the store says no ({code or 'credentials'})")
    if isinstance(error, FileNotFoundError) or code == 404:
        return MissingFile(f"no object at {url}")
    return _permanent(name, text, code, url) or Transient(_reason(text, code))


def _permanent(name: str, text: str, code: int, url: str) -> BaseException | None:
    """Return the error that would come again, None if it may not."""
    made: BaseException | None = None
    if name in ("PreconditionError", "NotModifiedError"):
        made = changed(url)
    elif name == "NotSupportedError" or "non-partial response" in text:
        made = no_ranges(url)
    elif name == "InvalidPathError" or "ath" in text[:40].partition(":")[0]:
        made = BadArgument(f"{url} names no object: keys have no empty parts and no dots between slashes")
    elif code == 416:
        made = CorruptFile(f"{url} is shorter than it was, or than the server says")
    elif 400 <= code < 500 and code not in (408, 425, 429):
        made = refused(url, f"the server answers with status {code}")
    return made


def _reason(text: str, code: int) -> str:
    if "UnexpectedRange" in text:
        return "other bytes came than were asked for"
    kind = _KIND.search(text)
    return f"status {code}" if code else _KINDS[kind[1]] if kind else "the request failed"


def no_ranges(url: str) -> CorgiPileError:
    """Make the error of a server that sends whole files."""
    return ReadFailed(
        errno.ENOTSUP, f"{url}: the server sends the whole file whatever range is asked for; fetch it first, by curl"
    )


def changed(url: str) -> CorruptFile:
    """Make the error of an object that is another than the one that was opened."""
    return CorruptFile(f"{url} was changed or replaced since it was opened; open the table again")


def missing(url: str) -> MissingFile:
    """Make the error of a file that is not there, or that the Hub shows only to those whom it knows."""
    seen = f", or it is private: credentials come from {_TELLS['hf']}" if url.startswith("hf:") else ""
    return MissingFile(f"no file at {url}{seen}")


def refused(url: str, reason: str) -> ReadFailed:
    """Make the error of a store that answers, but not with bytes."""
    scheme = url.partition(":")[0]
    how = _TELLS.get(scheme, "a URL that is signed anew, if it was signed, may help")
    how = f"credentials come from {how}" if scheme in _TELLS else how
    return ReadFailed(errno.EACCES, f"{url}: {reason}: {how}")


def unanswered(url: str, reason: str, seconds: float) -> ReadFailed:
    """Make the error of a store that did not answer for long."""
    where = os.environ.get("AWS_ENDPOINT_URL") if url.startswith("s3:") else None
    at = f" (AWS_ENDPOINT_URL is {redacted(where) if is_url(where) else 'not a URL'})" if where else ""
    return ReadFailed(errno.ETIMEDOUT, f"{url}: {reason}, tried again for {seconds:.0f} seconds{at}")
