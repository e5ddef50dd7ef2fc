"""Google's and Azure's stores, in the words that their clients speak: tables, folders, globs, errors and epochs."""

import json

import numpy as np
import pyarrow as pa
import pytest

import corgipile as cp
from corgipile.errors import CorruptFile, MissingFile

pytest.importorskip("obstore")
ROWS = 20_000


@pytest.fixture(params=["gs", "az"])
def cloud(request, objects, monkeypatch, tmp_path):
    """Give the URL of a bucket with tables, and the folder that it is."""
    if request.param == "gs":
        account = {"gcs_base_url": objects.url, "disable_oauth": True}
        account |= {"client_email": "", "private_key": "", "private_key_id": ""}
        (tmp_path / "account.json").write_text(json.dumps(account))
        monkeypatch.setenv("GOOGLE_SERVICE_ACCOUNT", str(tmp_path / "account.json"))
    else:
        monkeypatch.setenv("AZURE_STORAGE_ACCOUNT_NAME", "account")
        monkeypatch.setenv("AZURE_STORAGE_ENDPOINT", objects.url)
        monkeypatch.setenv("AZURE_SKIP_SIGNATURE", "true")
    folder = objects.root / "bucket" / "rows"
    folder.mkdir()
    for part in range(2):
        write(folder / f"part-{part}.arrow", part * ROWS)
    return f"{request.param}://bucket/rows", folder


def write(path, start):
    rows = pa.table({"id": np.arange(start, start + ROWS), "x": np.random.default_rng(start).random(ROWS)})
    with pa.ipc.new_file(path, rows.schema) as writer:
        writer.write_table(rows, max_chunksize=5000)


@pytest.mark.parametrize("which", ["/part-*.arrow", "/", "", "/part-{0,1}.arrow"])
def test_every_row_of_a_folder_comes_once(cloud, which):
    loader = cp.Loader(cloud[0] + which, memory="500KB", order="riffle")
    seen = np.concatenate([batch["id"] for batch in loader])
    assert np.array_equal(np.sort(seen), np.arange(2 * ROWS))


def test_what_is_missing_or_changed_is_said(cloud):
    url, folder = cloud
    with pytest.raises(MissingFile, match="nothing"):
        cp.open(f"{url}/nothing.arrow")
    table = cp.open(f"{url}/part-0.arrow")
    write(folder / "part-0.arrow", 7)
    with pytest.raises(CorruptFile, match="changed or replaced"):
        table.read(0, ROWS)
