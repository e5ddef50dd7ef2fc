"""Interactive SQL shell with line editing, completion and history."""
