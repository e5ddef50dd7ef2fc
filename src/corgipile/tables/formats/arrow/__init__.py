"""Arrow IPC files and streams: random-access readers and an atomic writer."""
