"""Parser of SQL scripts: statements that train and use models; all others pass through to the engine.

::

    SELECT columns FROM table … TRAIN BY model [WITH setting = value, …] [LABEL column] [USING model] [INTO name]
    [INSERT INTO … | CREATE TABLE … AS | …] SELECT columns FROM table … PREDICT BY model [AS column]
    CREATE [OR REPLACE] MODEL [IF NOT EXISTS] name OPTIONS (option = value, …) AS SELECT …
    EXPLAIN [ANALYZE] SELECT … TRAIN BY …
    DROP MODEL, ALTER MODEL … RENAME TO, SHOW MODELS, DESCRIBE MODEL
"""

from typing import TYPE_CHECKING, Any

from corgipile.errors import BadArgument
from corgipile.lazy import lazy
from corgipile.sql.calls import model_call, model_name
from corgipile.sql.dialect import engine_tokens
from corgipile.sql.reader import Reader, Script
from corgipile.sql.sources import source_of
from corgipile.sql.statements import Explain, Fragment, Predict, Query, Statement, Train
from corgipile.sql.tokens import statements, syntax_error
from corgipile.sql.values import CLAUSES, column_names

if TYPE_CHECKING:
    from corgipile.sql import bigquery, options
else:  # these load all settings
    bigquery, options = lazy("corgipile.sql.bigquery"), lazy("corgipile.sql.options")

__all__ = ["DIALECTS", "parse"]

DIALECTS = {"duckdb": "duckdb", "postgres": "postgres", "postgresql": "postgres"}
BEFORE = "WHERE, ORDER BY and LIMIT stand before"


def parse(script: str, dialect: str = "duckdb") -> list[Statement]:
    """Parse a script into statements, which semicolons separate.

    Args:
        script: The SQL.
        dialect: The engine's dialect, ``"duckdb"`` or ``"postgres"``.

    Raises:
        BadStatement: A statement does not parse; the message shows the position.

    Example:
        >>> train, = parse("SELECT * FROM 'higgs.parquet' TRAIN BY svm WITH max_epoch_num = 20, block_size = 10MB")
        >>> train.source.file, train.model, train.settings
        ('higgs.parquet', 'svm', {'epochs': 20, 'block': '10MB'})
    """
    if not isinstance(script, str):
        raise BadArgument(f"an SQL script must be text, got {type(script).__name__}")
    if dialect not in DIALECTS:
        raise BadArgument(f"dialect must be one of {', '.join(DIALECTS)}, got {dialect!r}")
    text = Script(script, DIALECTS[dialect], call=model_call)
    read = (engine_tokens(tokens, script, text.dialect) for tokens in statements(script))
    return [_statement(Reader(text, tokens)) for tokens in read]


def _statement(reader: Reader) -> Statement:
    if _keeps_places(reader):
        first, last = reader.tokens[0], reader.tokens[-1]
        return Query(offset=first.start, sql=Fragment((reader.script.text[first.start : last.stop],)))
    whole = reader.part(0, reader.stop).fragment()  # first, to number question marks in their order
    _check_places(reader)
    offset = reader.tokens[0].start
    statement = _of_models(reader, offset) or _prediction(reader, offset)
    return statement or Query(offset=offset, sql=whole)


def _of_models(reader: Reader, offset: int) -> Statement | None:
    """Read a statement that trains or manages models; the settings are loaded only if its words need them."""
    if not any(token.matches("MODEL", "MODELS", "TRAIN") for token in reader.tokens):
        return None
    return bigquery.manage(reader, offset) or _explain(reader, offset) or _training(reader, offset)


def _keeps_places(reader: Reader) -> bool:
    """Return whether parameters belong to a prepared statement or a function, not to our values."""
    words = [token.text.upper() for token in reader.tokens[:4] if token.kind == "word"]
    return words[:1] == ["PREPARE"] or (words[:1] == ["CREATE"] and bool({"FUNCTION", "PROCEDURE"} & set(words)))


def _check_places(reader: Reader) -> None:
    """Check that parameters are either ``?`` or numbered, not both."""
    counted = [at for at in reader.script.places if at >= reader.tokens[0].start]
    numbered = [token for token in reader.tokens if token.kind == "place" and token.text[1:].isdigit()]
    if counted and numbered:
        raise syntax_error(
            reader.script.text, numbered[0].start, "parameters are ? or $1, $2, …, not both in one statement"
        )


def _explain(reader: Reader, offset: int) -> Statement | None:
    """Read EXPLAIN of a training; return None for other statements."""
    look = reader.part(0, reader.stop)
    if not look.accept("EXPLAIN"):
        return None
    listed = look.at if look.next_is("(") and not look.next_is("(", "SELECT") else None
    if listed is not None:
        look.at = look.closing_bracket(listed) + 1
    analyze = listed is None and look.accept("ANALYZE")
    train = _training(look, offset)
    if train is None:
        return None
    if listed is not None:
        analyze = _explain_options(look.part(listed + 1, look.closing_bracket(listed)))
    return Explain(offset=offset, notes=train.notes, train=train, analyze=analyze)


def _explain_options(look: Reader) -> bool:
    """Read ``(ANALYZE)`` with an optional true or false."""
    what = "ANALYZE, the only option of EXPLAIN … TRAIN BY"
    look.expect("ANALYZE", what=what)
    off = look.accept("FALSE") or look.accept("OFF")
    if not off:
        _ = look.accept("TRUE") or look.accept("ON")
    look.end(") after ANALYZE")
    return not off


def _training(reader: Reader, offset: int) -> Train | None:
    if (train := bigquery.create_model(reader, offset)) is not None:
        return train
    at = _clause(reader, "TRAIN")
    if at is None:
        return None
    first = reader.at
    begins = any(reader.next_is(word) for word in ("SELECT", "WITH", "FROM", "(", "TABLE", "VALUES"))
    if not begins or at not in reader.part(first, reader.stop).top_level():
        raise reader.error("TRAIN BY must end a whole statement: SELECT … TRAIN BY model INTO name", at)
    reader.at = at + 2
    model = options.loss_name(reader)
    clauses = _clauses(reader)
    if clauses.get("settings", {}).get("warm_start") is not None and clauses.get("warm_start") is not None:
        raise reader.error("USING and warm_start both name the model to start from; give one of them", at)
    if "by" in clauses and clauses.get("settings", {}).get("by") is not None:
        raise reader.error("GROUP BY and by both name the group column; give one of them", at)
    return Train(offset=offset, source=source_of(reader.part(first, at)), model=model, **_train_arguments(clauses))


def _clauses(reader: Reader) -> dict[str, Any]:
    """Read the clauses after the model, in any order."""
    clauses: dict[str, Any] = {}
    names = {"WITH": "settings", "LABEL": "label", "GROUP": "by", "USING": "warm_start", "INTO": "name"}
    while reader.peek() is not None:
        word = next((word for word in CLAUSES if reader.next_is(word)), None)
        if word is None:
            raise reader.unexpected(f"{', '.join(CLAUSES)} or the end of the statement ({BEFORE} TRAIN BY)", CLAUSES)
        if names[word] in clauses:
            raise reader.error(f"{word} is given twice")
        reader.at += 1
        clauses[names[word]] = _clause_value(reader, word)
    return clauses


def _clause_value(reader: Reader, word: str) -> Any:
    """Read the value of a clause."""
    if word == "WITH":
        settings: dict[str, Any] = {}
        for name in options.assignments(reader, CLAUSES):
            options.setting(reader, name, settings)
        return settings
    if word == "GROUP":
        reader.expect("BY", what="BY and a column: GROUP BY region trains a model for each of its values")
    if word in ("LABEL", "GROUP"):
        at, columns = reader.at, column_names(reader)
        if isinstance(columns, list) and len(columns) != 1:
            raise reader.error(f"{'LABEL' if word == 'LABEL' else 'GROUP BY of TRAIN BY'} must name one column", at)
        return columns[0] if isinstance(columns, list) else columns
    return model_name(reader, "the name of a model" if word == "USING" else "a name for the model")


def _train_arguments(clauses: dict[str, Any]) -> dict[str, Any]:
    """Return keyword arguments of `Train`; settings with their own field move there."""
    settings = clauses.setdefault("settings", {})
    if not isinstance(clauses.get("label", ""), str):
        settings["label"] = clauses.pop("label")
    if "by" in clauses:
        settings["by"] = clauses.pop("by")
    for name in ("features", "label", "warm_start"):
        if isinstance(settings.get(name), str | tuple):
            clauses[name] = settings.pop(name)
    return clauses


def _prediction(reader: Reader, offset: int) -> Predict | None:
    at = _clause(reader, "PREDICT")
    if at is None:
        return None
    level, stop = _group(reader, at)
    first = _begin(reader, level, at)
    if first >= at:
        raise reader.error("PREDICT BY must follow the SELECT whose rows are predicted", at)
    source = source_of(reader.part(first, at))
    tail = reader.part(at + 2, reader.stop)
    model = model_name(tail)
    named = tail.accept("AS")
    column = tail.script.column(tail.next("a name for the column", "word", "name")) if named else "prediction"
    before = Fragment((*reader.part(0, first).fragment().pieces, reader.gap_before(first)))
    after = Fragment((tail.gap_before(tail.at), *tail.fragment().pieces))
    if tail.peek() is not None and (first == 0 or (tail.at < stop and first == level[0])):
        raise tail.unexpected(f"AS and a name for the column, or the end of the statement ({BEFORE} PREDICT BY)")
    if _clause(tail, "PREDICT") is not None:
        raise reader.error("PREDICT BY is given twice; ML.PREDICT(MODEL m, (SELECT …)) can be used several times", at)
    return Predict(offset=offset, source=source, model=model, before=before, after=after, column=column)


def _clause(reader: Reader, word: str) -> int | None:
    """Return the index of TRAIN BY or PREDICT BY where the word cannot be a column or table name."""
    for at in range(reader.at + 1, reader.stop - 1):
        if reader.tokens[at].matches(word) and reader.tokens[at + 1].matches("BY"):
            after = reader.tokens[at + 2] if at + 2 < reader.stop else None
            before = reader.tokens[at - 1]
            named = before.matches("SELECT", ",", ".", "AS", "BY", "AND", "OR", "=") or (
                after is not None and after.matches("FROM", ",", ".", "::", "=")
            )
            if not named:
                return at
    return None


def _group(reader: Reader, at: int) -> tuple[list[int], int]:
    """Return the tokens at the same bracket level as a token, and where its bracket closes."""
    opened = [0]
    for i in range(at):
        token = reader.tokens[i]
        if token.kind == "sign" and token.text in "([{":
            opened.append(i + 1)
        elif token.kind == "sign" and token.text in ")]}":
            opened.pop()
    begin = opened[-1]
    stop = reader.closing_bracket(begin - 1) if begin else reader.stop
    return list(reader.part(begin, stop).top_level()), stop


def _begin(reader: Reader, level: list[int], at: int) -> int:
    """Return the start of the query that ends at a token, or that token if there is none."""
    main = next((i for i in level if reader.tokens[i].matches("SELECT")), at)
    for i in level:
        token = reader.tokens[i]
        follows = reader.tokens[i + 1] if i + 1 < at else None
        rows = token.matches("FROM") and (i == level[0] or reader.tokens[i - 1].matches("AS"))
        names = token.matches("WITH") and follows is not None and not follows.matches("(")
        between = (reader.tokens[j] for j in level if i < j < main)
        if names and any(token.matches("INSERT", "UPDATE", "DELETE", "MERGE") for token in between):
            continue
        if i >= main or rows or names:
            return min(i, at)
    return at
