"""Hostile files of HDF5, AnnData, Zarr and NumPy."""

import json
import os
import pickle
from importlib import import_module

import numpy as np
from hostile import ROWS, SECRET, kind

H5 = ("h5py",)
ZARR = ("zarr",)


def _h5(path):
    h5py = import_module("h5py")

    return h5py.File(path, "w")


def _external(file, name, target):
    """Write a dataset whose bytes lie in another file."""
    h5py = import_module("h5py")

    made = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
    made.set_external(str(target).encode(), 0, ROWS * 8)
    h5py.h5d.create(file.id, name.encode(), h5py.h5t.STD_I64LE, h5py.h5s.create_simple((ROWS,)), made)


def _virtual(file, name, source, other="x"):
    """Write a dataset whose rows are those of another."""
    h5py = import_module("h5py")

    layout = h5py.VirtualLayout((ROWS,), "i8")
    layout[:] = h5py.VirtualSource(str(source), other, (ROWS,))
    file.create_virtual_dataset(name, layout)


def _secret(trap):
    path = trap.folder / "secret.h5"
    if not path.exists():
        with _h5(path) as file:
            file["x"] = np.frombuffer(SECRET * ROWS, "<i8")
    return path


@kind("absolute", "relative", needs=H5)
def hdf5_external_storage(trap, folder, way):
    path = folder / "a.h5"
    with _h5(path) as file:
        _external(file, "x", trap.bytes if way == "absolute" else os.path.relpath(trap.bytes))
        file["label"] = np.arange(ROWS) % 2
    return path


@kind("absolute", "relative", "winding", needs=H5)
def hdf5_virtual(trap, folder, way):
    (folder / "a").mkdir()
    with _h5(folder / "a.h5") as file:
        _virtual(file, "x", trap.address(way, _secret(trap), folder))
    return folder / "a.h5"


@kind("self", "beside", "twice", needs=H5)
def hdf5_virtual_of_external_storage(trap, folder, way):
    with _h5(folder / "a.h5") as file:
        _virtual(file, "x", {"self": ".", "beside": "b.h5", "twice": "c.h5"}[way], "x" if way == "twice" else "y")
        if way == "self":
            _external(file, "y", trap.bytes)
    (folder / "other").mkdir()
    with _h5(folder / "b.h5") as file:
        _external(file, "y", trap.bytes)
    with _h5(folder / "c.h5") as file:
        _virtual(file, "x", "b.h5", "y")
    return folder / "a.h5"


@kind("link", "soft", "decoy", needs=H5)
def hdf5_virtual_of_a_link(trap, folder, way):
    h5py = import_module("h5py")

    with _h5(folder / "a.h5") as file:
        _virtual(file, "x", "b.h5", "q" if way == "link" else "s")
    with _h5(folder / "b.h5") as file:
        file["q"] = h5py.ExternalLink(str(_secret(trap)), "/x")
        file["s"] = h5py.SoftLink("/q")
        if way == "decoy":  # for readers that stay within the file
            file["x"] = np.arange(ROWS)
    return folder / "a.h5"


@kind("file", "array", "numbers", needs=H5)
def hdf5_virtual_of_a_pattern(trap, folder, way):
    """Refer to rows by a pattern, next to harmless files named like the pattern."""
    h5py = import_module("h5py")

    name, array = {"file": ("b%%.h5", "y"), "array": ("c.h5", "y%%"), "numbers": ("c.h5", "z%b")}[way]
    with _h5(folder / "a.h5") as file:
        made = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
        rows = h5py.h5s.create_simple((ROWS,), (h5py.h5s.UNLIMITED,))
        if way == "numbers":
            rows.select_hyperslab((0,), (h5py.h5s.UNLIMITED,), (ROWS,), (ROWS,))
        made.set_virtual(rows, name.encode(), array.encode(), h5py.h5s.create_simple((ROWS,)))
        h5py.h5d.create(file.id, b"x", h5py.h5t.STD_I64LE, rows, made)
    for name, arrays in {"b%%.h5": {"y": 0}, "b%.h5": {"y": 1}, "c.h5": {"y%%": 0, "y%": 1, "z%b": 0, "z0": 1}}.items():
        with _h5(folder / name) as file:
            for array, hostile in arrays.items():
                if hostile:
                    _external(file, array, trap.bytes)
                else:
                    file[array] = np.arange(ROWS)
    return folder / "a.h5"


@kind("link", "soft", "group", needs=H5)
def hdf5_link(trap, folder, way):
    h5py = import_module("h5py")

    with _h5(folder / "a.h5") as file:
        file["x" if way == "link" else "q"] = h5py.ExternalLink(str(_secret(trap)), "/" if way == "group" else "/x")
        if way != "link":
            file["x"] = h5py.SoftLink("/q/x" if way == "group" else "/q")
    return folder / "a.h5"


@kind(needs=H5, refused=False)
def hdf5_filter_of_a_plugin(trap, folder):
    with _h5(folder / "a.h5") as file:
        data = file.create_dataset("x", (ROWS,), "i8", chunks=(ROWS,), compression="gzip")
        data[:] = np.arange(ROWS)
    raw = (folder / "a.h5").read_bytes()
    at = raw.index(b"deflate") - 8  # where the number of the filter is
    (folder / "a.h5").write_bytes(raw[:at] + (32_017).to_bytes(2, "little") + raw[at + 2 :])
    return folder / "a.h5"


def _cells(file):
    h5py = import_module("h5py")

    file.attrs["encoding-type"] = "anndata"
    cells = file.create_group("obs")
    cells.attrs["_index"], cells["_index"] = "_index", np.arange(ROWS)
    cells.attrs["column-order"] = np.array(["c"], h5py.string_dtype())
    return cells


@kind("matrix", "sparse", "cells", "categories", "genes", "named", "referred", needs=H5)
def anndata(trap, folder, way):
    h5py = import_module("h5py")

    with _h5(folder / "a.h5ad") as file:
        cells = _cells(file)
        _external(file, "q", trap.bytes)
        soft = h5py.SoftLink("/q")
        if way == "sparse":
            matrix = file.create_group("X")
            matrix.attrs["encoding-type"], matrix.attrs["shape"] = "csr_matrix", np.array([ROWS, 9])
            matrix["indptr"], matrix["indices"], matrix["data"] = np.arange(ROWS + 1), np.zeros(ROWS, "i4"), soft
        else:
            file["X"] = soft if way == "matrix" else np.eye(ROWS)
        if way == "categories":
            made = cells.create_group("c")
            made["codes"], made["categories"] = np.arange(ROWS, dtype="i1"), soft
        else:
            cells["c"] = soft if way == "cells" else np.zeros(ROWS, "i1")
        if way == "genes":
            genes = file.create_group("var")
            genes.attrs["_index"], genes["_index"] = "_index", soft
        if way == "named":
            cells["c"].attrs["categories"] = np.bytes_(b"/q")
        if way == "referred":
            cells["c"].attrs["categories"] = file["q"].ref
    return folder / "a.h5ad"


ARRAY = {
    "zarr_format": 3,
    "node_type": "array",
    "shape": [ROWS],
    "data_type": "int64",
    "chunk_grid": {"name": "regular", "configuration": {"chunk_shape": [ROWS]}},
    "chunk_key_encoding": {"name": "default", "configuration": {"separator": "/"}},
    "fill_value": 0,
    "codecs": [{"name": "bytes", "configuration": {"endian": "little"}}],
    "attributes": {},
    "storage_transformers": [],
}
ARRAY_2 = {
    "zarr_format": 2,
    "shape": [ROWS],
    "chunks": [ROWS],
    "dtype": "<i8",
    "compressor": None,
    "fill_value": 0,
    "order": "C",
    "filters": None,
}


@kind("filter", "compressor", "numbers", needs=ZARR)
def zarr_2_pickle(trap, folder, way):
    array = folder / "x"
    array.mkdir()
    (folder / ".zgroup").write_text('{"zarr_format": 2}')
    pickled = {"id": "pickle", "protocol": 5}
    more = {"compressor": pickled} if way == "compressor" else {"filters": [pickled]}
    kinds = {} if way == "numbers" else {"dtype": "|O", "fill_value": None}
    (array / ".zarray").write_text(json.dumps({**ARRAY_2, **more, **kinds}))
    (array / "0").write_bytes(trap.code)
    return folder


@kind("codec", "separator", "transformer", "type", needs=ZARR, refused=False)
def zarr_3(trap, folder, way):
    array = folder / "x"
    (array / "c").mkdir(parents=True)
    (folder / "zarr.json").write_text(json.dumps({"zarr_format": 3, "node_type": "group", "attributes": {}}))
    up = {"name": "default", "configuration": {"separator": "/../../../"}}
    changed = {
        "codec": {"codecs": [*ARRAY["codecs"], {"name": "numcodecs.pickle", "configuration": {}}]},
        "separator": {"chunk_key_encoding": up},
        "transformer": {"storage_transformers": [{"name": "os.system", "configuration": {"path": str(trap.bytes)}}]},
        "type": {"data_type": {"name": "os.system", "configuration": {}}},
    }[way]
    (array / "zarr.json").write_text(json.dumps({**ARRAY, **changed}))
    (array / "c" / "0").write_bytes(trap.code)
    return folder


@kind("relative", "winding", "absolute", needs=ZARR)
def zarr_consolidated(trap, folder, way):
    (trap.folder / "array" / "c").mkdir(parents=True, exist_ok=True)
    (trap.folder / "array" / "c" / "0").write_bytes(SECRET * ROWS)
    name = trap.address(way, trap.folder / "array", folder)
    said = {"kind": "inline", "must_understand": False, "metadata": {name: ARRAY}}
    made = {"zarr_format": 3, "node_type": "group", "attributes": {}, "consolidated_metadata": said}
    (folder / "zarr.json").write_text(json.dumps(made))
    return folder


@kind("npy", "npz", needs=())
def numpy_objects(trap, folder, way):
    path, objects = folder / f"a.{way}", np.array([_Hooked(trap.code)] * ROWS, object)
    np.save(path, objects, allow_pickle=True) if way == "npy" else np.savez(path, x=objects)
    return path


class _Hooked:
    def __init__(self, code):
        self.code = code

    def __reduce__(self):
        return pickle.loads, (self.code,)
