"""The tree of corgipile's errors; each class is also the built-in error that a caller expects.

::

    CorgiPileError
    ├── BadArgument (ValueError)          a parameter is out of range
    │   ├── BadSize                       a block, buffer or memory size does not parse
    │   ├── WouldOverwrite (FileExistsError)  an output path holds an input or a file of another kind
    │   └── BudgetTooSmall                the memory budget does not hold the smallest buffer
    ├── TableError                        stored data are damaged or unsuitable
    │   ├── MissingFile (FileNotFoundError)
    │   ├── UnknownFormat (ValueError)    wrong magic, or no reader for this kind of file
    │   ├── CorruptFile (ValueError)      truncated, or contradicts its own metadata
    │   │   └── UntrustedPath             a file refers to a file outside its folder
    │   ├── ReadFailed (OSError)          the device or file system failed while reading
    │   ├── MissingColumn (KeyError)
    │   ├── BadSchema (TypeError)         a column has an unsuitable type
    │   ├── ParseError (ValueError)       a text line does not parse: file, line, column
    │   ├── RaggedRows (ValueError)       feature lists of different lengths
    │   ├── BadSparseRow (ValueError)     indices negative, out of order or repeated
    │   └── BadValue (ValueError)         NaN, infinity or null where a number is required
    ├── BadLabel (ValueError)             a label outside the model's range
    ├── StateMismatch (ValueError)        a saved state belongs to another table, order or seed
    ├── PeerFailed (ConnectionError)      another rank died, timed out, or sent invalid data
    ├── FetchFailed (RuntimeError)        a user's dataset raised an error for a row
    ├── BadModelFile (ValueError)         the file is not a corgipile model
    ├── WriteFailed (OSError)             a file could not be written; an existing one is unchanged
    ├── MissingExtra (ImportError)        an optional dependency is not installed
    ├── BadStatement (ValueError)         SQL that does not parse: line, column
    ├── ServerError (RuntimeError)        a PostgreSQL server cannot be built for, started or reached
    └── Diverged (ArithmeticError)        the loss became NaN, infinite, or grew without bound

    ConvergenceWarning (UserWarning)      an exact solver found no single, finite optimum
    DivergenceWarning (UserWarning)       the final loss exceeds that of a constant predictor
    LeftOutWarning (UserWarning)          a text column is left out because some cells are not numbers

Messages state the rule, the value, and a remedy.
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
    "ConvergenceWarning",
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
    """Base of all errors that corgipile raises."""


class BadArgument(CorgiPileError, ValueError):
    """A parameter is out of range."""


class BadSize(BadArgument):
    """A block, buffer or memory size does not parse."""


class WouldOverwrite(BadArgument, FileExistsError):
    """An output path holds an input, or a file of another kind."""


class BudgetTooSmall(BadArgument):
    """The memory budget does not hold the smallest buffer."""


class TableError(CorgiPileError):
    """Stored data are damaged or unsuitable."""


class MissingFile(TableError, FileNotFoundError):
    """The path has no file."""

    errno = errno.ENOENT


class UnknownFormat(TableError, ValueError):
    """No reader recognises this kind of file."""


class CorruptFile(TableError, ValueError):
    """A file is truncated or contradicts its own metadata."""


class UntrustedPath(CorruptFile):
    """A file refers to a file outside its folder, and the caller did not pass ``trust="paths"``."""


class ReadFailed(TableError, OSError):
    """The device or the file system failed while reading; ``errno`` has the reason."""

    def __str__(self) -> str:
        """Return the message alone; the number is in ``errno``."""
        return str(self.args[-1]) if self.args else ""


class MissingColumn(TableError, KeyError):
    """The schema has no column of this name."""

    def __str__(self) -> str:
        """Return the plain message: KeyError would quote it."""
        return str(self.args[0]) if self.args else ""


class BadSchema(TableError, TypeError):
    """A column has an unsuitable type."""


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
    """Another rank died, timed out, or sent invalid data; the message names the rank and the operation."""


class FetchFailed(CorgiPileError, RuntimeError):
    """A dataset or transform raised an error for a row; that error is the cause."""


class BadModelFile(CorgiPileError, ValueError):
    """A file is not a model saved by corgipile."""


class WriteFailed(CorgiPileError, OSError):
    """A file could not be written; an existing file is unchanged and no partial file is left."""

    def __str__(self) -> str:
        """Return the message alone; the number is in ``errno``."""
        return str(self.args[-1]) if self.args else ""


class MissingExtra(CorgiPileError, ImportError):
    """An optional dependency is not installed."""


class BadStatement(CorgiPileError, ValueError):
    """A SQL statement does not parse; the message shows the place.

    Attributes:
        line: The line of the script, from 1 on.
        column: The character of that line, from 1 on.
        incomplete: Whether more text could complete it: a string, a comment or a bracket is open.
    """

    line: int = 1
    column: int = 1
    incomplete: bool = False


class ServerError(CorgiPileError, RuntimeError):
    """A PostgreSQL server cannot be built for, started or reached."""


class Diverged(CorgiPileError, ArithmeticError):
    """Training diverged: the loss is NaN, infinite, or grows without bound."""


class ConvergenceWarning(UserWarning):
    """An exact solver found no single, finite optimum: classes are separable, features dependent, or passes few."""


class DivergenceWarning(UserWarning):
    """The final loss exceeds that of a constant predictor: the model is useless."""


class LeftOutWarning(UserWarning):
    """A text column is left out of the features although nearly all of its cells are numbers."""
