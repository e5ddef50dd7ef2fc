"""Runs the regression scripts of postgres/test with the server's own pg_regress."""

import subprocess
from pathlib import Path

import pytest

SCRIPTS = Path(__file__).parents[2] / "postgres" / "test"


def test_scripts_print_what_is_expected(server, tmp_path):
    program = server.paths["pkglibdir"] / "pgxs/src/test/regress/pg_regress"
    if not program.exists() or subprocess.run([program, "--version"], capture_output=True, check=False).returncode:
        pytest.skip("this server has no pg_regress that runs")
    names = sorted(path.stem for path in (SCRIPTS / "sql").glob("*.sql"))
    place = [f"--bindir={server.bin}", f"--host={server.data}", "--user=postgres", "--dbname=regression"]
    folders = [f"--inputdir={SCRIPTS}", f"--outputdir={tmp_path}"]
    done = subprocess.run(
        [program, *place, *folders, "--load-extension=corgipile", *names],
        capture_output=True, text=True, check=False, cwd=tmp_path,
    )  # fmt: skip
    differences = tmp_path / "regression.diffs"
    assert done.returncode == 0, differences.read_text() if differences.exists() else done.stdout + done.stderr
