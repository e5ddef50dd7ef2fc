"""MosaicML MDS tables: a folder of shards and its index.json."""
