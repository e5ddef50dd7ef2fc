"""Orders that read single rows of remote tables: copies the table to the local disk first, or warns."""

import logging
import warnings

from corgipile.errors import WriteFailed
from corgipile.loader.encoded import ReadStrategy
from corgipile.orders import Blocks, Order
from corgipile.sizes import format_bytes
from corgipile.tables.io.remote import RemoteFile
from corgipile.tables.io.sources import files_read
from corgipile.tables.io.staged import copy_to_spill
from corgipile.tables.table import Table

__all__ = ["stage_locally"]

LATENCY_BYTES = 800_000  # bytes that a connection transfers during one request's latency
MIN_REQUESTS = 1000  # requests below which nothing is copied
SMALL_BLOCK = 4 << 10  # bytes below which a block counts as a single row
REQUEST_RATE = 500  # requests per second to a nearby store, several in flight
log = logging.getLogger("corgipile")


def stage_locally(
    table: Table, order: Order, blocks: Blocks, row_bytes: float, way: ReadStrategy, memory: int | None
) -> None:
    """Copy a remote table to a spill file if an order's reads are so small that the copy takes less time.

    ``memory`` limits the bytes in flight. Warns if the disk has too little space or spill files are off: each row is
    then a request.
    """
    single = order.cuts_into == "row" or blocks.rows * row_bytes < SMALL_BLOCK * blocks.count
    if not way.ahead or way.units is not None or not single or blocks.count < MIN_REQUESTS:
        return
    files = [file for file in files_read(table) if isinstance(file, RemoteFile) and not file.near]
    size = sum(file.size for file in files)
    if not files or size > LATENCY_BYTES * blocks.count:
        return
    folder = table.spill
    failure = "spill files are off"
    if folder is not None:
        try:
            log.warning(
                "copying %r to %s, once (%s): %s reads single rows, which would take %d requests per epoch",
                table, folder, format_bytes(size), order.name, blocks.count,
            )  # fmt: skip
            copy_to_spill(files, folder, memory)
        except WriteFailed as error:
            failure = str(error)
        else:
            return
    warnings.warn(
        f"{order.name} reads single rows of {table!r}, each a request to the store: {blocks.count:,} per epoch, "
        f"{blocks.count / REQUEST_RATE / 60:,.1f} minutes or more. Use order='riffle' or 'balanced' to read blocks, or "
        "open(..., cache=FOLDER), which caches reads on a local disk; a spill file would hold the table "
        f"({format_bytes(size)}), but {failure}",
        stacklevel=5,
    )
