"""Reads a script of SQL: the statements that train and use models, and those of the engine, which pass as they are.

::

    SELECT columns FROM table … TRAIN BY model [WITH setting = value, …] [LABEL column] [USING model] [INTO name]
    [INSERT INTO … | CREATE TABLE … AS | …] SELECT columns FROM table … PREDICT BY model [AS column]
    CREATE [OR REPLACE] MODEL [IF NOT EXISTS] name OPTIONS (option = value, …) AS SELECT …
    EXPLAIN [ANALYZE] SELECT … TRAIN BY …
    DROP MODEL, ALTER MODEL … RENAME TO, SHOW MODELS, DESCRIBE MODEL
"""

from typing import Any

from corgipile.errors import BadArgument
from corgipile.sql.calls import model_call, model_name
from corgipile.sql.reader import Reader, Script
from corgipile.sql.sources import source_of
from corgipile.sql.statements import Explain, Fragment, Predict, Query, Statement, Train
from corgipile.sql.tokens import statements, wrong
from corgipile.sql.values import CLAUSES, column_names

__all__ = ["DIALECTS", "parse"]

DIALECTS = {"duckdb": "duckdb", "postgres": "postgres", "postgresql": "postgres"}
BEFORE = "WHERE, ORDER BY and LIMIT stand before"


def parse(script: str, dialect: str = "duckdb") -> list[Statement]:
    """Return the statements of a script; semicolons stand between them.

    Args:
        script: The SQL.
        dialect: Whose SQL it is besides, ``"duckdb"`` or ``"postgres"``.

    Raises:
        BadStatement: One does not parse; the message shows where.

    Example:
        >>> train, = parse("SELECT * FROM 'higgs.parquet' TRAIN BY svm WITH max_epoch_num = 20, block_size = 10MB")
        >>> train.source.file, train.model, train.settings
        ('higgs.parquet', 'svm', {'epochs': 20, 'block': '10MB'})
    """
    if not isinstance(script, str):
        raise BadArgument(f"a script of SQL must be text, got {type(script).__name__}")
    if dialect not in DIALECTS:
        raise BadArgument(f"dialect must be one of {', '.join(DIALECTS)}, got {dialect!r}")
    text = Script(script, DIALECTS[dialect])
    return [_statement(Reader(text, tokens)) for tokens in statements(script)]


def _statement(reader: Reader) -> Statement:
    if _keeps_places(reader):
        first, last = reader.tokens[0], reader.tokens[-1]
        return Query(offset=first.start, sql=Fragment((reader.script.text[first.start : last.stop],)))
    whole = reader.part(0, reader.stop).fragment(model_call)  # first, so that question marks are counted in their order
    _check_places(reader)
    offset = reader.tokens[0].start
    made = _of_models(reader, offset) or _prediction(reader, offset)
    return made or Query(offset=offset, sql=whole)


def _of_models(reader: Reader, offset: int) -> Statement | None:
    """Read what trains or manages models; other statements are not kept waiting until the settings are loaded."""
    if not any(token.says("MODEL", "MODELS", "TRAIN") for token in reader.tokens):
        return None
    from corgipile.sql.bigquery import manage  # noqa: PLC0415 - as said above

    return manage(reader, offset) or _explain(reader, offset) or _training(reader, offset)


def _keeps_places(reader: Reader) -> bool:
    """Say whether places for values are the statement's own: those of what it prepares, or a function's arguments."""
    words = [token.text.upper() for token in reader.tokens[:4] if token.kind == "word"]
    return words[:1] == ["PREPARE"] or (words[:1] == ["CREATE"] and bool({"FUNCTION", "PROCEDURE"} & set(words)))


def _check_places(reader: Reader) -> None:
    """Check that places are counted or numbered, not both."""
    counted = [at for at in reader.script.places if at >= reader.tokens[0].start]
    numbered = [token for token in reader.tokens if token.kind == "place" and token.text[1:].isdigit()]
    if counted and numbered:
        raise wrong(reader.script.text, numbered[0].start, "parameters are ? or $1, $2, …, not both in one statement")


def _explain(reader: Reader, offset: int) -> Statement | None:
    """Read EXPLAIN of a training; that of anything else is the engine's."""
    look = reader.part(0, reader.stop)
    if not look.takes("EXPLAIN"):
        return None
    listed = look.at if look.sees("(") and not look.sees("(", "SELECT") else None
    if listed is not None:
        look.at = look.closing(listed) + 1
    analyze = listed is None and look.takes("ANALYZE")
    train = _training(look, offset)
    if train is None:
        return None
    if listed is not None:
        analyze = _explain_options(look.part(listed + 1, look.closing(listed)))
    return Explain(offset=offset, notes=train.notes, train=train, analyze=analyze)


def _explain_options(look: Reader) -> bool:
    """Read ``(ANALYZE)``, which may say true or false."""
    what = "ANALYZE, the one option of EXPLAIN … TRAIN BY"
    look.needs("ANALYZE", what=what)
    off = look.takes("FALSE") or look.takes("OFF")
    if not off:
        _ = look.takes("TRUE") or look.takes("ON")
    look.end(") after ANALYZE")
    return not off


def _training(reader: Reader, offset: int) -> Train | None:
    from corgipile.sql.bigquery import create_model  # noqa: PLC0415 - as in _of_models
    from corgipile.sql.options import loss_name  # noqa: PLC0415 - as above

    if (made := create_model(reader, offset)) is not None:
        return made
    at = _clause(reader, "TRAIN")
    if at is None:
        return None
    first = reader.at
    if not any(reader.sees(word) for word in ("SELECT", "WITH", "FROM", "(", "TABLE", "VALUES")) or _deep(reader, at):
        raise reader.wrong("TRAIN BY ends a statement of its own: SELECT … TRAIN BY model INTO name", at)
    reader.at = at + 2
    model = loss_name(reader)
    said = _clauses(reader)
    if said.get("settings", {}).get("warm_start") is not None and said.get("warm_start") is not None:
        raise reader.wrong("USING and warm_start both name a model to go on from; give one of them", at)
    if "by" in said and said.get("settings", {}).get("by") is not None:
        raise reader.wrong("GROUP BY and by both name a column of groups; give one of them", at)
    return Train(offset=offset, source=source_of(reader.part(first, at)), model=model, **_placed(said))


def _clauses(reader: Reader) -> dict[str, Any]:
    """Read what follows the model, in any order."""
    said: dict[str, Any] = {}
    names = {"WITH": "settings", "LABEL": "label", "GROUP": "by", "USING": "warm_start", "INTO": "name"}
    while reader.peek() is not None:
        word = next((word for word in CLAUSES if reader.sees(word)), None)
        if word is None:
            raise reader.expected(f"{', '.join(CLAUSES)} or the end of the statement ({BEFORE} TRAIN BY)", CLAUSES)
        if names[word] in said:
            raise reader.wrong(f"there are two {word}")
        reader.at += 1
        said[names[word]] = _said(reader, word)
    return said


def _said(reader: Reader, word: str) -> Any:
    """Read what a clause says."""
    from corgipile.sql.options import assignments, setting  # noqa: PLC0415 - as above

    if word == "WITH":
        settings: dict[str, Any] = {}
        for name in assignments(reader, CLAUSES):
            setting(reader, name, settings)
        return settings
    if word == "GROUP":
        reader.needs("BY", what="BY and a column: GROUP BY region trains a model for each of its values")
    if word in ("LABEL", "GROUP"):
        at, found = reader.at, column_names(reader)
        if isinstance(found, list) and len(found) != 1:
            raise reader.wrong(f"{'LABEL' if word == 'LABEL' else 'GROUP BY of TRAIN BY'} names one column", at)
        return found[0] if isinstance(found, list) else found
    return model_name(reader, "the name of a model" if word == "USING" else "a name for the model")


def _placed(said: dict[str, Any]) -> dict[str, Any]:
    """Return arguments of `Train`: settings that have a place of their own go there."""
    settings = said.setdefault("settings", {})
    if not isinstance(said.get("label", ""), str):
        settings["label"] = said.pop("label")
    if "by" in said:
        settings["by"] = said.pop("by")
    for name in ("features", "label", "warm_start"):
        if isinstance(settings.get(name), str | tuple):
            said[name] = settings.pop(name)
    return said


def _prediction(reader: Reader, offset: int) -> Predict | None:
    at = _clause(reader, "PREDICT")
    if at is None:
        return None
    level, stop = _group(reader, at)
    first = _begin(reader, level, at)
    if first >= at:
        raise reader.wrong("PREDICT BY follows the SELECT whose rows are predicted", at)
    source = source_of(reader.part(first, at))
    tail = reader.part(at + 2, reader.stop)
    model = model_name(tail)
    named = tail.takes("AS")
    column = tail.script.column(tail.next("a name for the column", "word", "name")) if named else "prediction"
    before = Fragment((*reader.part(0, first).fragment(model_call).pieces, reader.gap(first)))
    after = Fragment((tail.gap(tail.at), *tail.fragment(model_call).pieces))
    if tail.peek() is not None and (first == 0 or (tail.at < stop and first == level[0])):
        raise tail.expected(f"AS and a name for the column, or the end of the statement ({BEFORE} PREDICT BY)")
    if _clause(tail, "PREDICT") is not None:
        raise reader.wrong("there are two PREDICT BY; ML.PREDICT(MODEL m, (SELECT …)) may stand anywhere", at)
    return Predict(offset=offset, source=source, model=model, before=before, after=after, column=column)


def _clause(reader: Reader, word: str) -> int | None:
    """Return where TRAIN BY or PREDICT BY stands, as no name could: behind a FROM, or behind nothing but a SELECT."""
    for at in range(reader.at + 1, reader.stop - 1):
        if reader.tokens[at].says(word) and reader.tokens[at + 1].says("BY"):
            after = reader.tokens[at + 2] if at + 2 < reader.stop else None
            before = reader.tokens[at - 1]
            named = before.says("SELECT", ",", ".", "AS", "BY", "AND", "OR", "=") or (
                after is not None and after.says("FROM", ",", ".", "::", "=")
            )
            if not named:
                return at
    return None


def _deep(reader: Reader, at: int) -> bool:
    return at not in set(reader.part(reader.at, reader.stop).level())


def _group(reader: Reader, at: int) -> tuple[list[int], int]:
    """Return the tokens beside one, in the same brackets, and where these close."""
    opened = [0]
    for i in range(at):
        token = reader.tokens[i]
        if token.kind == "sign" and token.text in "([{":
            opened.append(i + 1)
        elif token.kind == "sign" and token.text in ")]}":
            opened.pop()
    begin = opened[-1]
    stop = reader.closing(begin - 1) if begin else reader.stop
    return list(reader.part(begin, stop).level()), stop


def _begin(reader: Reader, level: list[int], at: int) -> int:
    """Return where the query begins that ends at a token, among those beside it; that token itself, if none does."""
    main = next((i for i in level if reader.tokens[i].says("SELECT")), at)
    for i in level:
        token = reader.tokens[i]
        follows = reader.tokens[i + 1] if i + 1 < at else None
        rows = token.says("FROM") and (i == level[0] or reader.tokens[i - 1].says("AS"))
        names = token.says("WITH") and follows is not None and not follows.says("(")
        if names and any(reader.tokens[j].says("INSERT", "UPDATE", "DELETE", "MERGE") for j in level if i < j < main):
            continue
        if i >= main or rows or names:
            return min(i, at)
    return at
