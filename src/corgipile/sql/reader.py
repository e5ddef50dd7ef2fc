"""Reads the tokens of a statement one after the other, and cuts what engines are given out of the script."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

from corgipile.errors import BadStatement
from corgipile.sql.statements import Fragment, ModelCall, Parameter
from corgipile.sql.tokens import CLOSING, RESERVED, Token, wrong
from corgipile.suggestions import did_you_mean

__all__ = ["Reader", "Script"]

MOST_DEEP = 32  # calls of models inside calls of models
ORDINARY = frozenset("=<>!+-*/%|,:")  # after which a question mark is a value, where it touches them
Call = Callable[["Reader"], "tuple[ModelCall, int] | None"]


@dataclass
class Script:
    """A script that is read.

    Attributes:
        text: The script.
        dialect: Whose: ``"duckdb"`` or ``"postgres"``.
        places: The numbers of the question marks that are places, by where they stand.
        calls: The calls of models and where each ends, by where they begin, so that none is read twice.
    """

    text: str
    dialect: str
    places: dict[int, int] = field(default_factory=dict)
    calls: dict[int, tuple[ModelCall, int] | None] = field(default_factory=dict)

    def column(self, token: Token) -> str:
        """Return the name of a column or table as the engine takes it: PostgreSQL makes plain ones lower case."""
        if token.kind == "word" and self.dialect == "postgres":
            return "".join(chr(ord(c) + 32) if "A" <= c <= "Z" else c for c in token.text)
        return token.text

    def parameter(
        self, token: Token, before: Token | None, after: Token | None, *, subscript: bool
    ) -> Parameter | None:
        """Return the place for a value that begins at a token, if it is one."""
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
        if (
            not named
            or (operand and (touches or subscript))
            or (subscript and before is not None and before.text == "[")
        ):
            return None
        return Parameter(after.text)  # type: ignore[union-attr]


def _is_operand(token: Token) -> bool:
    """Say whether a token can end an operand, so that an operator follows."""
    if token.kind == "sign":
        return token.text in (")", "]", "}")
    return token.kind != "word" or token.text.upper() not in RESERVED


class Reader:
    """Reads tokens of a script from one place up to another.

    Args:
        script: The script.
        tokens: All tokens of a statement.
        at: The first token to read.
        stop: The token after the last.
        deep: In how many calls of models this is.
    """

    def __init__(
        self, script: Script, tokens: Sequence[Token], at: int = 0, stop: int | None = None, deep: int = 0
    ) -> None:
        self.script, self.tokens, self.at, self.deep = script, tokens, at, deep
        self.stop = len(tokens) if stop is None else stop

    def part(self, at: int, stop: int, deep: int = 0) -> "Reader":
        """Return a reader of some of the tokens."""
        if self.deep + deep > MOST_DEEP:
            raise self.wrong(f"models are called inside calls of models more than {MOST_DEEP} deep", at)
        return Reader(self.script, self.tokens, at, stop, self.deep + deep)

    def peek(self, ahead: int = 0) -> Token | None:
        """Return a token to come, None after the last."""
        at = self.at + ahead
        return self.tokens[at] if at < self.stop else None

    def sees(self, *words: str) -> bool:
        """Say whether these words or signs come next."""
        return all((token := self.peek(i)) is not None and token.says(word) for i, word in enumerate(words))

    def takes(self, *words: str) -> bool:
        """Read these words, if they come next."""
        found = self.sees(*words)
        self.at += len(words) * found
        return found

    def needs(self, *words: str, what: str = "") -> None:
        """Read these words.

        Raises:
            BadStatement: Something else comes next.
        """
        for word in words:
            if not self.takes(word):
                raise self.expected(what or " ".join(words), words)

    def next(self, what: str, *kinds: str) -> Token:
        """Read a token of these kinds."""
        token = self.peek()
        if token is None or token.kind not in kinds:
            raise self.expected(what)
        self.at += 1
        return token

    def end(self, what: str = "the end of the statement") -> None:
        """Check that nothing is left."""
        if self.peek() is not None:
            raise self.expected(what)

    def wrong(self, message: str, at: int | None = None) -> BadStatement:
        """Make the error of a token, the next one by default."""
        at = self.at if at is None else at
        inner = at < min(self.stop, len(self.tokens))
        place = self.tokens[at].start if inner else self.tokens[at - 1].stop if at else 0
        return wrong(self.script.text, place, message)

    def expected(self, what: str, words: Sequence[str] = ()) -> BadStatement:
        """Make the error of a token that should be something else."""
        token = self.peek()
        if token is None:
            ends = "the statement ends" if self.stop == len(self.tokens) else f"{self.tokens[self.stop].text!r} comes"
            return self.wrong(f"expected {what}, but {ends} here")
        shown = self.script.text[token.start : token.stop]
        shown = shown if len(shown) <= 60 else f"{shown[:57]}..."
        return self.wrong(
            f"expected {what}, got {shown}{'' if token.kind == 'sign' else did_you_mean(token.text, words)}"
        )

    def closing(self, at: int) -> int:
        """Return where the bracket closes that opens at a token."""
        depth = 0
        for i in range(at, len(self.tokens)):
            token = self.tokens[i]
            if token.kind == "sign":
                depth += (token.text in CLOSING) - (token.text in ")]}")
                if not depth:
                    return i
        raise self.wrong("this bracket does not close", at)

    def level(self) -> Iterator[int]:
        """Yield which tokens stand in no bracket of this part; an opening bracket does, what closes it does not."""
        depth = 0
        for i in range(self.at, self.stop):
            token = self.tokens[i]
            if not depth:
                yield i
            if token.kind == "sign":
                depth += (token.text in CLOSING) - (token.text in ")]}")

    def gap(self, at: int) -> str:
        """Return what lies between a token and the one before."""
        inside = 0 < at < len(self.tokens)
        return self.script.text[self.tokens[at - 1].stop : self.tokens[at].start] if inside else ""

    def fragment(self, call: Call) -> Fragment:
        """Return the text of all tokens to come as engines take it; `call` reads a call of a model that begins here."""
        if self.at >= self.stop:
            return Fragment(())
        text, done, i = self.script.text, self.tokens[self.at].start, self.at
        pieces: list[str | Parameter | ModelCall] = []
        brackets: list[bool] = []
        while i < self.stop:
            found, stop = self._special(i, brackets, call)
            if found is not None:
                pieces += [text[done : self.tokens[i].start], found]
                done = self.tokens[stop - 1].stop
            i = stop
        pieces.append(text[done : self.tokens[self.stop - 1].stop])
        return Fragment(tuple(piece for piece in pieces if piece != ""))

    def _special(self, i: int, brackets: list[bool], call: Call) -> tuple[Parameter | ModelCall | None, int]:
        """Return the place or call that begins at a token, and the token after it; keep whether brackets index."""
        token, before = self.tokens[i], self.tokens[i - 1] if i > self.at else None
        if token.kind == "sign" and token.text in CLOSING:
            brackets.append(token.text == "[" and before is not None and _is_operand(before))
        elif token.kind == "sign" and token.text in ")]}":
            del brackets[-1:]
        elif token.kind in ("place", "sign"):
            after = self.tokens[i + 1] if i + 1 < self.stop else None
            found = self.script.parameter(token, before, after, subscript=bool(brackets and brackets[-1]))
            return found, i + 1 + (found is not None and token.text == ":")
        elif token.says("ML"):
            if token.start not in self.script.calls:
                self.script.calls[token.start] = call(self.part(i, self.stop))
            return self.script.calls[token.start] or (None, i + 1)
        return None, i + 1
