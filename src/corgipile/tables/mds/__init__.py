"""MosaicML MDS: a folder of shards and their index.json."""
