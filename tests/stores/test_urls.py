"""URLs: what is shown of them, and what goes to other processes."""

import pickle

import pytest

from corgipile.errors import BadArgument
from corgipile.stores.urls import RemotePath, is_url, local_path, parts_of, redacted

SIGNED = "https://host/a%20b.csv?versionId=3&X-Amz-Credential=AKIA&X-Amz-Signature=c0ffee&sig=x&se=2030&token=t"


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("s3://bucket/a b=1.csv", "s3://bucket/a b=1.csv"),
        ("S3A://key:secret@bucket/a", "s3://bucket/a"),
        (SIGNED, "https://host/a%20b.csv?versionId=3"),
        ("https://me:pw@host:8/a?b=c#d", "https://host:8/a?b=c"),
        ("abfss://box@account.dfs.core.windows.net/a?sig=x", "abfss://box@account.dfs.core.windows.net/a"),
        ("hf://datasets/me/set@main/a.parquet", "hf://datasets/me/set@main/a.parquet"),
    ],
)
def test_what_is_shown(url, shown):
    path = RemotePath(url)
    assert (str(path), repr(path), f"{path}") == (shown, repr(shown), shown)
    assert path.full == url


def test_secrets_stay_in_the_process():
    there = pickle.dumps(RemotePath(SIGNED))
    assert b"c0ffee" not in there
    assert b"AKIA" not in there
    with pytest.raises(BadArgument, match="another process"):
        _ = pickle.loads(there).full  # noqa: S301 - ours
    plain = pickle.loads(pickle.dumps(RemotePath("https://host/a?versionId=3", cache=("/nvme", "1GB"))))  # noqa: S301 - ours
    assert (plain.full, plain.cache) == ("https://host/a?versionId=3", ("/nvme", "1GB"))


def test_a_store_made_with_secrets_goes_to_no_other_process():
    s3 = pytest.importorskip("obstore.store").S3Store
    path = RemotePath("s3://bucket/a", system=s3("bucket", access_key_id="AKIA", secret_access_key="hush"))
    with pytest.raises(BadArgument, match="given secrets") as error:
        pickle.dumps(path)
    assert "hush" not in str(error.value)
    again = pickle.loads(pickle.dumps(RemotePath("s3://bucket/a", system=s3("bucket", region="eu-north-1"))))  # noqa: S301 - ours
    assert again.system.config["region"] == "eu-north-1"


def test_taken_apart():
    assert parts_of("gcs://bucket/a?b")[:3] == ("gs", "bucket", "a?b")  # a key may have one
    assert parts_of("https://host?x=1")[:4] == ("https", "host", "", "x=1")
    assert not is_url("C:/a")
    assert not is_url(3)
    with pytest.raises(BadArgument, match="no URL"):
        redacted("a.csv")


def test_local():
    assert local_path("file:///a%20b") == "/a b"
    with pytest.raises(BadArgument, match="host 'there'"):
        local_path("file://there/a")
