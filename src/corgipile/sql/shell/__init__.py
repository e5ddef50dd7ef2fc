"""An interactive shell: lines are edited, completed and remembered, statements run one after the other."""
