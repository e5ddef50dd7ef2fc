"""Where the extension's sources are, what it is built for, and what is said where it cannot be."""

import subprocess
import sys
from pathlib import Path

import pytest

from corgipile import postgres
from corgipile.errors import BadArgument, MissingExtra, ServerError
from corgipile.postgres import installation as module

CHECKOUT = Path(__file__).parents[2]


def test_built_packages_hold_the_sources(tmp_path, monkeypatch):
    words = ["-q", "egg_info", "--egg-base", tmp_path, "build_py", "--build-lib", tmp_path / "lib"]
    subprocess.run([sys.executable, "setup.py", *words], cwd=CHECKOUT, check=True, capture_output=True)
    monkeypatch.setattr(module, "__file__", str(tmp_path / "lib" / "corgipile" / "postgres" / "installation.py"))
    packed = module.sources.__wrapped__()
    for folder, pattern in (("kernel", "**/*.h"), ("postgres/src", "*.[ch]"), ("postgres/sql", "*.sql")):
        here, there = CHECKOUT / folder, packed / folder
        wanted = {path.relative_to(here): path.read_bytes() for path in here.glob(pattern)}
        assert wanted
        found = {path.relative_to(there): path.read_bytes() for path in there.rglob("*") if path.is_file()}
        assert found == wanted
    assert (packed / "postgres" / "Makefile").exists()
    assert (packed / "postgres" / "corgipile.control").exists()
    module._unpacked.close()
    assert not packed.exists()


def test_no_pg_config(monkeypatch, tmp_path):
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(ServerError, match="pg_config not found in PATH"):
        postgres.installed()


def answering(folder, **answers):
    """Make a pg_config."""
    path = folder / "pg_config"
    lines = [f"--{name}) echo '{answer}';;" for name, answer in answers.items()]
    path.write_text("\n".join(["#!/bin/sh", 'case "$1" in', *lines, f"*) echo {folder};;", "esac"]))
    path.chmod(0o755)
    return str(path)


@pytest.mark.parametrize(
    ("version", "said"),
    [
        ("PostgreSQL 9.6.24", "PostgreSQL must be version 15 or later, got PostgreSQL 9.6.24"),
        ("PostgreSQL 17.2 (Debian)", r"install its headers \(postgresql-server-dev-17\)"),
    ],
)
def test_servers_that_cannot_be_built_for(tmp_path, version, said):
    with pytest.raises(ServerError, match=said):
        postgres.installed(answering(tmp_path, version=version))


def test_programs_that_are_no_pg_config(tmp_path):
    other = tmp_path / "other"
    other.write_text("#!/bin/sh\nexit 3\n")
    other.chmod(0o755)
    with pytest.raises(ServerError, match="give the path of PostgreSQL's pg_config"):
        postgres.installed(str(other))


def target_of(folder, **answers):
    config = answering(folder, version="PostgreSQL 18.1", **answers)
    return postgres.Installation(config, "PostgreSQL 18.1", folder, folder, folder)


def test_no_compiler_and_no_make(monkeypatch, tmp_path):
    target = target_of(tmp_path, cc="gcc-99 -m64")
    monkeypatch.setattr(module.shutil, "which", {"make": "/bin/make"}.get)
    with pytest.raises(ServerError, match="C compiler not found"):
        postgres.install(target, tmp_path)
    monkeypatch.setattr(module.shutil, "which", lambda name: None)
    with pytest.raises(ServerError, match="make not found"):
        postgres.install(target, tmp_path)


def test_a_compiler_that_fails_is_quoted(tmp_path):
    with pytest.raises(ServerError, match=r"building the extension for PostgreSQL 18\.1 failed: .*nowhere"):
        postgres.install(target_of(tmp_path, cc="cc", pgxs="/nowhere/pgxs.mk"), tmp_path)


def test_folders_that_cannot_be_written(monkeypatch, tmp_path):
    monkeypatch.setattr(module.os, "access", lambda path, mode: False)
    with pytest.raises(ServerError, match="is not writable; run this as the owner"):
        postgres.install(target_of(tmp_path, cc="cc"))


def test_the_wheel_is_an_extra(monkeypatch):
    monkeypatch.setattr(module, "find_spec", lambda name: None)
    with pytest.raises(MissingExtra, match=r"corgipile\[pg\]"):
        postgres.embedded()
    with pytest.raises(BadArgument, match="version must be 18 or 16, got 15"):
        postgres.embedded(15)
