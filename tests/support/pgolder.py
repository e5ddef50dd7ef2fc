"""An older version of the extension, cut out of the install script."""

import re
from pathlib import Path

SCRIPT = Path(__file__).resolve().parents[2] / "postgres" / "sql" / "corgipile--0.3.sql"
VERSION = "0.2.test"
NEWER = ("learnt", "version", "before")  # columns of models that the older version lacks
CALLS = """
CREATE FUNCTION corgipile.train_support(internal) RETURNS internal
    AS 'MODULE_PATHNAME', 'corgipile_train_support' LANGUAGE C STRICT;
CREATE FUNCTION corgipile.train(source regclass, model text, features text[], label text, name text DEFAULT NULL)
    RETURNS SETOF record AS 'MODULE_PATHNAME', 'corgipile_train' LANGUAGE C SUPPORT corgipile.train_support;
CREATE FUNCTION corgipile.evaluate(model text, source regclass, features text[] DEFAULT NULL, label text DEFAULT NULL)
    RETURNS record AS 'MODULE_PATHNAME', 'corgipile_evaluate' LANGUAGE C;
"""


def write_older(folder: Path) -> Path:
    """Write the script of a version with models, rights and predictions only."""
    sections = re.split(r"^-- (?=[A-Z])", SCRIPT.read_text(), flags=re.MULTILINE)
    wanted = [one for one in sections if one.startswith(("A role", "Models. ", "Predictions"))]
    lines = [line for one in wanted for line in one.splitlines()[1:]]
    kept = [line for line in lines if not re.match(rf" +({'|'.join(NEWER)}) ", line) and "COLUMN" not in line]
    last = "may_replace corgipile.role[] NOT NULL DEFAULT '{}'"
    text = "\n".join(kept).replace(f"{last},", last)
    path = folder / f"corgipile--{VERSION}.sql"
    path.write_text(text + CALLS)
    return path
