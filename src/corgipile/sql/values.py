"""Parser of setting values: numbers, text, sizes such as 10MB and 10%, lists, names and parameters."""

import re
from typing import Any

from corgipile.errors import BadStatement
from corgipile.sql.reader import Reader
from corgipile.sql.statements import Parameter

__all__ = ["CLAUSES", "column_names", "value"]

CLAUSES = ("WITH", "LABEL", "GROUP", "USING", "INTO")
MAX_LIST_DEPTH = 4
UNIT = re.compile(r"[KMGT]I?B?|B", re.IGNORECASE)
NAMING = (":", "=", "=>", ":=")
WORDS = {"TRUE": True, "FALSE": False, "NULL": None}


def value(reader: Reader, deep: int = 0) -> Any:
    """Read a value as a Python value or a `Parameter`; other words are text."""
    token, before, after = reader.peek(), _before(reader), reader.peek(1)
    if token is None or token.matches(*CLAUSES):
        raise reader.unexpected("a value")
    if parameter := reader.script.parameter(token, before, after, subscript=False):
        reader.at += 1 + (token.text == ":")
        return parameter
    if token.kind in ("string", "name"):
        reader.at += 1
        return token.text
    if token.kind == "number" or token.text in ("-", "+"):
        return _number(reader)
    if token.matches("ARRAY", "STRUCT") and after is not None and after.text in ("[", "("):
        reader.at += 1
        return _listed(reader, deep)
    if token.kind == "word":
        return _word(reader)
    if token.text in ("[", "(", "{"):
        return _listed(reader, deep)
    raise reader.unexpected("a value")


def _before(reader: Reader) -> Any:
    return reader.tokens[reader.at - 1] if reader.at else None


def _number(reader: Reader) -> Any:
    """Read a number or a size."""
    sign = -1 if reader.peek().text == "-" else 1  # type: ignore[union-attr]  # the caller peeked
    reader.at += reader.next_is("-") or reader.next_is("+")
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
        raise reader.error(f"{token.text} is not a valid number", reader.at - 1) from None


def _word(reader: Reader) -> Any:
    """Read a word with an optional parameter after a colon, such as riffle or hash:256."""
    token = reader.next("a value", "word")
    if token.text.upper() in WORDS:
        return WORDS[token.text.upper()]
    colon, after = reader.peek(), reader.peek(1)
    if colon is not None and colon.text == ":" and colon.start == token.stop and after is not None:
        if after.kind not in ("word", "number"):
            reader.at += 1
            raise reader.unexpected("a number")
        reader.at += 2
        return f"{token.text}:{after.text}"
    return token.text


def _listed(reader: Reader, deep: int) -> Any:
    """Read a list in brackets, or a mapping: ``{city: onehot}``, ``(city = onehot)``."""
    if deep >= MAX_LIST_DEPTH:
        raise reader.error(f"lists must nest at most {MAX_LIST_DEPTH} levels deep")
    reader.at += 1
    items: list[Any] = []
    named: dict[str, Any] = {}
    while not (reader.peek() is not None and reader.peek().text in ")]}" and reader.peek().kind == "sign"):  # type: ignore[union-attr]
        key, sign = reader.peek(), reader.peek(1)
        names = sign is not None and sign.kind == "sign" and sign.text in NAMING
        if key is not None and key.kind != "number" and names:
            reader.at += 2
            named[reader.script.column(key)] = value(reader, deep + 1)
        else:
            items.append(value(reader, deep + 1))
        if reader.peek() is None or not (reader.accept(",") or reader.peek().text in ")]}"):  # type: ignore[union-attr]
            raise reader.unexpected(", or the end of the list")
    reader.at += 1
    if named and items:
        raise reader.error("either all values of a list must have names, or none", reader.at - 1)
    return named or items


def column_names(reader: Reader) -> Any:
    """Read a column name or a list of them; return a list or a `Parameter`."""
    begin = reader.at
    token = reader.peek()
    if token is not None and (
        token.kind in ("name", "string")
        or (token.kind == "word" and not token.matches("ARRAY", "WITH", "USING", "INTO"))
    ):
        reader.at += 1
        return [reader.script.column(token)]
    if token is not None and (token.matches("ARRAY") or token.text in ("[", "(")):
        reader.accept("ARRAY")
        return _columns(reader)
    parameter = value(reader)
    if isinstance(parameter, Parameter):
        return parameter
    raise _no_columns(reader, begin)


def _columns(reader: Reader) -> list[str]:
    begin = reader.at
    reader.at += 1
    names: list[str] = []
    while not (reader.accept(")") or reader.accept("]")):
        names.append(reader.script.column(reader.next("the name of a column", "word", "name", "string")))
        if not (reader.accept(",") or reader.next_is(")") or reader.next_is("]")):
            raise reader.unexpected(", or the end of the list")
    if not names:
        raise _no_columns(reader, begin)
    return names


def _no_columns(reader: Reader, at: int) -> BadStatement:
    return reader.error("expected a column name or a list of column names", at)
