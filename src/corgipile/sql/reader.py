"""Recursive-descent reader of a statement's tokens; it cuts the engine's SQL out of the script."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

from corgipile.errors import BadStatement
from corgipile.sql.dialect import is_path
from corgipile.sql.statements import Fragment, ModelCall, Parameter, Path, Piece
from corgipile.sql.tokens import CLOSING, RESERVED, Token, syntax_error
from corgipile.suggestions import did_you_mean

__all__ = ["Reader", "Script"]

DOUBLE, SINGLE = '"', "'"
MAX_CALL_DEPTH = 32  # of model calls inside model calls
ORDINARY = frozenset("=<>!+-*/%|,:")  # signs after which an adjacent question mark is a parameter
Call = Callable[["Reader"], "tuple[ModelCall, int] | None"]


@dataclass
class Script:
    """A script being parsed, with the parameter number of each question mark and the model calls by offset."""

    text: str
    dialect: str
    places: dict[int, int] = field(default_factory=dict)
    call: Call = lambda _: None
    calls: dict[int, tuple[ModelCall, int] | None] = field(default_factory=dict)

    def column(self, token: Token) -> str:
        """Return the name of a column or table as the engine folds it: PostgreSQL lowercases unquoted names."""
        if token.kind == "word" and self.dialect == "postgres":
            return "".join(chr(ord(c) + 32) if "A" <= c <= "Z" else c for c in token.text)
        return token.text

    def parameter(
        self, token: Token, before: Token | None, after: Token | None, *, subscript: bool
    ) -> Parameter | None:
        """Return the parameter that begins at a token, or None."""
        if token.kind == "place":
            key = token.text[1:]
            return Parameter(int(key) if key.isdigit() else key)
        if token.kind != "sign" or token.text not in "?:":
            return None
        touches = before is not None and before.stop == token.start
        operand = before is not None and _is_operand(before)
        if token.text == "?":
            if self.dialect == "postgres" and (operand or (touches and before.text[-1] not in ORDINARY | {"(", "["})):  # type: ignore[union-attr]
                return None
            return Parameter(self.places.setdefault(token.start, len(self.places) + 1))
        named = after is not None and after.kind == "word" and after.start == token.stop
        sliced = subscript and (operand or (before is not None and before.text == "["))
        if not named or sliced or (operand and touches):
            return None
        return Parameter(after.text)  # type: ignore[union-attr]


def _is_operand(token: Token) -> bool:
    """Return whether a token can end an operand, so that an operator follows."""
    if token.kind == "sign":
        return token.text in (")", "]", "}")
    return token.kind != "word" or token.text.upper() not in RESERVED


class Reader:
    """Reads a range of a statement's tokens, enclosed by so many (``deep``) model calls."""

    def __init__(
        self, script: Script, tokens: Sequence[Token], at: int = 0, stop: int | None = None, deep: int = 0
    ) -> None:
        self.script, self.tokens, self.at, self.deep = script, tokens, at, deep
        self.stop = len(tokens) if stop is None else stop

    def part(self, at: int, stop: int, deep: int = 0) -> "Reader":
        """Return a reader of a subrange of the tokens."""
        if self.deep + deep > MAX_CALL_DEPTH:
            raise self.error(f"model calls must nest at most {MAX_CALL_DEPTH} levels deep", at)
        return Reader(self.script, self.tokens, at, stop, self.deep + deep)

    def peek(self, ahead: int = 0) -> Token | None:
        """Return a token without reading it, or None after the last."""
        at = self.at + ahead
        return self.tokens[at] if at < self.stop else None

    def next_is(self, *words: str) -> bool:
        """Return whether these words or signs come next."""
        return all((token := self.peek(i)) is not None and token.matches(word) for i, word in enumerate(words))

    def accept(self, *words: str) -> bool:
        """Read these words if they come next; return whether they did."""
        matched = self.next_is(*words)
        self.at += len(words) * matched
        return matched

    def expect(self, *words: str, what: str = "") -> None:
        """Read these words, or raise BadStatement if something else comes next."""
        for word in words:
            if not self.accept(word):
                raise self.unexpected(what or " ".join(words), words)

    def next(self, what: str, *kinds: str) -> Token:
        """Read a token of these kinds."""
        token = self.peek()
        if token is None or token.kind not in kinds:
            raise self.unexpected(what)
        self.at += 1
        return token

    def end(self, what: str = "the end of the statement") -> None:
        """Check that no token is left."""
        if self.peek() is not None:
            raise self.unexpected(what)

    def error(self, message: str, at: int | None = None) -> BadStatement:
        """Return an error at a token, by default the next one."""
        at = self.at if at is None else at
        exists = at < min(self.stop, len(self.tokens))
        place = self.tokens[at].start if exists else self.tokens[at - 1].stop if at else 0
        return syntax_error(self.script.text, place, message)

    def unexpected(self, what: str, words: Sequence[str] = ()) -> BadStatement:
        """Return the error for an unexpected next token."""
        token = self.peek()
        if token is None:
            ends = "the statement ends" if self.stop == len(self.tokens) else f"{self.tokens[self.stop].text!r} comes"
            return self.error(f"expected {what}, but {ends} here")
        shown = self.script.text[token.start : token.stop]
        shown = shown if len(shown) <= 60 else f"{shown[:57]}..."
        return self.error(
            f"expected {what}, got {shown}{'' if token.kind == 'sign' else did_you_mean(token.text, words)}"
        )

    def closing_bracket(self, at: int) -> int:
        """Return the index of the token that closes the bracket opened at `at`."""
        depth = 0
        for i in range(at, len(self.tokens)):
            token = self.tokens[i]
            if token.kind == "sign":
                depth += (token.text in CLOSING) - (token.text in ")]}")
                if not depth:
                    return i
        raise self.error("this bracket is not closed", at)

    def top_level(self) -> Iterator[int]:
        """Yield the indices of tokens outside brackets; opening brackets count as outside, closing ones do not."""
        depth = 0
        for i in range(self.at, self.stop):
            token = self.tokens[i]
            if not depth:
                yield i
            if token.kind == "sign":
                depth += (token.text in CLOSING) - (token.text in ")]}")

    def gap_before(self, at: int) -> str:
        """Return the text between a token and the previous one."""
        inside = 0 < at < len(self.tokens)
        return self.script.text[self.tokens[at - 1].stop : self.tokens[at].start] if inside else ""

    def fragment(self) -> Fragment:
        """Return the SQL of the remaining tokens."""
        if self.at >= self.stop:
            return Fragment(())
        text, done, i = self.script.text, self.tokens[self.at].start, self.at
        pieces: list[Piece] = []
        brackets: list[bool] = []
        while i < self.stop:
            piece, stop = self._special(i, brackets)
            if piece is not None:
                pieces += [text[done : self.tokens[i].start], piece]
                done = self.tokens[stop - 1].stop
            i = stop
        pieces.append(text[done : self.tokens[self.stop - 1].stop])
        return Fragment(tuple(piece for piece in pieces if piece != ""))

    def _special(self, i: int, brackets: list[bool]) -> tuple[Piece | None, int]:
        """Return what replaces the token, and the next token; track subscript brackets."""
        token, before = self.tokens[i], self.tokens[i - 1] if i > self.at else None
        if token.kind == "sign" and token.text in CLOSING:
            brackets.append(token.text == "[" and before is not None and _is_operand(before))
        elif token.kind == "sign" and token.text in ")]}":
            del brackets[-1:]
        elif token.kind in ("place", "sign"):
            after = self.tokens[i + 1] if i + 1 < self.stop else None
            parameter = self.script.parameter(token, before, after, subscript=bool(brackets and brackets[-1]))
            if parameter is not None:
                return parameter, i + 1 + (token.text == ":")
        elif token.matches("ML"):
            if token.start not in self.script.calls:
                self.script.calls[token.start] = self.script.call(self.part(i, self.stop))
            return self.script.calls[token.start] or (None, i + 1)
        return self._translated(token), i + 1

    def _translated(self, token: Token) -> Piece | None:
        """Return a token as the engine writes it, or None if it is written as in the script."""
        text, start = self.script.text, token.start
        if is_path(token, text):
            return Path(tuple(token.text.split(".")))
        if token.kind == "name" and text[start] == "`":
            return f"{DOUBLE}{token.text.replace(DOUBLE, DOUBLE * 2)}{DOUBLE}"
        if token.kind == "string" and text[start] == DOUBLE:
            return f"'{token.text.replace(SINGLE, SINGLE * 2)}'"
        return token.text if token.kind in ("word", "sign") and text[start : token.stop] != token.text else None
