"""Completion of keywords, tables, columns, models, settings and files by context."""

import re
from collections.abc import Iterable, Iterator

from prompt_toolkit.completion import CompleteEvent, Completer, Completion
from prompt_toolkit.document import Document

from corgipile.sql.bigquery import OPTIONS
from corgipile.sql.shell.words import KEYWORDS, SETTINGS, Known, files, in_quotes, models, table_name, values_of

__all__ = ["SqlCompleter"]

# Comments, strings and quoted names, possibly unterminated; words; signs.
_TOKEN = re.compile(r"--[^\n]*|/\*.*?(?:\*/|\Z)|'(?:[^']|'')*(?:'|\Z)|\"(?:[^\"]|\"\")*(?:\"|\Z)|[\w.]+|\S", re.DOTALL)
_BEGUN = re.compile(r"[\w.]+|\"[^\"]*")
_TABLE_FOLLOWS = {"FROM", "JOIN", "TABLE", "UPDATE", "DESCRIBE", "VIEW"}


class SqlCompleter(Completer):
    """Completes SQL and shell commands, backslash included."""

    def __init__(self, known: Known, commands: Iterable[str]) -> None:
        self._known, self._commands = known, sorted(commands)

    def get_completions(self, document: Document, complete_event: CompleteEvent) -> Iterator[Completion]:
        """Yield the completions at the cursor."""
        before = document.text_before_cursor
        if before.lstrip().startswith("\\"):
            yield from self._of_command(before.lstrip())
            return
        *past, last = ["", *_TOKEN.findall(before)]
        if last.startswith("'") and last.count("'") % 2:
            yield from _paths(last[1:])
        elif not last.startswith(("--", "/*")) or not before.endswith(last):
            begun = last if before.endswith(last) and _BEGUN.fullmatch(last) else ""
            words = [word.upper() for word in (past if begun else [*past, last])]
            yield from _matching(begun, self._candidates(_of_statement(words), _TOKEN.findall(document.text)))

    def _of_command(self, line: str) -> Iterator[Completion]:
        command, blank, argument = line.partition(" ")
        if not blank:
            yield from _matching(command, self._commands)
        elif command == "\\d":
            yield from _matching(argument, [table_name(name) for name in self._known.tables])
        elif command in {"\\i", "\\o"}:
            yield from _paths(argument, close="")

    def _candidates(self, past: list[str], everything: list[str]) -> list[str]:
        """Return the words that may follow in a statement, best first."""
        last = past[-1] if past else ""
        clause = next((word for word in reversed(past) if word in _CLAUSES), "")
        tables = [table_name(name) for name in self._known.tables]
        if past[-2:] == ["TRAIN", "BY"]:
            candidates = models()
        elif past[-2:] == ["PREDICT", "BY"] or last in {"MODEL", "USING"}:
            candidates = [in_quotes(name) for name in self._known.models]
        elif last in {"WITH", ","} and clause == "WITH" and "TRAIN" in past:
            candidates = SETTINGS
        elif last in {"(", ","} and clause == "OPTIONS":
            candidates = [*OPTIONS, *SETTINGS]
        elif last in _TABLE_FOLLOWS or (last == "INTO" and "INSERT" in past):
            candidates = [*tables, *(word for word in sorted(KEYWORDS) if word.startswith("ML."))]
        else:
            candidates = values_of(past[-2].lower()) if last == "=" and clause in {"WITH", "OPTIONS"} else []
        return candidates or [*self._columns(everything), *sorted(KEYWORDS), *tables]

    def _columns(self, everything: list[str]) -> list[str]:
        """Return the columns of the tables in the statement, or of all tables."""
        tables = self._known.tables
        words = {token.strip('"') for token in everything}
        named = [name for name in tables if name in words or name.rpartition(".")[2] in words]
        return [in_quotes(column) for name in named or tables for column in tables[name]]


_CLAUSES = {"SELECT", "FROM", "WHERE", "BY", "WITH", "OPTIONS", "LABEL", "INTO", "USING"}


def _of_statement(tokens: list[str]) -> list[str]:
    """Return the tokens after the last semicolon."""
    ends = [at for at, sign in enumerate(tokens, 1) if sign == ";"]
    return tokens[ends[-1] :] if ends else tokens


def _matching(begun: str, candidates: Iterable[str]) -> Iterator[Completion]:
    lower_case = begun.islower()
    for candidate in dict.fromkeys(candidates):
        if candidate.strip('"').lower().startswith(begun.strip('"').lower()):
            text = candidate.lower() if lower_case and candidate in KEYWORDS else candidate
            yield Completion(text, start_position=-len(begun))


def _paths(begun: str, close: str = "'") -> Iterator[Completion]:
    for path, is_folder in files(begun):
        text = path if is_folder else path.replace("'", "''" if close else "'") + close
        yield Completion(text, start_position=-len(begun), display=path.rstrip("/").rpartition("/")[2])
