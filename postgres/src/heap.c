/* Compatibility check of the server's heap scans with scan.c.
 * Pages are read through scan fields that are no public interface: a minor version may move them, and a library built
 * with other headers would read something else. A new scan has known values, so every scan is checked before its fields
 * are used. */
#include "reading.h"

#include "access/heapam.h"
#include "storage/bufmgr.h"

/* Return whether a new heap scan has the expected fields. Otherwise warns once that rows are read one by one. */
bool corgi_heap_is_compatible(TableScanDesc scan)
{
    static bool warned = false;
    const HeapScanDescData *heap = (const HeapScanDescData *) scan;
    if (heap->rs_ctup.t_tableOid == RelationGetRelid(scan->rs_rd) && heap->rs_ctup.t_data == NULL &&
        heap->rs_cbuf == InvalidBuffer && heap->rs_cblock == InvalidBlockNumber &&
        heap->rs_nblocks <= RelationGetNumberOfBlocks(scan->rs_rd))
        return true;
    if (!warned)
        ereport(
            WARNING,
            errmsg("heap scans of this server differ from the headers that the library was built with: rows "
                   "are read one by one"),
            errhint("The library was built with the headers of %s; rebuild it with those of this server.", PG_VERSION));
    warned = true;
    return false;
}
