"""Cuts a script of SQL into tokens that know where they stand, and the tokens into statements.

What lies between tokens, white space and comments, is never looked at again: all that goes to an engine is cut out of
the script itself. Only quotes, comments, brackets and places of values matter here, so one lexer serves all engines.
"""

import re
import unicodedata
from collections.abc import Iterator
from typing import NamedTuple

from corgipile.errors import BadStatement
from corgipile.nesting import MAX_SQL_DEPTH

__all__ = ["RESERVED", "Token", "complete", "statements", "tokenize", "wrong"]

CLOSING = {"(": ")", "[": "]", "{": "}"}
SHOWN = 100  # characters of a long line, around the place of an error
GAP = re.compile(r"(?:[\s\ufeff]|--[^\n]*)+")
NO_TEXT = re.compile(r"[\0\ud800-\udfff]")
COMMENT = re.compile(r"/\*|\*/")
NUMBER = re.compile(r"0[xXbBoO][0-9a-fA-F_]+|(?:[0-9][0-9_]*(?:\.(?!\.)[0-9_]*)?|\.[0-9][0-9_]*)(?:[eE][+-]?[0-9]+)?")
WORD = re.compile(r"(?:[A-Za-z_]|[^\x00-\x7f\s])(?:[A-Za-z0-9_$]|[^\x00-\x7f\s])*")
PLACE = re.compile(r"\$(?:[0-9]+|[^\W\d]\w*)")
DOLLARS = re.compile(r"\$(?:[^\W\d]\w*)?\$")
BACKSLASHED = re.compile(r"(?:[^'\\]+|\\.|'')*+'", re.DOTALL)
PREFIXED = re.compile(r"([eE]|[bB]|[xX]|[nN]|[uU]&)'")
NAMED = re.compile(r"[uU]&\"")
ESCAPED = re.compile(r"\\(x[0-9a-fA-F]{1,2}|u[0-9a-fA-F]{4}|U[0-9a-fA-F]{8}|[0-7]{1,3}|.)", re.DOTALL)
ESCAPES = {"n": "\n", "t": "\t", "r": "\r", "b": "\b", "f": "\f"}
SIGNS = ("::", ":=", "=>", "->")
# Words that end no operand: a value may follow them.
RESERVED = frozenset(
    """ALL ANALYZE AND ANY ARRAY AS ASC BETWEEN BY CASE CAST COLLATE CREATE CROSS DESC DISTINCT DO ELSE ESCAPE EXCEPT
    FETCH FILTER FOR FROM FULL GLOB GROUP HAVING ILIKE IN INNER INSERT INTERSECT INTERVAL INTO IS ISNULL JOIN LATERAL
    LEFT LIKE LIMIT NATURAL NOT NOTNULL OFFSET ON ONLY OR ORDER OUTER OVER PARTITION QUALIFY RETURNING RIGHT ROWS SELECT
    SET SIMILAR SOME TABLE THEN TO UNION UPDATE USING VALUES WHEN WHERE WINDOW WITH""".split()  # noqa: SIM905
)


class Token(NamedTuple):
    """A token.

    Attributes:
        kind: ``word``, ``name`` (in quotes), ``string``, ``number``, ``place`` (``$1``, ``$name``) or ``sign``.
        text: What it says: of names and strings what the quotes hold.
        start: Characters of the script before it.
        stop: Characters of the script up to its end.
    """

    kind: str
    text: str
    start: int
    stop: int

    def says(self, *words: str) -> bool:
        """Say whether it is one of these words or signs, which are written in upper case."""
        return self.kind in ("word", "sign") and self.text.upper() in words


def wrong(script: str, place: int, message: str, *, incomplete: bool = False) -> BadStatement:
    r"""Make the error of a place in a script: its message shows the line, with a caret below.

    Example:
        >>> print(wrong("SELECT *\nFROM t TRAIN BY", 23, "a model is needed"))
        line 2, column 15: a model is needed
        FROM t TRAIN BY
                      ^
    """
    place = min(place, len(script))
    begin = script.rfind("\n", 0, place) + 1
    end = script.find("\n", place)
    line, column = script.count("\n", 0, place) + 1, place - begin + 1
    text = script[begin : end if end >= 0 else len(script)].rstrip("\r")
    cut = max(0, min(column - 1 - SHOWN // 2, len(text) - SHOWN))
    shown, before = _plain(text[cut : cut + SHOWN]), _plain(text[cut : column - 1])
    width = sum(2 if unicodedata.east_asian_width(c) in "WF" else not unicodedata.combining(c) for c in before)
    error = BadStatement(f"line {line}, column {column}: {message}\n{shown}\n{' ' * width}^")
    error.line, error.column, error.incomplete = line, column, incomplete
    return error


def _plain(text: str) -> str:
    """Replace what a terminal would not show as one character."""
    return "".join(c if c.isprintable() else " " if c.isspace() else "\N{REPLACEMENT CHARACTER}" for c in text)


def tokenize(script: str) -> list[Token]:
    r"""Return the tokens of a script.

    Raises:
        BadStatement: A string, a quoted name or a comment does not end.

    Example:
        >>> [token.text for token in tokenize("SELECT 'it''s' -- done\nFROM t TRAIN BY svm;")]
        ['SELECT', "it's", 'FROM', 't', 'TRAIN', 'BY', 'svm', ';']
    """
    return list(_tokens(script))


def _tokens(script: str) -> Iterator[Token]:
    if found := NO_TEXT.search(script):
        raise wrong(script, found.start(), f"character {ord(found[0]):#x} is none of a text")
    at = 0
    while (at := _skipped(script, at)) < len(script):
        token = _quoted(script, at) or _plain_token(script, at)
        yield token
        at = token.stop


def _skipped(script: str, at: int) -> int:
    """Return where the next token begins."""
    while True:
        if found := GAP.match(script, at):
            at = found.end()
        elif script.startswith("/*", at):
            at = _comment(script, at)
        else:
            return at


def _comment(script: str, begin: int) -> int:
    """Return the end of a comment, which may hold others."""
    depth = 0
    for mark in COMMENT.finditer(script, begin):
        depth += 1 if mark[0] == "/*" else -1
        if not depth:
            return mark.end()
    raise wrong(script, begin, "this comment does not end; */ is missing", incomplete=True)


def _quoted(script: str, at: int) -> Token | None:
    """Return the string or the name in quotes that begins here."""
    mark = script[at]
    if mark in "'\"`":
        return _until(script, at, at, mark)
    if mark == "$" and (found := DOLLARS.match(script, at)):
        end = script.find(found[0], found.end())
        if end < 0:
            raise wrong(script, at, f"this string does not end; {found[0]} is missing", incomplete=True)
        return Token("string", script[found.end() : end], at, end + len(found[0]))
    if mark in "eEbBxXnNuU" and (found := PREFIXED.match(script, at) or NAMED.match(script, at)):
        return _until(script, at, found.end() - 1, script[found.end() - 1])
    return None


def _until(script: str, begin: int, at: int, mark: str) -> Token:
    """Return what the quotes hold that open at a place; doubled ones are one, and after E a backslash means more."""
    backslash = script[begin] in "eE"
    stop = _escaped(script, at + 1) if backslash else _doubled(script, at + 1, mark)
    if stop < 0:
        what = "string" if mark == "'" else "name"
        raise wrong(script, begin, f"this {what} does not end; {mark} is missing", incomplete=True)
    text = script[at + 1 : stop].replace(mark * 2, mark)
    text = ESCAPED.sub(_character, text) if backslash else text
    return Token("string" if mark == "'" else "name", text, begin, stop + 1)


def _escaped(script: str, at: int) -> int:
    found = BACKSLASHED.match(script, at)
    return found.end() - 1 if found else -1


def _doubled(script: str, at: int, mark: str) -> int:
    while (stop := script.find(mark, at)) >= 0 and script.startswith(mark, stop + 1):
        at = stop + 2
    return stop


def _character(found: "re.Match[str]") -> str:
    said = found[1]
    if said[0] in "xuU" and len(said) > 1:
        code = int(said[1:], 16)
    elif said[0] in "01234567":
        code = int(said, 8)
    else:
        return ESCAPES.get(said, said)
    return chr(code) if code < 0x110000 else "\N{REPLACEMENT CHARACTER}"


def _plain_token(script: str, at: int) -> Token:
    for kind, pattern in (("word", WORD), ("number", NUMBER), ("place", PLACE)):
        if found := pattern.match(script, at):
            return Token(kind, found[0], at, found.end())
    for sign in SIGNS:
        if script.startswith(sign, at):
            return Token("sign", sign, at, at + len(sign))
    return Token("sign", script[at], at, at + 1)


def statements(script: str) -> list[list[Token]]:
    """Return the tokens of each statement of a script, without the semicolons between them; empty ones are left out.

    Raises:
        BadStatement: A bracket does not close, or closes what was not open.

    Example:
        >>> [len(tokens) for tokens in statements("SELECT f(1; 2); ; SELECT 3")]
        [7, 2]
    """
    found: list[list[Token]] = [[]]
    brackets: list[Token] = []
    inside = 0  # BEGIN ATOMIC and CASE, of a function that is created
    for token in tokenize(script):
        if token.kind == "sign" and token.text in CLOSING:
            brackets.append(token)
            if len(brackets) > MAX_SQL_DEPTH:
                raise wrong(script, token.start, f"brackets must nest at most {MAX_SQL_DEPTH} levels deep")
        elif token.kind == "sign" and token.text in ")]}":
            if not brackets or CLOSING[brackets[-1].text] != token.text:
                raise wrong(script, token.start, _closes(token, brackets))
            brackets.pop()
        elif token.text == ";" and token.kind == "sign" and not brackets and not inside:
            found.append([])
            continue
        elif not brackets and token.kind == "word":
            inside = _inside(inside, token, found[-1])
        found[-1].append(token)
    if brackets:
        missing = CLOSING[brackets[-1].text]
        raise wrong(script, brackets[-1].start, f"this bracket does not close; {missing} is missing", incomplete=True)
    return [tokens for tokens in found if tokens]


def _closes(token: Token, brackets: list[Token]) -> str:
    if not brackets:
        return f"{token.text} closes a bracket that does not open"
    return f"{token.text} does not close the {brackets[-1].text} before; {CLOSING[brackets[-1].text]} is needed"


def _inside(inside: int, token: Token, before: list[Token]) -> int:
    """Return how deep a word is inside BEGIN … END of its statement, where semicolons end nothing."""
    if token.says("BEGIN"):
        words = [word.text.upper() for word in before[:4]]
        return inside + bool(words[:1] == ["CREATE"] and {"FUNCTION", "PROCEDURE"} & set(words))
    if inside and token.says("CASE"):
        return inside + 1
    return inside - (inside > 0 and token.says("END"))


def complete(script: str) -> bool:
    """Say whether a script is to be run as it is: its last statement ends with a semicolon, or nothing can mend it.

    Example:
        >>> complete("SELECT 1;"), complete("SELECT 1"), complete("SELECT ';"), complete("SELECT );")
        (True, False, False, True)
    """
    try:
        statements(script)
        tokens = tokenize(script)
    except BadStatement as error:
        return not error.incomplete
    return not tokens or tokens[-1].says(";")
