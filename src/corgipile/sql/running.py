"""Has an engine run a statement, of whatever kind."""

from corgipile.sql.engines.engine import Engine, Progress, Result, Values
from corgipile.sql.statements import (
    DescribeModel,
    DropModel,
    Explain,
    Predict,
    Query,
    RenameModel,
    ShowModels,
    Statement,
    Train,
)

__all__ = ["perform"]


def perform(  # noqa: PLR0911 - one of each
    engine: Engine, statement: Statement, values: Values = (), progress: Progress | None = None
) -> Result:
    """Have an engine run a statement."""
    match statement:
        case Train():
            return engine.train(statement, values, progress)
        case Predict():
            return engine.predict(statement, values)
        case Explain():
            return engine.explain(statement, values)
        case DropModel():
            return engine.drop(statement)
        case RenameModel():
            return engine.rename(statement)
        case ShowModels():
            return engine.show(statement)
        case DescribeModel():
            return engine.describe(statement)
        case Query():
            return engine.query(statement, values)
    raise AssertionError(statement)
