"""AnnData files written by the package: dense, sparse, compressed or not, in HDF5 and Zarr."""

import warnings

import numpy as np
import pyarrow as pa
import pytest

import corgipile as cp
from corgipile.errors import BadArgument, BadSchema, BadSparseRow, CorruptFile, MissingColumn
from corgipile.tables import open as open_table
from corgipile.testing import check_table

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    anndata = pytest.importorskip("anndata")
h5py = pytest.importorskip("h5py")
pd = pytest.importorskip("pandas")
sparse = pytest.importorskip("scipy.sparse")
pytestmark = pytest.mark.filterwarnings("ignore")  # the packages' warnings about each other
CELLS, GENES = 120, 30
KINDS = np.array(["B", "NK", "T"])


def cells(matrix, rows=CELLS):
    rng = np.random.default_rng(1)
    codes = np.arange(rows) * 3 // rows
    known = pd.DataFrame(
        {
            "cell_type": pd.Categorical.from_codes(np.where(codes == 9, -1, codes), KINDS),
            "stage": pd.Categorical(np.where(np.arange(rows) % 5 == 0, None, "late"), ["early", "late"], ordered=True),
            "count": rng.integers(0, 9, rows),
            "maybe": pd.array([i if i % 2 else None for i in range(rows)], dtype="Int64"),
            "flag": pd.array([True if i % 2 else None for i in range(rows)], dtype="boolean"),
            "note": [f"né{i}" for i in range(rows)],
        },
        index=[f"cell{i}" for i in range(rows)],
    )
    made = anndata.AnnData(matrix, obs=known)
    made.obsm["X_pca"] = rng.random((rows, 4))
    made.layers["counts"] = matrix
    return made


def random_matrix(dtype=np.float32, form="csr"):
    return (sparse.random(CELLS, GENES, 0.2, "csr", random_state=0) * 90).astype(dtype).asformat(form)


def expected(data, matrix):
    dense, known = matrix.toarray(), data.obs
    columns = {
        "cell_type": pa.array(known["cell_type"].tolist())
        .dictionary_encode()
        .cast(pa.dictionary(pa.int8(), pa.string())),
        "count": pa.array(known["count"].to_numpy()),
        "maybe": pa.array([i if i % 2 else None for i in range(CELLS)], pa.int64()),
        "flag": pa.array([True if i % 2 else None for i in range(CELLS)]),
        "note": pa.array(known["note"].tolist()),
        "obs_names": pa.array(data.obs_names.tolist()),
    }
    columns["stage"] = pa.DictionaryArray.from_arrays(
        pa.array(known["stage"].cat.codes.to_numpy(), mask=known["stage"].isna().to_numpy()),
        ["early", "late"],
        ordered=True,
    )
    places = [np.flatnonzero(row).tolist() for row in dense]
    value = pa.from_numpy_dtype(np.float32 if matrix.dtype.itemsize <= 4 and matrix.dtype.kind == "f" else np.float64)
    columns["X_k"] = pa.array(places, pa.list_(pa.int32()))
    columns["X_v"] = pa.array([row[at].tolist() for row, at in zip(dense, places, strict=True)], pa.list_(value))
    order = ["X_k", "X_v", "cell_type", "stage", "count", "maybe", "flag", "note", "obs_names"]
    return pa.table({name: columns[name] for name in order})


@pytest.mark.parametrize("how", ["plain", "gzip", "lzf", "int64", "zarr"])
def test_sparse_cells(tmp_path, how):
    matrix = random_matrix(np.int64 if how == "int64" else np.float32)
    matrix.eliminate_zeros()
    data = cells(matrix)
    path = tmp_path / ("a.zarr" if how == "zarr" else "a.h5ad")
    if how == "zarr":
        data.write_zarr(path)
    else:
        data.write_h5ad(path, compression=how if how in ("gzip", "lzf") else None)
    table = open_table(path, paths=True)
    check_table(table, expected(data, matrix))
    for order in ("riffle", "full", "no_shuffle"):
        with cp.Loader(path, label="cell_type", order=order, batch_size=16, memory="64KB") as loader:
            batches = list(loader)
            assert loader.classes.tolist() == KINDS.tolist()
        got = np.concatenate([np.c_[batch["label"], batch["features"]] for batch in batches])
        wanted = np.c_[np.arange(CELLS) * 3 // CELLS, matrix.toarray()]
        assert np.array_equal(got[np.lexsort(got.T)], wanted[np.lexsort(wanted.T)].astype(got.dtype))
    assert cp.convert(path, tmp_path / "a.arrow") == CELLS
    with cp.Loader(tmp_path / "a.arrow", label="cell_type") as loader:
        assert next(iter(loader))["features"].shape == (CELLS, GENES)


def test_dense_cells_lie_in_place(tmp_path):
    matrix = random_matrix().toarray()
    cells(matrix).write_h5ad(tmp_path / "a.h5ad")
    table = open_table(tmp_path / "a.h5ad")
    assert table.layout(["X"]) is not None
    assert np.array_equal(np.stack(table.read(0, CELLS, ["X"]).column(0).to_numpy(zero_copy_only=False)), matrix)
    with cp.Loader(table, label="cell_type", batch_size=50) as loader:
        assert [batch["features"].shape for batch in loader] == [(50, GENES), (50, GENES), (20, GENES)]


def test_training_on_cell_types(tmp_path):
    matrix = sparse.lil_matrix((CELLS, GENES), dtype=np.float32)
    for row in range(CELLS):
        matrix[row, row * 3 // CELLS] = 2
        matrix[row, 5 + row % 7] = 1
    cells(matrix.tocsr()).write_h5ad(tmp_path / "a.h5ad")
    model = cp.train(tmp_path / "a.h5ad", label="cell_type", model="softmax", epochs=5, learning_rate=0.1)
    assert model.predict(tmp_path / "a.h5ad").tolist() == KINDS[np.arange(CELLS) * 3 // CELLS].tolist()


def test_what_columns_name(tmp_path):
    data = cells(random_matrix())
    data.raw = data
    data.write_h5ad(tmp_path / "a.h5ad")
    table = open_table(tmp_path / "a.h5ad", columns=["obsm/X_pca", "cell_type", "raw/X", "layers/counts"])
    assert table.schema.names[:3] == ["obsm/X_pca", "cell_type", "raw/X_k"]
    assert (
        table.read(0, 1, ["raw/X_k"]).to_pydict()["raw/X_k"]
        == table.read(0, 1, ["layers/counts_k"]).column(0).to_pylist()
    )
    renamed = open_table(tmp_path / "a.h5ad", columns={"x": "X", "y": "obs/cell_type"})
    assert renamed.schema.names == ["x_k", "x_v", "y"]
    assert renamed.row_sizes(np.array([0]), ["y"]).tolist() == [1]
    with pytest.raises(MissingColumn, match=r"no column 'cell_tpye' of cells.*did you mean cell_type"):
        open_table(tmp_path / "a.h5ad", columns=["cell_tpye"])
    with pytest.raises(MissingColumn, match="no 'layers/raw'"):
        open_table(tmp_path / "a.h5ad", columns=["layers/raw"])
    with pytest.raises(BadSchema, match="must be a dense array or a csr_matrix"):
        open_table(tmp_path / "a.h5ad", columns=["layers/"])


def test_cells_stored_by_genes(tmp_path):
    cells(random_matrix(form="csc")).write_h5ad(tmp_path / "a.h5ad")
    with pytest.raises(BadSchema, match=r"stored by genes \(CSC\).*adata.X = adata.X.tocsr\(\)"):
        open_table(tmp_path / "a.h5ad")
    assert len(open_table(tmp_path / "a.h5ad", columns=["cell_type"])) == CELLS


def test_files_of_older_versions(tmp_path):
    matrix = random_matrix()
    with h5py.File(tmp_path / "a.h5ad", "w") as file:  # 0.1.0: categories are referenced datasets
        group = file.create_group("X")
        group.attrs["encoding-type"], group.attrs["shape"] = "csr_matrix", matrix.shape
        for name in ("data", "indices", "indptr"):
            group[name] = getattr(matrix, name)
        known = file.create_group("obs")
        known.attrs["column-order"], known.attrs["_index"] = ["kind"], "index"
        known["index"] = [f"c{i}" for i in range(CELLS)]
        known["__categories/kind"] = ["a", "b"]
        known["kind"] = (np.arange(CELLS) % 2).astype("i1")
        known["kind"].attrs["categories"] = known["__categories/kind"].ref
        file.create_group("var")
    table = open_table(tmp_path / "a.h5ad", paths=True)
    assert table.schema.names == ["X_k", "X_v", "kind", "obs_names"]
    assert table.take([3], ["kind", "obs_names"]).to_pylist() == [{"kind": "b", "obs_names": "c3"}]
    with h5py.File(tmp_path / "b.h5ad", "w") as file:  # older: compound datasets
        group = file.create_group("X")
        group.attrs["h5sparse_format"], group.attrs["h5sparse_shape"] = "csr", matrix.shape
        for name in ("data", "indices", "indptr"):
            group[name] = getattr(matrix, name)
        rows = [(b"c%d" % i, i % 2) for i in range(CELLS)]
        file["obs"] = np.array(rows, [("index", "S5"), ("kind", "i1")])
        file["uns/kind_categories"] = [b"a", b"b"]
        file["var"] = np.array([(b"g",)], [("index", "S1")])
    table = open_table(tmp_path / "b.h5ad")
    assert table.schema.names == ["X_k", "X_v", "kind"]
    assert table.take([3], ["kind"]).to_pylist() == [{"kind": "b"}]


def test_indices_in_no_order_are_put_in_order(tmp_path):
    matrix = sparse.csr_matrix((np.array([1, 2, 3.0]), np.array([5, 2, 0]), np.array([0, 2, 3])), (2, 9))
    cells(matrix, 2).write_h5ad(tmp_path / "a.h5ad")
    table = open_table(tmp_path / "a.h5ad", columns=["X"])
    assert table.read(0, 2).to_pydict() == {"X_k": [[2, 5], [0]], "X_v": [[2, 1], [3]]}
    assert table.take([1, 0], ["X_v"]).to_pydict() == {"X_v": [[3], [2, 1]]}


def test_parts_that_contradict_each_other(tmp_path):
    cells(random_matrix()).write_h5ad(tmp_path / "a.h5ad")

    def broken(change):
        with h5py.File(tmp_path / "a.h5ad", "r+") as file:
            change(file["X"])
        with pytest.raises(CorruptFile, match=r"a\.h5ad") as caught:
            open_table(tmp_path / "a.h5ad").read(0, CELLS)
        return str(caught.value)

    def place(group):
        group["indices"][3] = GENES

    def ends(group):
        group["indptr"][5] = 10**9

    def rows(group):
        group.attrs["shape"] = (CELLS + 1, GENES)

    assert f"below {GENES}, got" in broken(place)
    assert "indptr must ascend" in broken(ends)
    assert f"indptr must have {CELLS + 2} numbers" in broken(rows)


def test_many_files_have_the_same_genes(tmp_path):
    for i, kinds in enumerate((["B", "T"], ["T", "NK"])):
        data = cells(random_matrix())
        data.obs["kind"] = pd.Categorical(np.array(kinds)[np.arange(CELLS) % 2], kinds)
        data.var_names = [f"gene {j}" for j in range(GENES)]
        data.write_h5ad(tmp_path / f"{i}.h5ad")
    table = open_table(tmp_path)
    assert table.take([0, CELLS, CELLS + 1, 1], ["kind"]).to_pydict() == {"kind": ["B", "T", "NK", "T"]}
    with cp.Loader(table, label="kind") as loader:
        assert np.bincount(np.concatenate([batch["label"] for batch in loader])).tolist() == [60, 60, 120]
    data[:, ::-1].write_h5ad(tmp_path / "2.h5ad")
    with pytest.raises(BadSchema, match=r"genes of .*2\.h5ad'\) must match those of AnnData"):
        open_table(tmp_path)
    assert len(open_table(tmp_path, columns=["kind"])) == 3 * CELLS


@pytest.mark.parametrize("rows", [0, 1])
def test_few_cells(tmp_path, rows):
    for form, matrix in (
        ("sparse", sparse.csr_matrix((rows, GENES), dtype="f4")),
        ("dense", np.ones((rows, GENES), "f4")),
    ):
        cells(matrix, rows).write_h5ad(tmp_path / f"{form}.h5ad", compression="gzip")
        table = open_table(tmp_path / f"{form}.h5ad")
        assert table.read(0, rows).num_rows == len(table) == rows
        assert sum(len(batch["note"]) for batch in cp.Loader(table, columns=["note", "count"])) == rows
        assert cp.convert(tmp_path / f"{form}.h5ad", tmp_path / "a.arrow") == rows


def test_a_sparse_batch_that_is_none(tmp_path):
    lists = {"x_k": [[0, 3], [1]], "x_v": pa.array([[1.0, 2.0], [3.0]], pa.list_(pa.float32())), "y": [0, 1]}
    rows = pa.table(lists)
    with cp.Loader(rows, features="x", label="y", order="no_shuffle", as_tuple=True, format="torch") as loader:
        [(x, y)] = list(loader)
    assert (x.tolist(), y.tolist()) == ([[1, 0, 0, 2], [0, 3, 0, 0]], [0, 1])
    narrow = rows.replace_schema_metadata({"corgipile.dims": "2"})
    with pytest.raises(BadSparseRow, match="must have indices below 2, got 0 to 3"):
        list(cp.Loader(narrow, features="x"))
    with pytest.raises(BadSparseRow, match="as many indices as values"):
        list(cp.Loader(rows.set_column(0, "x_k", pa.array([[0], [1]])), features="x"))
    with pytest.raises(BadArgument, match="format='arrow'"):
        cp.Loader(rows, features="x", format="arrow")


def test_objects_of_the_package(tmp_path):
    matrix = random_matrix()
    data = cells(matrix)
    assert data.obs.index.name is None
    table = open_table(data)
    assert table.read(0, CELLS).select(["X_k", "note"]).to_pylist() == [
        {"X_k": row["X_k"], "note": row["note"]} for row in expected(data, matrix).to_pylist()
    ]
    with cp.Loader(data[data.obs["count"] > 3], label="cell_type") as loader:
        assert sum(len(batch["label"]) for batch in loader) == (data.obs["count"] > 3).sum()
    assert open_table(cells(matrix.toarray())).schema.names[0] == "X"
    data.write_h5ad(tmp_path / "a.h5ad")
    backed = anndata.read_h5ad(tmp_path / "a.h5ad", backed="r")
    assert repr(open_table(backed)) == f"AnnData('{tmp_path}/a.h5ad')"
    with pytest.raises(BadArgument, match="a view of a backed AnnData"):
        open_table(backed[:5])


def test_workers_share_the_cells(tmp_path):
    loading = pytest.importorskip("torch.utils.data")
    from corgipile.torch import CorgiPileDataset  # noqa: PLC0415

    cells(random_matrix()).write_h5ad(tmp_path / "a.h5ad", compression="gzip")
    dataset = CorgiPileDataset(tmp_path / "a.h5ad", label="cell_type", batch_size=16)
    batches = list(loading.DataLoader(dataset, batch_size=None, num_workers=2))
    assert sum(len(batch["label"]) for batch in batches) == CELLS
    assert np.isclose(sum(float(batch["features"].sum()) for batch in batches), random_matrix().sum(), rtol=1e-4)
