"""Runs the regression scripts of postgres/test with pg_regress."""

import subprocess
from pathlib import Path

SCRIPTS = Path(__file__).parents[2] / "postgres" / "test"


def test_scripts_print_what_is_expected(server, pg_regress, tmp_path):
    names = sorted(path.stem for path in (SCRIPTS / "sql").glob("*.sql"))
    place = [f"--bindir={server.bin}", f"--host={server.where().host}", "--user=postgres", "--dbname=regression"]
    folders = [f"--inputdir={SCRIPTS}", f"--outputdir={tmp_path}"]
    done = subprocess.run(
        [pg_regress, *place, *folders, "--load-extension=corgipile", *names],
        capture_output=True, text=True, check=False, cwd=tmp_path,
    )  # fmt: skip
    differences = tmp_path / "regression.diffs"
    assert done.returncode == 0, differences.read_text() if differences.exists() else done.stdout + done.stderr
