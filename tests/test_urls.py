"""URLs: what is shown of them, and what goes to other processes."""

import pickle
from types import SimpleNamespace

import pytest

from corgipile.cli.pages import command_text
from corgipile.errors import BadArgument
from corgipile.urls import RemotePath, is_url, local_path, parts_of, redacted, scrubbed

SIGNED = "https://host/a%20b.csv?versionId=3&X-Amz-Credential=AKIA&X-Amz-Signature=c0ffee&sig=x&se=2030&token=t"


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("s3://bucket/a b=1.csv", "s3://bucket/a b=1.csv"),
        ("S3A://key:secret@bucket/a", "s3://bucket/a"),
        (SIGNED, "https://host/a%20b.csv?versionId=3"),
        ("https://me:pw@host:8/a?b=c#d", "https://host:8/a"),
        ("https://host/a?version=2&generation=7&jwt=x", "https://host/a?version=2&generation=7"),
        ("s3://bucket/a.csv?X-Amz-Signature=x&versionId=3", "s3://bucket/a.csv?versionId=3"),
        ("s3://bucket/part-?.csv", "s3://bucket/part-?.csv"),
        ("memory://box/a?token=x", "memory://box/a"),
        ("postgresql://me:p/w@host:5432/db?password=x", "postgresql://host:5432/db"),
        ("abfss://box@account.dfs.core.windows.net/a?sig=x", "abfss://box@account.dfs.core.windows.net/a"),
        ("hf://datasets/me/set@main/a.parquet", "hf://datasets/me/set@main/a.parquet"),
    ],
)
def test_what_is_shown(url, shown):
    path = RemotePath(url)
    assert (str(path), repr(path), f"{path}") == (shown, repr(shown), shown)
    assert path.full == url


WORDS = (
    "jwt code pwd hmac st session ticket cookie psk api pass p k t auth_code bearer x-sig id nonce otp hash h state "
    "user AWSAccessKeyId GoogleAccessId X-Amz-Security-Token sv sr sp"
)


@pytest.mark.parametrize("word", WORDS.split())
@pytest.mark.parametrize(
    "form", ["https://host/a.csv?{}=hush", "https://host/a.csv?version=1&{}=hush#x", "s3://b/a?{}=hush"]
)
def test_a_query_is_never_shown(word, form):
    path = RemotePath(form.format(word))
    there = pickle.dumps(path)
    assert b"hush" not in there
    assert "hush" not in f"{path} {path!r} {path.identity} {pickle.loads(there)!r} {pickle.loads(there).identity}"  # noqa: S301
    assert path.full == form.format(word)
    assert "hush" not in command_text(["info", f"{path.full},{path.full},x"])


def test_objects_that_are_shown_alike_are_told_apart():
    first, second = RemotePath("https://host/get?id=1&sig=a"), RemotePath("https://host/get?id=2&sig=a")
    assert first == second
    assert first.identity != second.identity
    assert first.identity == RemotePath("https://host/get?id=1&sig=other").identity  # signed anew
    assert pickle.loads(pickle.dumps(first)).identity == first.identity  # noqa: S301 - ours
    assert RemotePath("https://host/get").identity == "https://host/get"


def test_connection_strings():
    assert redacted("host=h password='a b' user=u sslpassword=x") == "host=h password=*** user=u sslpassword=***"
    assert "hush" not in command_text(
        ["sql", "--dsn", "host=h password=hush", "--dsn=postgresql://u:hush@h/d?sslpassword=hush"]
    )
    for url in ("postgresql://u:hush%zz@h/d", "postgresql://u:a@hush@h/d", "postgresql://u:x@h/d?hush=1"):
        quoted = [word for word in ("hush%zz", "hush@h", "hush") if word in url][:1]
        assert "hush" not in scrubbed(f'wrong: "{quoted[0]}"', url)
    assert scrubbed('no user "u" on "h"', "postgresql://u:x@h/d") == 'no user "u" on "h"'


@pytest.mark.parametrize("option", ["jwt", "session", "headers", "psk", "client_kwargs", "cookie"])
def test_a_file_system_made_with_anything_else_goes_to_no_other_process(option):
    system = SimpleNamespace(storage_options={"anon": True, "region": "eu-north-1"})
    pickle.dumps(RemotePath("s3://bucket/a", system=system))
    system.storage_options[option] = {"Authorization": "hush"} if option in ("headers", "client_kwargs") else "hush"
    with pytest.raises(BadArgument, match="with secrets") as error:
        pickle.dumps(RemotePath("s3://bucket/a", system=system))
    assert "hush" not in str(error.value)


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
    with pytest.raises(BadArgument, match="with secrets") as error:
        pickle.dumps(path)
    assert "hush" not in str(error.value)
    again = pickle.loads(pickle.dumps(RemotePath("s3://bucket/a", system=s3("bucket", region="eu-north-1"))))  # noqa: S301 - ours
    assert again.system.config["region"] == "eu-north-1"


def test_taken_apart():
    assert parts_of("gcs://bucket/a?b")[:3] == ("gs", "bucket", "a?b")  # a key may have one
    assert parts_of("https://host?x=1")[:4] == ("https", "host", "", "x=1")
    assert not is_url("C:/a")
    assert not is_url(3)
    with pytest.raises(BadArgument, match="must be a URL"):
        redacted("a.csv")


def test_local():
    assert local_path("file:///a%20b") == "/a b"
    with pytest.raises(BadArgument, match="another host, got 'there'"):
        local_path("file://there/a")
