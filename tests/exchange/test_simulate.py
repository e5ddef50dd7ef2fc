"""The simulator: what it counts is what its formulas say, and ten to the twelfth rows take it no room."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
from patience import PATIENCE

from corgipile import cli
from corgipile.errors import BadArgument
from corgipile.exchange import simulate


@pytest.mark.parametrize("staging", ["sorted", "random"])
def test_counted_is_near_expected(staging):
    """Batches counted are 256 of 9 degrees of freedom: 3 % of standard error, and more of one plan of few blocks."""
    found = simulate(16, 16 * 64 * 100, 0.2, row_bytes=10, block=4, epochs=6, staging=staging, batch=64)
    for one in found.mixing:
        assert one.home_counted == pytest.approx(one.home, abs=0.01)
        assert one.local_counted == pytest.approx(one.local, rel=0.12)
        assert one.everywhere_counted == pytest.approx(one.everywhere, rel=0.25)
    first, last = found.mixing[0], found.mixing[-1]
    assert last.epoch == 6
    assert first.home == 1
    assert found.unbalanced == 0
    if staging == "sorted":  # global batches are good, a rank's are not, until rows have moved
        assert first.local > 40
        assert first.everywhere < 0.5
        assert last.local < first.local / 4
    else:
        assert first.local == pytest.approx(last.local, rel=0.01)


def test_figures_of_a_plan_done_by_hand():
    found = simulate(4, 1_000_000, 0.1, row_bytes=1000, block=100, batch=250, epochs=3, request="64KB")
    assert (found.rows, found.moved, found.sent) == ((250_000, 250_000), (250, 250), 25_000_000)
    assert (found.steps, found.sent_per_step) == (1000, 25_000)
    assert found.storage == 275_000 * 1000
    assert found.peer == (83, 84)
    exchanged, kept, anew, single = found.reading
    assert (exchanged.gets, exchanged.nbytes) == (0, 0)
    assert (kept.gets, kept.nbytes) == (250 * 2, 25_000_000)  # blocks of 100 KB by requests of 64 KB
    assert (anew.gets, anew.nbytes) == (2500 * 2, 250_000_000)
    assert (single.gets, single.nbytes) == (250_000, 250_000_000)


@pytest.mark.parametrize(("ranks", "rows", "fraction"), [(1, 1, 0.5), (3, 3, 1), (7, 100, 0), (64, 65, 0.3)])
def test_small_and_uneven_worlds(ranks, rows, fraction):
    found = simulate(ranks, rows, fraction, epochs=2, batch=3)
    assert found.unbalanced == 0
    assert found.rows == (rows // ranks, -(-rows // ranks))
    assert all(0 <= one.home <= 1 for one in found.mixing)


def test_bad_arguments_are_errors():
    with pytest.raises(BadArgument, match="at least 4, one per rank, got 3"):
        simulate(4, 3, 0.1)
    with pytest.raises(BadArgument, match='staging must be "sorted" or "random", got \'even\''):
        simulate(4, 30, 0.1, staging="even")
    with pytest.raises(BadArgument, match="fraction must be"):
        simulate(4, 30, -0.1)


LARGE = ["simulate", "--ranks", "4096", "--rows", "1e12", "--fraction", "0.1", "--epochs", "20"]


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="the peak of a process is read from /proc")
def test_four_thousand_ranks_of_ten_to_the_twelfth_rows():
    code = "import sys; from corgipile import cli; cli.main(sys.argv[1:]); "
    code += "print(next(line.split()[1] for line in open('/proc/self/status') if line.startswith('VmHWM')))"
    done = subprocess.run(
        [sys.executable, "-c", code, *LARGE], capture_output=True, text=True, timeout=PATIENCE, check=True
    )
    *lines, peak = done.stdout.splitlines()
    assert max(map(len, lines)) <= 80
    assert int(peak) < 300 << 10  # of this process alone: what getrusage says begins at its parent's
    assert "3,906,250,000 blocks of 256 rows of 4 KB" in lines[0]


def test_as_json(capsys):
    assert cli.main([*LARGE, "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["plan"]["world"] == 4096
    assert found["rows"] == [10**12 // 4096, -(-(10**12) // 4096)]
    assert found["mixing"][-1]["home"] == pytest.approx(
        1 / 4096 + 4095 / 4096 * (1 - 0.1 * 4096 / 4095) ** 20, rel=1e-4
    )
    assert cli.main(["simulate", "--ranks", "4", "--rows", "10.5", "--json"]) == 2
    assert "rows must be a whole number such as 4096 or 1e12" in json.loads(capsys.readouterr().out)["error"]["message"]


def test_a_picture(tmp_path, capsys):
    pytest.importorskip("matplotlib", reason="the extra `plot` is not installed")
    path = tmp_path / "x.png"
    small = ["simulate", "--ranks", "4", "--rows", "1000", "--plot", str(path)]
    assert [cli.main(small), cli.main(small)] == [0, 0]
    assert path.read_bytes()[:4] == b"\x89PNG"
    path.write_text("mine")
    assert cli.main(small) == 2
    assert path.read_text() == "mine"
    assert cli.main([*small[:-1], str(tmp_path / "x.pdf")]) == 2
    assert "must end in .png" in capsys.readouterr().err


def test_a_picture_without_matplotlib(tmp_path, capsys, monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    path = tmp_path / "x.png"
    assert cli.main(["simulate", "--ranks", "4", "--rows", "1000", "--plot", str(path)]) == 2
    assert "pip install 'corgipile[plot]'" in capsys.readouterr().err
    assert not path.exists()
