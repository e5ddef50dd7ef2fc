"""The databases that run statements, one file or folder each."""
