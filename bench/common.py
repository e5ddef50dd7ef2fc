"""Shared parts of all benchmarks: options, interleaved timing, printed rows, peers in their own processes."""

import argparse
import json
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Self

HERE = Path(__file__).resolve().parent
ROOM = 3 << 30  # bytes of generated files that may be kept from part to part
PEERS = HERE / ".venv-peers"


class Skip(Exception):  # not an error: what is measured needs something that is not here
    """Raised when a peer or data set is missing."""


@dataclass(frozen=True)
class Row:
    """One measure: its value, its target, and the underlying figures."""

    theme: str
    measure: str
    value: float
    unit: str
    target: str
    note: str

    @property
    def verdict(self) -> str:
        """Return PASS, SHORT of target, or nothing without a target."""
        if not self.target:
            return ""
        sign, bound = self.target.split()
        return "PASS" if (self.value >= float(bound) if sign == ">=" else self.value <= float(bound)) else "SHORT"

    def cells(self) -> list[str]:
        """Return the columns of the printed table."""
        value = f"{self.value:.3g}" if abs(self.value) < 100 else f"{self.value:,.0f}"
        target = f"{self.target} {self.unit}" if self.target else ""
        return [self.measure, f"{value} {self.unit}", target, self.verdict, self.note]


class Bench:
    """One run of some themes: folder, sizes, repeats, and results."""

    def __init__(self, options: argparse.Namespace) -> None:
        self.quick, self.data = options.quick, options.data
        self.repeats = options.repeats or (3 if options.quick else 7)
        self.few = max(3, self.repeats // 2)  # for what takes long, such as cold runs
        self.only, self._rows = options.only, options.rows
        self.theme = ""
        self.rows: list[Row] = []
        self.failures: list[str] = []
        self._own = options.work is None
        self.work = Path(tempfile.mkdtemp(prefix="corgipile-bench-") if self._own else options.work)
        self.work.mkdir(parents=True, exist_ok=True)

    def pick(self, full: int, quick: int) -> int:
        """Return the full size, or the quick run's."""
        return quick if self.quick else full

    def table_rows(self, full: int, quick: int) -> int:
        """Return a table's rows: ``--rows``, or a size as `pick` does."""
        return self._rows or self.pick(full, quick)

    def report(self, measure: str, value: float, unit: str = "x", target: str = "", note: str = "") -> None:
        """Print and store a measure."""
        row = Row(self.theme, measure, float(value), unit, target, note)
        self.rows.append(row)
        measure, value_text, target, verdict, note = row.cells()
        print(f"  {verdict:5}  {measure:<84} {value_text:>14}  {target:<14} {note}", flush=True)

    def part(self, name: str, measure: Callable[["Bench"], None]) -> None:
        """Run one part of a theme; print why if it is skipped."""
        if self.only and self.only not in name:
            return
        try:
            measure(self)
        except Skip as reason:
            print(f"  skip   {name}: {reason}", flush=True)
        except Exception as error:  # noqa: BLE001  # the other parts still run; the exit status tells
            self.failures.append(f"{self.theme} {name}: {type(error).__name__}: {error}")
            print(f"  FAIL   {self.failures[-1]}", flush=True)
        self.tidy()

    def tidy(self) -> None:
        """Delete generated files between parts, if the folder is the run's own; later parts generate them again."""
        files = [path for path in self.work.rglob("*") if path.is_file()]
        if self._own and sum(path.stat().st_size for path in files) > ROOM:
            for path in files:
                path.unlink()

    def close(self) -> None:
        """Delete the generated files, if the folder is the run's own."""
        if self._own:
            shutil.rmtree(self.work, ignore_errors=True)


class Peer:
    """Another library in a process with its own environment, which times itself and answers over pipes."""

    def __init__(self, job: str, environment: Path = PEERS, **settings: Any) -> None:
        python = environment / "bin" / "python"
        if not python.exists():
            raise Skip(f"{environment.name} is not there: make -C bench peers")
        command = [str(python), str(HERE / "peer.py")]
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        try:
            self.ask(job=job, **settings)
        except Skip:
            self.close()
            raise

    def ask(self, **request: Any) -> dict[str, Any]:
        """Send a request and wait for its answer."""
        if self._process.stdin is None or self._process.stdout is None:
            raise Skip("the peer has no pipes")
        print(json.dumps(request), file=self._process.stdin, flush=True)
        answer = self._process.stdout.readline()
        reply = json.loads(answer) if answer else {"error": "the peer died"}
        if "error" in reply:
            raise Skip(f"{request.get('job', 'peer')}: {reply['error']}")
        return reply

    def seconds(self, rows: int | None = None, **request: Any) -> float:
        """Run once and return its seconds; it must see the expected number of rows."""
        reply = self.ask(run=True, **request)
        if rows is not None:
            check(reply["rows"] == rows, f"the peer saw {reply['rows']} rows of {rows}")
        return float(reply["seconds"])

    def close(self) -> None:
        """End the process."""
        if self._process.stdin:
            self._process.stdin.close()
        self._process.wait(timeout=60)
        if self._process.stdout:
            self._process.stdout.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def check(holds: bool, otherwise: str) -> None:
    """Stop the run if a result is wrong, since its timing is then meaningless."""
    if not holds:
        raise RuntimeError(f"wrong result: {otherwise}")


def interleave(cases: Mapping[str, Callable[[], float]], repeats: int, warm: bool = True) -> dict[str, list[float]]:
    """Run all cases in turn, ``repeats`` times, in alternating order; each returns its seconds."""
    if warm:
        for run in cases.values():
            run()
    times: dict[str, list[float]] = {name: [] for name in cases}
    names = list(cases)
    for number in range(repeats):
        for name in names if number % 2 == 0 else reversed(names):
            times[name].append(cases[name]())
    return times


def ratio(times: Mapping[str, list[float]], over: str, under: str) -> tuple[float, str]:
    """Return the ratio of two medians, and the range of the ratios of single rounds."""
    pairs = [a / b for a, b in zip(times[over], times[under], strict=True)]
    spread = f"{min(pairs):.3g}..{max(pairs):.3g}"
    return statistics.median(times[over]) / statistics.median(times[under]), spread


def median(values: list[float]) -> float:
    """Return the median."""
    return statistics.median(values)


def rate(rows: int, seconds: float) -> str:
    """Return rows per second in readable form."""
    return f"{rows / seconds / 1e6:.3g} M rows/s" if rows / seconds >= 1e5 else f"{rows / seconds:,.0f} rows/s"


def child(script: str, *words: str) -> dict[str, Any]:
    """Run a benchmark script's ``--child`` entry in a fresh interpreter and return the JSON it prints."""
    command = [sys.executable, str(HERE / script), "--child", *words]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"{' '.join(words)} failed: {done.stderr.strip().splitlines()[-1:]}")
    return dict(json.loads(done.stdout.strip().splitlines()[-1]))


def walk(loader: Iterable[Any], rows: int) -> float:
    """Iterate over one epoch; return its seconds."""
    seen, start = 0, time.perf_counter()
    for batch in loader:
        seen += len(batch["label"])
    seconds = time.perf_counter() - start
    check(seen == rows, f"{seen} rows of {rows} came")
    return seconds


def options(description: str, themes: list[str] | None = None) -> argparse.Namespace:
    """Read the command line that all benchmark scripts share."""
    parser = argparse.ArgumentParser(description=description, allow_abbrev=False)
    if themes is not None:
        parser.add_argument("themes", nargs="*", metavar="THEME", help=f"{', '.join(themes)}; default: all")
        parser.add_argument("--save", action="store_true", help="replace the last results")
    parser.add_argument("--quick", action="store_true", help="small tables and few repeats: minutes in all")
    parser.add_argument("--only", metavar="PART", help="only the parts whose name contains this")
    parser.add_argument("--repeats", type=int, help="interleaved rounds (default 7, quick 3)")
    parser.add_argument("--rows", type=int, help="rows of the tables of the postgres and torch themes")
    parser.add_argument("--work", metavar="DIR", help="folder for generated files; kept (default: a temporary one)")
    parser.add_argument("--data", metavar="DIR", type=Path, help="folder of the real data sets")
    return parser.parse_args()


def alone(theme: str, main: Callable[[Bench], None]) -> None:
    """Run one theme as a script."""
    bench = Bench(options(f"Benchmark of corgipile: {theme}."))
    try:
        run_theme(bench, theme, main)
    finally:
        bench.close()
    sys.exit(bool(bench.failures))


def run_theme(bench: Bench, theme: str, main: Callable[[Bench], None]) -> None:
    """Run one theme."""
    print(f"{theme}: {(sys.modules[main.__module__].__doc__ or '').splitlines()[0]}", flush=True)
    bench.theme = theme
    main(bench)


def as_dict(row: Row) -> dict[str, Any]:
    """Return a row for JSON."""
    return {**asdict(row), "verdict": row.verdict}
