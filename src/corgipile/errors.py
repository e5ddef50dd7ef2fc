"""Every error corgipile raises, one tree; each class is also the builtin a caller expects.

::

    CorgiPileError
    ├── BadArgument (ValueError)          a parameter is out of range
    │   ├── BadSize                       a block, buffer or memory size does not parse
    │   ├── WouldOverwrite (FileExistsError)  a file that is read, or of another kind, lies where one is to be written
    │   └── BudgetTooSmall                the memory budget holds not even the smallest working buffer
    ├── TableError                        something is wrong with stored data
    │   ├── MissingFile (FileNotFoundError)
    │   ├── UnknownFormat (ValueError)    wrong magic, or no reader for this kind of file
    │   ├── CorruptFile (ValueError)      truncated, or contradicts its own metadata
    │   │   └── UntrustedPath             a file refers to a file outside its folder
    │   ├── ReadFailed (OSError)          the device or file system failed while reading
    │   ├── MissingColumn (KeyError)
    │   ├── BadSchema (TypeError)         a column has a type that does not serve
    │   ├── ParseError (ValueError)       a text line does not parse: file, line, column
    │   ├── RaggedRows (ValueError)       feature lists of different lengths
    │   ├── BadSparseRow (ValueError)     indices negative, out of order or repeated
    │   └── BadValue (ValueError)         NaN or infinity, or null, where a number must be
    ├── BadLabel (ValueError)             a label outside the model's range
    ├── StateMismatch (ValueError)        a saved state belongs to another table, order or seed
    ├── PeerFailed (ConnectionError)      another rank died, is silent, or sent what cannot be
    ├── FetchFailed (RuntimeError)        a dataset of the user's raised while a row was fetched
    ├── BadModelFile (ValueError)         a model file that is none of ours
    ├── WriteFailed (OSError)             a file could not be written; what was there is as it was
    ├── MissingExtra (ImportError)        an optional dependency is not installed
    ├── BadStatement (ValueError)         SQL that does not parse: line, column
    ├── ServerError (RuntimeError)        a PostgreSQL server cannot be built for, started or reached
    └── Diverged (ArithmeticError)        the loss became NaN, infinite, or grew without bound

    DivergenceWarning (UserWarning)       the loss ended above that of a model that never learnt
    LeftOutWarning (UserWarning)          a column is left out for some cells that are no numbers

Messages say what was wrong, the value got, and what would be right.
"""

import errno

__all__ = [
    "BadArgument",
    "BadLabel",
    "BadModelFile",
    "BadSchema",
    "BadSize",
    "BadSparseRow",
    "BadStatement",
    "BadValue",
    "BudgetTooSmall",
    "CorgiPileError",
    "CorruptFile",
    "Diverged",
    "DivergenceWarning",
    "FetchFailed",
    "LeftOutWarning",
    "MissingColumn",
    "MissingExtra",
    "MissingFile",
    "ParseError",
    "PeerFailed",
    "RaggedRows",
    "ReadFailed",
    "ServerError",
    "StateMismatch",
    "TableError",
    "UnknownFormat",
    "UntrustedPath",
    "WouldOverwrite",
    "WriteFailed",
]


class CorgiPileError(Exception):
    """Everything that corgipile raises on purpose."""


class BadArgument(CorgiPileError, ValueError):
    """A parameter is out of range."""


class BadSize(BadArgument):
    """A block, buffer or memory size does not parse."""


class WouldOverwrite(BadArgument, FileExistsError):
    """An input, or a file of another kind, lies where a file is to be written."""


class BudgetTooSmall(BadArgument):
    """The memory budget does not hold the smallest buffer that works."""


class TableError(CorgiPileError):
    """Something is wrong with stored data."""


class MissingFile(TableError, FileNotFoundError):
    """No file lies at the path."""

    errno = errno.ENOENT


class UnknownFormat(TableError, ValueError):
    """No reader knows this kind of file."""


class CorruptFile(TableError, ValueError):
    """A file is truncated or contradicts its own metadata."""


class UntrustedPath(CorruptFile):
    """A file refers to a file outside its folder, and the caller did not pass ``trust="paths"``."""


class ReadFailed(TableError, OSError):
    """The device or the file system failed while reading; ``errno`` says how."""

    def __str__(self) -> str:
        """Show the message alone; the number is in ``errno``."""
        return str(self.args[-1]) if self.args else ""


class MissingColumn(TableError, KeyError):
    """The schema has no column of this name."""

    def __str__(self) -> str:
        """Show the message as it is: KeyError would quote it."""
        return str(self.args[0]) if self.args else ""


class BadSchema(TableError, TypeError):
    """A column has a type that does not serve."""


class ParseError(TableError, ValueError):
    """A line of a text file does not parse."""


class RaggedRows(TableError, ValueError):
    """Feature lists have different lengths."""


class BadSparseRow(TableError, ValueError):
    """Sparse indices are negative, out of order or repeated."""


class BadValue(TableError, ValueError):
    """A feature or label is NaN, infinite or null."""


class BadLabel(CorgiPileError, ValueError):
    """A label lies outside the model's range."""


class StateMismatch(CorgiPileError, ValueError):
    """A saved state belongs to another table, order or seed."""


class PeerFailed(CorgiPileError, ConnectionError):
    """Another rank died, was silent for too long, or sent what cannot be; says which, and what was waited for."""


class FetchFailed(CorgiPileError, RuntimeError):
    """A dataset or transform raised an error for a row; that error is the cause."""


class BadModelFile(CorgiPileError, ValueError):
    """A file is not a model saved by corgipile."""


class WriteFailed(CorgiPileError, OSError):
    """A file could not be written; nothing half-written is left, and what was there before is as it was."""

    def __str__(self) -> str:
        """Show the message alone; the number is in ``errno``."""
        return str(self.args[-1]) if self.args else ""


class MissingExtra(CorgiPileError, ImportError):
    """An optional dependency is not installed."""


class BadStatement(CorgiPileError, ValueError):
    """A statement of SQL does not parse; the message shows where.

    Attributes:
        line: The line of the script, from 1 on.
        column: The character of that line, from 1 on.
        incomplete: Whether more text could mend it: a string, a comment or a bracket is open.
    """

    line: int = 1
    column: int = 1
    incomplete: bool = False


class ServerError(CorgiPileError, RuntimeError):
    """A PostgreSQL server cannot be built for, started or reached."""


class Diverged(CorgiPileError, ArithmeticError):
    """Training diverged: the loss is NaN, infinite, or grows without bound."""


class DivergenceWarning(UserWarning):
    """The loss ended above that of a model that never learnt: what was learnt is worse than nothing."""


class LeftOutWarning(UserWarning):
    """A column of text is left out of the features, though nearly all of its cells are numbers."""
