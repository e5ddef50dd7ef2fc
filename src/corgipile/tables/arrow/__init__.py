"""Arrow IPC: files and streams, read by pread; written complete or not at all."""
