"""Lists of a bucket's objects, as S3 and Azure write them."""

import datetime as dt
from collections.abc import Callable
from email.utils import formatdate
from pathlib import Path
from xml.sax.saxutils import escape


def blobs(bucket: Path, names: list[str]) -> bytes:
    """Return a whole list as XML in Azure's form."""
    found = []
    for name in names:
        status = (bucket / name).stat()
        found.append(
            f"<Blob><Name>{escape(name)}</Name><Properties>"
            f"<Last-Modified>{formatdate(status.st_mtime, usegmt=True)}</Last-Modified>"
            f"<Etag>{escape(hex(status.st_mtime_ns))}</Etag><Content-Length>{status.st_size}</Content-Length>"
            "<Content-Type>application/octet-stream</Content-Type><BlobType>BlockBlob</BlobType>"
            "</Properties></Blob>"
        )
    text = f"<EnumerationResults><Blobs>{''.join(found)}</Blobs><NextMarker/></EnumerationResults>"
    return f"<?xml version='1.0' encoding='utf-8'?>{text}".encode()


def page(
    bucket: Path, prefix: str, names: list[tuple[str, str]], etag_of: Callable[[Path], str], *, more: bool
) -> bytes:
    """Return a page of a list as XML."""
    parts = [f"<Name>{escape(bucket.name)}</Name><Prefix>{escape(prefix)}</Prefix><KeyCount>{len(names)}</KeyCount>"]
    parts.append(f"<MaxKeys>1000</MaxKeys><IsTruncated>{str(more).lower()}</IsTruncated>")
    if more:
        parts.append(f"<NextContinuationToken>{escape(names[-1][0])}</NextContinuationToken>")
    for name, kind in names:
        if kind == "folder":
            parts.append(f"<CommonPrefixes><Prefix>{escape(name)}</Prefix></CommonPrefixes>")
            continue
        status = (bucket / name).stat()
        time = dt.datetime.fromtimestamp(status.st_mtime, dt.UTC).strftime("%Y-%m-%dT%H:%M:%S.000Z")
        parts.append(
            f"<Contents><Key>{escape(name)}</Key><LastModified>{time}</LastModified>"
            f"<ETag>{escape(etag_of(bucket / name))}</ETag><Size>{status.st_size}</Size>"
            "<StorageClass>STANDARD</StorageClass></Contents>"
        )
    space = "http://s3.amazonaws.com/doc/2006-03-01/"
    return f"<?xml version='1.0'?><ListBucketResult xmlns='{space}'>{''.join(parts)}</ListBucketResult>".encode()
