/* Whether the scans of the server's heap are what scan.c takes them for.
 *
 * Pages are read through fields of a scan that are no interface of the server: a minor version may move them, and a
 * library that was built with the headers of another would read something else. A scan that was just begun has values
 * that are known, so every scan is asked before its fields are used. */
#include "corgipile.h"

#include "access/heapam.h"
#include "storage/bufmgr.h"

/* Return whether a scan of a heap that was just begun looks like one; else say once that rows are read one by one. */
bool corgi_heap_as_known(TableScanDesc scan)
{
    static bool said = false;
    const HeapScanDescData *heap = (const HeapScanDescData *) scan;
    if (heap->rs_ctup.t_tableOid == RelationGetRelid(scan->rs_rd) && heap->rs_ctup.t_data == NULL &&
        heap->rs_cbuf == InvalidBuffer && heap->rs_cblock == InvalidBlockNumber &&
        heap->rs_nblocks <= RelationGetNumberOfBlocks(scan->rs_rd))
        return true;
    if (!said)
        ereport(WARNING,
                errmsg("scans of this server are not those that the library was built for: rows are read one by one"),
                errhint("It was built with the headers of %s; build it with those of this server.", PG_VERSION));
    said = true;
    return false;
}
