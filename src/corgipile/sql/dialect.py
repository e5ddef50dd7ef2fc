"""Translation of BigQuery's SQL, recognised by names in backticks, to an engine's, token by token."""

from collections.abc import Sequence

from corgipile.sql.tokens import Token

__all__ = ["engine_tokens", "is_path"]

TYPES = {"INT64": "BIGINT", "FLOAT64": "DOUBLE PRECISION", "STRING": "VARCHAR", "BOOL": "BOOLEAN"}
FUNCTIONS = {"SAFE_CAST": "TRY_CAST", "RAND": "random", "IFNULL": "COALESCE"}
BEFORE_PATHS = ("FROM", "JOIN", "TABLE", "VIEW", "INTO", "EXISTS")


def is_path(token: Token, text: str) -> bool:
    """Return whether a token is a table path in backticks: a dataset and a table, or a wildcard."""
    return token.kind == "name" and text[token.start] == "`" and ("." in token.text or token.text.endswith("*"))


def engine_tokens(tokens: Sequence[Token], text: str, dialect: str) -> list[Token]:
    """Return a statement's tokens; of BigQuery's SQL with the engine's words, as strings what is in double quotes.

    A token whose text differs from the script's replaces it. Without names in backticks nothing changes.
    """
    if not any(token.kind == "name" and text[token.start] == "`" for token in tokens):
        return list(tokens)
    done: list[Token] = []
    for token in tokens:
        if token.kind == "name" and text[token.start] == '"':
            token = token._replace(kind="string")  # noqa: PLW2901
        if token.kind in ("word", "name") and _continues_path(done, text):
            first = done[-2]
            done[-2:] = [Token("name", f"{first.text}.{token.text}", first.start, token.stop)]
            continue
        done.append(token)
        _replace_words(done)
    return _with_unnest(done) if dialect == "duckdb" else done


def _continues_path(done: Sequence[Token], text: str) -> bool:
    """Return whether the next name continues a table path that begins in backticks, as in ```p`.d.t``."""
    if len(done) < 3 or done[-1].text != "." or done[-2].kind != "name" or text[done[-2].start] != "`":
        return False
    return done[-3].matches(*BEFORE_PATHS)


def _replace_words(done: list[Token]) -> None:
    """Replace the function, cast or extraction that the last token completes; BigQuery counts days of the week from 1.

    Nothing else is replaced, so that columns may have these names.
    """
    first, second, third, last = [*[Token("sign", "", 0, 0)] * 3, *done[-4:]][-4:]
    word = third.text.upper() if third.kind == "word" else ""
    if last.matches("(") and word in FUNCTIONS:
        done[-2] = third._replace(text=FUNCTIONS[word])
    elif last.matches(")") and word in TYPES and second.matches("AS"):
        done[-2] = third._replace(text=TYPES[word])
    elif last.matches("FROM") and word == "DAYOFWEEK" and first.matches("EXTRACT"):
        done[-2:] = [third._replace(text="isodow"), last._replace(text="FROM INTERVAL '1' DAY +")]


def _with_unnest(tokens: Sequence[Token]) -> list[Token]:
    """Return tokens where UNNEST in the position of a table gives a column for each field of a struct."""
    done: list[Token] = []
    opened: list[bool] = []
    for at, token in enumerate(tokens):
        if token.matches("("):
            table = at > 1 and tokens[at - 1].matches("UNNEST") and tokens[at - 2].matches("FROM", "JOIN", ",")
            opened.append(table and not (tokens[at - 2].matches(",") and any(opened)))
            if opened[-1]:
                done[-1] = done[-1]._replace(text="(SELECT unnest")
        closes = token.matches(")") and bool(opened) and opened.pop()
        done.append(token._replace(text=", recursive := true))") if closes else token)
    return done
