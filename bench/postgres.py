"""Training inside PostgreSQL, compared with a plain scan, between orders, with fetching, and with an aggregate."""

import statistics
import time
from typing import Any

import pyarrow as pa
from common import Bench, Skip, alone, check, interleave, median, rate, ratio
from database import POOL, Database

from corgipile.linear import train
from corgipile.postgres.copy import decode

KINDS = {"real": "real[]", "double": "float8[]"}
SCHEMA = pa.schema({"features": pa.list_(pa.float32(), 28), "label": pa.int32()})
ORDERS = ["no_shuffle", "corgipile", "riffle"]
SHARE = 10  # of a table that the buffer holds


def scan_part(bench: Bench, data: Database) -> None:
    """Compare a logistic epoch with SELECT sum(label)."""
    for kind, name in KINDS.items():
        table = data.higgs(kind)
        cases = {
            "epoch": lambda table=table: data.epoch(table, data.rows, order="riffle"),
            "one thread": lambda table=table: data.epoch(table, data.rows, order="riffle", threads=1),
            "sum": lambda table=table: data.seconds(f"SELECT sum(label) FROM {table}"),
        }
        times = interleave(cases, bench.repeats)
        value, spread = ratio(times, "epoch", "sum")
        note = f"{rate(data.rows, median(times['epoch']))}, sum {rate(data.rows, median(times['sum']))} ({spread})"
        bench.report(f"epoch, riffle, 28 x {name} / SELECT sum(label)", value, "x", "<= 1.5", note)
        value, spread = ratio(times, "one thread", "sum")
        note = f"{rate(data.rows, median(times['one thread']))} ({spread})"
        bench.report(f"epoch, riffle, one thread, 28 x {name} / SELECT sum(label)", value, "x", "", note)


def narrow_part(bench: Bench, data: Database) -> None:
    """Compare orders with No Shuffle, 28 features."""
    for kind, name in KINDS.items():
        orders(bench, data, f"28 x {name}", data.higgs(kind), data.rows)


def evicted_part(bench: Bench, data: Database) -> None:
    """Compare orders with No Shuffle on an uncached table, with and without prefetching."""
    for kind, name in KINDS.items():
        table = data.higgs(kind)
        cases = {
            order: lambda order=order, table=table: evicted(data, table, order.split(",")[0], not order.endswith("off"))
            for order in ("no_shuffle", "riffle", "riffle, off", "balanced", "balanced, off")
        }
        times = interleave(cases, bench.few, warm=False)
        for order in ("riffle", "balanced"):
            value, spread = ratio(times, order, "no_shuffle")
            note = f"{rates(data.rows, times, order, 'no_shuffle')} ({spread})"
            bench.report(f"epoch, evicted, {order} / no_shuffle, 28 x {name}", value, "x", "<= 1.1", note)
            value, spread = ratio(times, order, f"{order}, off")
            note = f"{rates(data.rows, times, order, f'{order}, off')} ({spread})"
            bench.report(f"epoch, evicted, {order}, asking ahead / not, 28 x {name}", value, "x", "<= 1", note)


def evicted(data: Database, table: str, order: str, ask: bool) -> float:
    """Return the seconds of an epoch over an evicted table, with or without prefetching by the server."""
    data.run("RESET effective_io_concurrency" if ask else "SET effective_io_concurrency = 0")
    seconds = data.evicted(table, data.rows, **({"balance": True} if order == "balanced" else {"order": order}))
    data.run("RESET effective_io_concurrency")
    return seconds


def rates(rows: int, times: dict[str, list[float]], over: str, under: str) -> str:
    """Return the rates of two cases."""
    return f"{rate(rows, median(times[over]))}, against {rate(rows, median(times[under]))}"


def wide_part(bench: Bench, data: Database) -> None:
    """Compare orders with No Shuffle on rows in the TOAST table, and No Shuffle with summing their numbers."""
    data.aggregate()
    for kind, name in KINDS.items():
        table, rows = data.wide(kind)
        orders(bench, data, f"2,000 x {name}, TOASTed", table, rows)
        cases = {
            "epoch": lambda table=table, rows=rows: data.epoch(table, rows, order="no_shuffle"),
            "total": lambda table=table: data.seconds(f"SELECT total(features) FROM {table}"),
        }
        times = interleave(cases, bench.repeats)
        value, spread = ratio(times, "epoch", "total")
        note = f"{rates(rows, times, 'epoch', 'total')} ({spread})"
        bench.report(f"epoch, no_shuffle, 2,000 x {name}, TOASTed / C aggregate of a sum", value, "x", "<= 1.3", note)


def sparse_part(bench: Bench, data: Database) -> None:
    """Compare orders with No Shuffle, sparse rows."""
    orders(bench, data, "39 of 41,270, sparse", *data.sparse(), features=["idx", "val"])


def orders(bench: Bench, data: Database, name: str, table: str, rows: int, **options: Any) -> None:
    """Compare the orders on a table, with a buffer of a tenth of it as in the paper, and with the default sizes.

    Rows buffered when the last block was read are trained on without concurrent reads: CorgiPile's default buffer,
    64 MB, holds half of so small a table.
    """
    ((size,),) = data.ask(f"SELECT pg_table_size('{table}') / 1024")
    for buffer, given in (("a tenth", {"buffer_size": f"{size // SHARE}kB"}), ("the default size", {})):
        settings = {**options, **given}
        cases = {order: lambda order=order, s=settings: data.epoch(table, rows, order=order, **s) for order in ORDERS}
        cases["balanced"] = lambda s=settings: data.epoch(table, rows, balance=True, **s)
        times = interleave(cases, bench.repeats)
        for order in list(cases)[1:]:
            value, spread = ratio(times, order, "no_shuffle")
            note = (
                f"{rate(rows, median(times[order]))}, no_shuffle {rate(rows, median(times['no_shuffle']))} ({spread})"
            )
            target = "<= 1.1" if given or order != "corgipile" else ""
            bench.report(f"epoch, {order} / no_shuffle, {name}, buffer of {buffer}", value, "x", target, note)


def fetch_part(bench: Bench, data: Database) -> None:
    """Compare with fetching the table to Python by binary COPY and training there, each epoch."""
    table = data.higgs("real")

    def fetch() -> float:
        start = time.perf_counter()
        with data.connection.cursor().copy(f"COPY {table} TO STDOUT (FORMAT BINARY)") as copy:
            found = decode(b"".join(copy), SCHEMA)
        x = found["features"]["items"]["value"].astype("f4").ravel()
        columns = [pa.FixedSizeListArray.from_arrays(pa.array(x), 28), pa.array(found["label"]["value"].astype("i4"))]
        model = train(pa.table(columns, SCHEMA), epochs=1, learning_rate=0.005, classes=[0, 1])
        seconds = time.perf_counter() - start
        check(model.history[0]["rows"] == data.rows, "fetching lost rows")
        return seconds

    times = interleave({"fetch": fetch, "inside": lambda: data.epoch(table, data.rows)}, bench.few)
    value, spread = ratio(times, "fetch", "inside")
    note = f"{rate(data.rows, median(times['inside']))}, fetched {rate(data.rows, median(times['fetch']))} ({spread})"
    bench.report("epoch, fetched by COPY and trained in Python / inside", value, "x", ">= 10", note)


def aggregate_part(bench: Bench, data: Database) -> None:
    """Compare with one step per row in an aggregate's transition function, in C, in storage order."""
    data.aggregate()
    for kind, name in KINDS.items():
        table = data.higgs(kind)
        ((weights,),) = data.ask(f"SELECT igd(features, label, 0.005) FROM {data.shuffled(table)}")
        weights = "{" + ", ".join(map(repr, weights)) + "}"
        right = f"(SELECT sum(a * b) FROM unnest(features || 1::real, '{weights}'::float8[]) u (a, b)) > 0"
        ((share,),) = data.ask(f"SELECT avg((({right}) = (label = 1))::int) FROM held_out")
        check(share > 0.7, f"the aggregate learned {share:.3f}")
        cases = {
            "aggregate": lambda table=table: data.seconds(f"SELECT igd(features, label, 0.005) FROM {table}"),
            "inside": lambda table=table: data.epoch(table, data.rows),
        }
        times = interleave(cases, bench.few)
        value, spread = ratio(times, "aggregate", "inside")
        note = f"{rate(data.rows, median(times['aggregate']))} in stored order; balanced here ({spread})"
        bench.report(f"epoch, C aggregate as in Bismarck, 28 x {name} / inside", value, "x", "", note)


def rows_part(bench: Bench, data: Database) -> None:
    """Check the visited rows for each epoch, order and buffer size."""
    table, off = data.higgs("real"), 0
    sizes = ["300kB", "1MB", "5MB", "64MB", "1GB"]
    for order in [*ORDERS, "block_only"]:
        for size in sizes:
            data.train(table, data.rows, order=order, buffer_size=size, block_size="16kB")  # checks the rows
    note = f"{data.rows:,} rows, 3 epochs, 4 orders, buffers of {', '.join(sizes)}"
    bench.report("rows that an epoch lost or saw twice", off, "rows", "<= 0", note)


def pool_part(bench: Bench, data: Database) -> None:
    """Count the pages that an epoch leaves in shared buffers for the next scan."""
    table = data.higgs("double")
    data.restart()
    data.train(table, data.rows, epochs=1)
    (((plan,),),) = data.ask(f"EXPLAIN (ANALYZE, BUFFERS, FORMAT JSON) SELECT * FROM {table}")
    held, read = plan["Plan"]["Shared Hit Blocks"], plan["Plan"]["Shared Read Blocks"]
    if held + read < POOL // 4:
        raise Skip(f"{(held + read) / 128:.0f} MiB: servers keep tables of less than a quarter of the pool on purpose")
    check(held + read == data.ask(f"SELECT pg_relation_size('{table}') / 8192")[0][0], "the scan was not of all pages")
    note = f"{held} of {POOL:,} pages; table {(held + read) / 128:.0f} MiB"
    bench.report("shared buffers that hold the table after an epoch", 100 * held / POOL, "%", "<= 1", note)


def accuracy_part(bench: Bench, data: Database) -> None:
    """Compare validation accuracy after 3 epochs, 64 blocks in the buffer, with an ORDER BY random() copy."""
    table = data.higgs("real")
    cases: dict[str, tuple[str, dict[str, Any]]] = {
        "shuffled copy": (data.shuffled(table), {"order": "no_shuffle"}),
        "no_shuffle": (table, {"order": "no_shuffle"}),
        "corgipile": (table, {"order": "corgipile"}),
        "riffle": (table, {"order": "riffle"}),
        "riffle, balance": (table, {"balance": True}),
    }
    sizes = buffer_of_blocks(data, table, 64)
    seeds, found = bench.pick(5, 3), {}
    for name, (source, options) in cases.items():
        for seed in range(seeds):
            data.train(source, data.rows, name="m", seed=seed, **options, **sizes)
            ((share,),) = data.ask("SELECT avg((corgipile.predict('m', features) = label)::int) FROM held_out")
            found.setdefault(name, []).append(100 * float(share))
    goal = statistics.mean(found["shuffled copy"])
    for name in list(cases)[1:]:
        mean, spread = statistics.mean(found[name]), statistics.pstdev(found[name])
        target = "<= 0.5" if "balance" in name else ""
        note = (
            f"{mean:.2f} ± {spread:.2f} %, shuffled copy {goal:.2f} %; {sizes['buffer_size']} of {sizes['block_size']}"
        )
        measure = f"accuracy after 3 epochs below a shuffled copy's, {name}, {seeds} seeds"
        bench.report(measure, goal - mean, "points", target, note)


def buffer_of_blocks(data: Database, table: str, blocks: int) -> dict[str, str]:
    """Return the sizes at which riffle's buffer holds this many blocks."""
    for kilobytes in range(1000, 64_000, 200):
        sizes = {"block_size": "64kB", "buffer_size": f"{kilobytes}kB"}
        data.train(table, data.rows, epochs=1, name="sizes", **sizes)
        ((held,),) = data.ask("SELECT (params->>'buffer_blocks')::int FROM corgipile.models WHERE name = 'sizes'")
        if held >= blocks:
            return sizes
    raise Skip(f"no buffer below 64 MB holds {blocks} blocks")


PARTS = {
    "scan": scan_part,
    "orders": narrow_part,
    "evicted": evicted_part,
    "toast": wide_part,
    "sparse": sparse_part,
    "fetch": fetch_part,
    "aggregate": aggregate_part,
    "rows": rows_part,
    "buffers": pool_part,
    "accuracy": accuracy_part,
}


def main(bench: Bench) -> None:
    """Run all parts."""
    try:
        with Database(bench.table_rows(1_000_000, 200_000)) as data:
            print(f"  {data.source.name}", flush=True)
            for name, part in PARTS.items():
                bench.part(name, lambda bench, part=part: part(bench, data))
    except Skip as reason:
        print(f"  skip   postgres: {reason}", flush=True)


if __name__ == "__main__":
    alone("postgres", main)
