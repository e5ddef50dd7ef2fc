"""Lexer of SQL scripts: tokens with their positions, split into statements.

SQL for an engine is cut out of the script itself, white space and comments included. Only quotes, comments, brackets
and parameters matter here, so one lexer serves all engines.
"""

import re
import unicodedata
from collections.abc import Iterator
from typing import NamedTuple

from corgipile.errors import BadStatement
from corgipile.nesting import MAX_SQL_DEPTH

__all__ = ["RESERVED", "Token", "complete", "statements", "syntax_error", "tokenize"]

CLOSING = {"(": ")", "[": "]", "{": "}"}
MAX_EXCERPT = 100  # characters of a long line shown around an error
GAP = re.compile(r"(?:[\s\ufeff]|--[^\n]*|#standardSQL\b)+", re.IGNORECASE)
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
# Words that cannot end an operand, so that a value may follow.
RESERVED = frozenset(
    """ALL ANALYZE AND ANY ARRAY AS ASC BETWEEN BY CASE CAST COLLATE CREATE CROSS DESC DISTINCT DO ELSE ESCAPE EXCEPT
    FETCH FILTER FOR FROM FULL GLOB GROUP HAVING ILIKE IN INNER INSERT INTERSECT INTERVAL INTO IS ISNULL JOIN LATERAL
    LEFT LIKE LIMIT NATURAL NOT NOTNULL OFFSET ON ONLY OR ORDER OUTER OVER PARTITION QUALIFY RETURNING RIGHT ROWS SELECT
    SET SIMILAR SOME TABLE THEN TO UNION UPDATE USING VALUES WHEN WHERE WINDOW WITH""".split()  # noqa: SIM905
)


class Token(NamedTuple):
    """A token of a script, with its offsets.

    The kind is ``word``, ``name`` (in quotes), ``string``, ``number``, ``place`` (``$1``, ``$name``) or ``sign``; the
    text of names and strings is unquoted.
    """

    kind: str
    text: str
    start: int
    stop: int

    def matches(self, *words: str) -> bool:
        """Return whether the token is one of these words or signs; words are given in upper case."""
        return self.kind in ("word", "sign") and self.text.upper() in words


def syntax_error(script: str, place: int, message: str, *, incomplete: bool = False) -> BadStatement:
    r"""Return a syntax error whose message shows the line, with a caret below the position.

    Example:
        >>> print(syntax_error("SELECT *\nFROM t TRAIN BY", 23, "a model is needed"))
        line 2, column 15: a model is needed
        FROM t TRAIN BY
                      ^
    """
    place = min(place, len(script))
    begin = script.rfind("\n", 0, place) + 1
    end = script.find("\n", place)
    line, column = script.count("\n", 0, place) + 1, place - begin + 1
    text = script[begin : end if end >= 0 else len(script)].rstrip("\r")
    cut = max(0, min(column - 1 - MAX_EXCERPT // 2, len(text) - MAX_EXCERPT))
    shown, before = _plain(text[cut : cut + MAX_EXCERPT]), _plain(text[cut : column - 1])
    width = sum(2 if unicodedata.east_asian_width(c) in "WF" else not unicodedata.combining(c) for c in before)
    error = BadStatement(f"line {line}, column {column}: {message}\n{shown}\n{' ' * width}^")
    error.line, error.column, error.incomplete = line, column, incomplete
    return error


def _plain(text: str) -> str:
    """Replace characters that a terminal does not show as one character."""
    return "".join(c if c.isprintable() else " " if c.isspace() else "\N{REPLACEMENT CHARACTER}" for c in text)


def tokenize(script: str) -> list[Token]:
    r"""Return the tokens of a script; raise BadStatement if a string, quoted name or comment is not terminated.

    Example:
        >>> [token.text for token in tokenize("SELECT 'it''s' -- done\nFROM t TRAIN BY svm;")]
        ['SELECT', "it's", 'FROM', 't', 'TRAIN', 'BY', 'svm', ';']
    """
    return list(_tokens(script))


def _tokens(script: str) -> Iterator[Token]:
    if match := NO_TEXT.search(script):
        raise syntax_error(script, match.start(), f"character {ord(match[0]):#x} is not valid in text")
    at = 0
    while (at := _skipped(script, at)) < len(script):
        token = _quoted(script, at) or _plain_token(script, at)
        yield token
        at = token.stop


def _skipped(script: str, at: int) -> int:
    """Return the offset of the next token."""
    while True:
        if match := GAP.match(script, at):
            at = match.end()
        elif script.startswith("/*", at):
            at = _comment(script, at)
        else:
            return at


def _comment(script: str, begin: int) -> int:
    """Return the end of a comment; comments nest."""
    depth = 0
    for mark in COMMENT.finditer(script, begin):
        depth += 1 if mark[0] == "/*" else -1
        if not depth:
            return mark.end()
    raise syntax_error(script, begin, "this comment is not terminated; */ is missing", incomplete=True)


def _quoted(script: str, at: int) -> Token | None:
    """Return the string or quoted name that begins here."""
    mark = script[at]
    if mark in "'\"`":
        return _until(script, at, at, mark)
    if mark == "$" and (match := DOLLARS.match(script, at)):
        end = script.find(match[0], match.end())
        if end < 0:
            raise syntax_error(script, at, f"this string is not terminated; {match[0]} is missing", incomplete=True)
        return Token("string", script[match.end() : end], at, end + len(match[0]))
    if mark in "eEbBxXnNuU" and (match := PREFIXED.match(script, at) or NAMED.match(script, at)):
        return _until(script, at, match.end() - 1, script[match.end() - 1])
    return None


def _until(script: str, begin: int, at: int, mark: str) -> Token:
    """Return the quoted token that opens at `at`: doubled quotes are one; after E, backslashes escape."""
    backslash = script[begin] in "eE"
    stop = _escaped(script, at + 1) if backslash else _doubled(script, at + 1, mark)
    if stop < 0:
        what = "string" if mark == "'" else "name"
        raise syntax_error(script, begin, f"this {what} is not terminated; {mark} is missing", incomplete=True)
    text = script[at + 1 : stop].replace(mark * 2, mark)
    text = ESCAPED.sub(_character, text) if backslash else text
    return Token("string" if mark == "'" else "name", text, begin, stop + 1)


def _escaped(script: str, at: int) -> int:
    match = BACKSLASHED.match(script, at)
    return match.end() - 1 if match else -1


def _doubled(script: str, at: int, mark: str) -> int:
    while (stop := script.find(mark, at)) >= 0 and script.startswith(mark, stop + 1):
        at = stop + 2
    return stop


def _character(match: "re.Match[str]") -> str:
    escape = match[1]
    if escape[0] in "xuU" and len(escape) > 1:
        code = int(escape[1:], 16)
    elif escape[0] in "01234567":
        code = int(escape, 8)
    else:
        return ESCAPES.get(escape, escape)
    return chr(code) if code < 0x110000 else "\N{REPLACEMENT CHARACTER}"


def _plain_token(script: str, at: int) -> Token:
    for kind, pattern in (("word", WORD), ("number", NUMBER), ("place", PLACE)):
        if match := pattern.match(script, at):
            return Token(kind, match[0], at, match.end())
    for sign in SIGNS:
        if script.startswith(sign, at):
            return Token("sign", sign, at, at + len(sign))
    return Token("sign", script[at], at, at + 1)


def statements(script: str) -> list[list[Token]]:
    """Return the tokens of each nonempty statement of a script, without the semicolons; brackets must match.

    Example:
        >>> [len(tokens) for tokens in statements("SELECT f(1; 2); ; SELECT 3")]
        [7, 2]
    """
    parts: list[list[Token]] = [[]]
    brackets: list[Token] = []
    inside = 0  # depth of BEGIN ATOMIC and CASE in CREATE FUNCTION
    for token in tokenize(script):
        if token.kind == "sign" and token.text in CLOSING:
            brackets.append(token)
            if len(brackets) > MAX_SQL_DEPTH:
                raise syntax_error(script, token.start, f"brackets must nest at most {MAX_SQL_DEPTH} levels deep")
        elif token.kind == "sign" and token.text in ")]}":
            if not brackets or CLOSING[brackets[-1].text] != token.text:
                raise syntax_error(script, token.start, _closes(token, brackets))
            brackets.pop()
        elif token.text == ";" and token.kind == "sign" and not brackets and not inside:
            parts.append([])
            continue
        elif not brackets and token.kind == "word":
            inside = _inside(inside, token, parts[-1])
        parts[-1].append(token)
    if brackets:
        message = f"this bracket is not closed; {CLOSING[brackets[-1].text]} is missing"
        raise syntax_error(script, brackets[-1].start, message, incomplete=True)
    return [tokens for tokens in parts if tokens]


def _closes(token: Token, brackets: list[Token]) -> str:
    if not brackets:
        return f"{token.text} closes no open bracket"
    return f"{token.text} does not close the open {brackets[-1].text}; {CLOSING[brackets[-1].text]} is needed"


def _inside(inside: int, token: Token, before: list[Token]) -> int:
    """Return the nesting depth in BEGIN … END after a word; semicolons inside do not end the statement."""
    if token.matches("BEGIN"):
        words = [word.text.upper() for word in before[:4]]
        return inside + bool(words[:1] == ["CREATE"] and {"FUNCTION", "PROCEDURE"} & set(words))
    if inside and token.matches("CASE"):
        return inside + 1
    return inside - (inside > 0 and token.matches("END"))


def complete(script: str) -> bool:
    """Return whether a script can be run: it ends with a semicolon, or more text cannot repair it.

    Example:
        >>> complete("SELECT 1;"), complete("SELECT 1"), complete("SELECT ';"), complete("SELECT );")
        (True, False, False, True)
    """
    try:
        statements(script)
        tokens = tokenize(script)
    except BadStatement as error:
        return not error.incomplete
    return not tokens or tokens[-1].matches(";")
