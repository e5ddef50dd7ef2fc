"""Orders that ask for single rows of tables in stores: the table is copied to the local disk first, or it is warned."""

import logging
import warnings

from corgipile.errors import WriteFailed
from corgipile.loader.encoded import ReadStrategy
from corgipile.orders import Blocks, Order
from corgipile.outputs import files_read
from corgipile.sizes import format_bytes
from corgipile.tables.io.remote import RemoteFile
from corgipile.tables.io.spill import spill_folder
from corgipile.tables.io.staged import copy_to_spill
from corgipile.tables.table import Table

__all__ = ["bring_near"]

REQUEST = 800_000  # bytes that could have come while a request waits for its answer
FEW = 1000  # requests that are no matter
LITTLE = 4 << 10  # bytes of a block that is no better than a row
RATE = 500  # requests a second, of the next store, with some on their way
log = logging.getLogger("corgipile")


def bring_near(table: Table, order: Order, blocks: Blocks, row_bytes: float, way: ReadStrategy) -> None:
    """Copy a table in a store to a spill file, if an order asks for so little at a time that this takes less time.

    Warns where there is no room for it, or there shall be no spill file: then each row is a request.

    Args:
        table: The table.
        order: The order.
        blocks: What it asks for at a time.
        row_bytes: Bytes of a row.
        way: How the table is read.
    """
    single = order.cuts_into == "row" or blocks.rows * row_bytes < LITTLE * blocks.count
    if not way.ahead or way.units is not None or not single or blocks.count < FEW:
        return
    files = [file for file in files_read(table) if isinstance(file, RemoteFile) and not file.near]
    size = sum(file.size for file in files)
    if not files or size > REQUEST * blocks.count:
        return
    folder = getattr(table, "spill", spill_folder(None))
    failure = "spill files are off"
    if folder is not None:
        try:
            log.warning(
                "copying %r to %s, once (%s): %s asks for single rows, which would be %d requests an epoch",
                table, folder, format_bytes(size), order.name, blocks.count,
            )  # fmt: skip
            copy_to_spill(files, folder)
        except WriteFailed as error:
            failure = str(error)
        else:
            return
    warnings.warn(
        f"{order.name} asks for single rows of {table!r}, a request to the store each: {blocks.count:,} an epoch, "
        f"{blocks.count / RATE / 60:,.1f} minutes or more. order='riffle' or 'balanced' asks for blocks; "
        "open(..., cache=FOLDER) keeps what was read on a local disk, and a spill file would hold the table "
        f"({format_bytes(size)}), but {failure}",
        stacklevel=5,
    )
