"""Shows the section "Example:" of docstrings as code: Griffe knows "Examples:" only."""

import griffe


class Examples(griffe.Extension):
    """Renames the section of every docstring before it is read."""

    def on_object(self, *, obj: griffe.Object, **_: object) -> None:
        """Rename the section of one."""
        if obj.docstring is not None:
            obj.docstring.value = obj.docstring.value.replace("\nExample:\n", "\nExamples:\n")
