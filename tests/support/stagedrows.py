"""Tables to stage, identical in every process."""

import numpy as np
import pyarrow as pa


def numbers(rows):
    row = np.arange(rows)
    pairs = pa.FixedSizeListArray.from_arrays(pa.array(np.repeat(row, 2).astype(np.float32)), 2)
    return pa.table({"row": row, "pair": pairs, "label": row * 3 // max(1, rows)})


def texts(rows):
    row = np.arange(rows)
    words = [None if at % 5 == 0 else "x" * (at % 40) for at in row.tolist()]
    return pa.table({"row": row, "text": words, "label": [None if at % 4 == 0 else str(at % 3) for at in row.tolist()]})
