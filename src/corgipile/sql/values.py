"""Reads values of settings: numbers, text, sizes such as 10MB and 10%, lists, names, and places for values to come."""

import re
from typing import Any

from corgipile.errors import BadStatement
from corgipile.sql.reader import Reader
from corgipile.sql.statements import Parameter

__all__ = ["CLAUSES", "column_names", "value"]

CLAUSES = ("WITH", "LABEL", "GROUP", "USING", "INTO")
DEEPEST = 4  # lists in lists
UNIT = re.compile(r"[KMGT]I?B?|B", re.IGNORECASE)
NAMING = (":", "=", "=>", ":=")
WORDS = {"TRUE": True, "FALSE": False, "NULL": None}


def value(reader: Reader, deep: int = 0) -> Any:
    """Read a value: as Python has it, or a `Parameter`; a word that is nothing else is text.

    Raises:
        BadStatement: There is none.
    """
    token, before, after = reader.peek(), _before(reader), reader.peek(1)
    if token is None or token.says(*CLAUSES):
        raise reader.expected("a value")
    if found := reader.script.parameter(token, before, after, subscript=False):
        reader.at += 1 + (token.text == ":")
        return found
    if token.kind in ("string", "name"):
        reader.at += 1
        return token.text
    if token.kind == "number" or token.text in ("-", "+"):
        return _number(reader)
    if token.says("ARRAY", "STRUCT") and after is not None and after.text in ("[", "("):
        reader.at += 1
        return _listed(reader, deep)
    if token.kind == "word":
        return _word(reader)
    if token.text in ("[", "(", "{"):
        return _listed(reader, deep)
    raise reader.expected("a value")


def _before(reader: Reader) -> Any:
    return reader.tokens[reader.at - 1] if reader.at else None


def _number(reader: Reader) -> Any:
    """Read a number or a size."""
    sign = -1 if reader.peek().text == "-" else 1  # type: ignore[union-attr]  # it was seen
    reader.at += reader.sees("-") or reader.sees("+")
    token = reader.next("a number", "number")
    after = reader.peek()
    touches = after is not None and after.start == token.stop
    if touches and sign > 0 and after is not None and (after.text == "%" or UNIT.fullmatch(after.text)):
        reader.at += 1
        return token.text + after.text
    try:
        text = token.text.replace("_", "")
        return sign * (int(text, 0) if text[:2].lower() in ("0x", "0b", "0o") else int(text))
    except ValueError:
        pass
    try:
        return sign * float(token.text.replace("_", ""))
    except ValueError:
        raise reader.wrong(f"{token.text} is no number", reader.at - 1) from None


def _word(reader: Reader) -> Any:
    """Read a word, with a parameter behind a colon: riffle, hash:256."""
    token = reader.next("a value", "word")
    if token.text.upper() in WORDS:
        return WORDS[token.text.upper()]
    colon, after = reader.peek(), reader.peek(1)
    if colon is not None and colon.text == ":" and colon.start == token.stop and after is not None:
        if after.kind not in ("word", "number"):
            reader.at += 1
            raise reader.expected("a number")
        reader.at += 2
        return f"{token.text}:{after.text}"
    return token.text


def _listed(reader: Reader, deep: int) -> Any:
    """Read a list in brackets, or what belongs to names: ``{city: onehot}``, ``(city = onehot)``."""
    if deep >= DEEPEST:
        raise reader.wrong(f"lists are nested more than {DEEPEST} deep")
    reader.at += 1
    items: list[Any] = []
    named: dict[str, Any] = {}
    while not (reader.peek() is not None and reader.peek().text in ")]}" and reader.peek().kind == "sign"):  # type: ignore[union-attr]
        key, sign = reader.peek(), reader.peek(1)
        if (
            key is not None
            and key.kind != "number"
            and sign is not None
            and sign.text in NAMING
            and sign.kind == "sign"
        ):
            reader.at += 2
            named[reader.script.column(key)] = value(reader, deep + 1)
        else:
            items.append(value(reader, deep + 1))
        if reader.peek() is None or not (reader.takes(",") or reader.peek().text in ")]}"):  # type: ignore[union-attr]
            raise reader.expected(", or the end of the list")
    reader.at += 1
    if named and items:
        raise reader.wrong("some values of this list have names, some have none", reader.at - 1)
    return named or items


def column_names(reader: Reader) -> Any:
    """Read one column's name, or a list of them; the value is a list, or a `Parameter`.

    Raises:
        BadStatement: There is none.
    """
    begin = reader.at
    token = reader.peek()
    if token is not None and (
        token.kind in ("name", "string") or (token.kind == "word" and not token.says("ARRAY", "WITH", "USING", "INTO"))
    ):
        reader.at += 1
        return [reader.script.column(token)]
    if token is not None and (token.says("ARRAY") or token.text in ("[", "(")):
        reader.takes("ARRAY")
        return _columns(reader)
    found = value(reader)
    if isinstance(found, Parameter):
        return found
    raise _no_columns(reader, begin)


def _columns(reader: Reader) -> list[str]:
    begin = reader.at
    reader.at += 1
    names: list[str] = []
    while not (reader.takes(")") or reader.takes("]")):
        names.append(reader.script.column(reader.next("the name of a column", "word", "name", "string")))
        if not (reader.takes(",") or reader.sees(")") or reader.sees("]")):
            raise reader.expected(", or the end of the list")
    if not names:
        raise _no_columns(reader, begin)
    return names


def _no_columns(reader: Reader, at: int) -> BadStatement:
    return reader.wrong("expected the name of a column, or a list of them", at)
