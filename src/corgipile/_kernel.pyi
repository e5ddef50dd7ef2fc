# Types of the C kernel's bindings; see kernel/*.h.

from typing import Any, Final, Literal, TypeAlias

import numpy.typing as npt

_Array: TypeAlias = npt.NDArray[Any]
_Bytes: TypeAlias = bytes | memoryview

# bind_losses.c
STEPS: tuple[tuple[str, float, bool, bool, bool], ...]
LOSSES: tuple[tuple[str, int, bool, bool, bool, bool, bool, str, str | None, float], ...]
TWO_CLASSES: int
CLASSES: int
NUMBERS: int
MOST_CLASSES: int
LOSS_UNKNOWN: int
LOSS_TAKES_NONE: int
LOSS_BAD_PARAMETER: int
BAD_LABEL: int
LABEL_VALUE: int
BAD_VALUE: int
BAD_WEIGHT: int
BAD_INDEX: int
BAD_ORDER: int
DIVERGED: int
ENOUGH: int
LOSS_GROWS: int

def sgd_adrift(loss: float, untrained: float, /) -> bool: ...
def sgd_again(step: int, rate: float, mean_loss: float, untrained: float, far: float, /) -> float: ...
def sgd_constant(loss: int, parameter: float, labels: _Array, weights: _Array, /) -> tuple[float, float]: ...
def sgd_constant_of_classes(loss: int, parameter: float, shares: _Array, /) -> tuple[float, float]: ...
def sgd_exp(scores: _Array, /) -> None: ...
def sgd_loss(text: str, classes: int, /) -> tuple[int, int, float]: ...
def sgd_lowered(rate: float, /) -> float: ...
def sgd_probabilities(loss: int, scores: _Array, classes: int, /) -> None: ...
def sgd_rate(step: int, rate: float, decay: float, epoch: int, /) -> float: ...
def sgd_untrained(
    loss: int,
    parameter: float,
    labels: _Array,
    weights: _Array | None,
    sums: _Array,
    numbers: _Array | None,
    /,
) -> None: ...
def sgd_verdict(losses: _Array, tolerance: float, /) -> int: ...

# bind_memory.c
ADVICE_NORMAL: Final[int]
ADVICE_RANDOM: Final[int]
ADVICE_SOON: Final[int]
ADVICE_NOW: Final[int]

def advise(address: _Array, length: _Array, what: int, /) -> int: ...

# bind_moments.c
SCALES_FINE: Final[int]
SCALES_DIFFER: Final[int]
FEATURES_SMALL: Final[int]
ROWS_OFF_CENTRE: Final[int]
ROWS_LONG: Final[int]

def look_add(sample: object, rows: _Array, /) -> None: ...
def look_end(sample: object, rows: int, /) -> tuple[int, float, float, float, float, int, int]: ...
def look_new(features: int, /) -> object: ...
def look_runs(rows: int, features: int, /) -> list[tuple[int, int]]: ...
def moments_dense(moments: object, rows: _Array, visit: _Array, /) -> None: ...
def moments_new(features: int, /) -> object: ...
def moments_scaling(
    moments: object, sparse: bool, centred: bool, keep_flags: bool, number_bytes: int, center: _Array, scale: _Array, /
) -> int: ...
def moments_sparse(moments: object, indices: _Array, values: _Array, rows: int, /) -> None: ...
def scaling_apply(center: _Array, factor: _Array, rows: _Array, /) -> None: ...
def scaling_fold(
    center: _Array, scale: _Array, weights: _Array, intercepts: _Array, number_bytes: int, back: bool, /
) -> None: ...

# bind_row_mask.c
def bits_rank(words: _Array, ranks: _Array, rows: _Array, /) -> None: ...
def bits_select(words: _Array, ranks: _Array, rows: _Array, /) -> None: ...
def reader_pick(reader: object, words: _Array, ranks: _Array, /) -> None: ...

# bind_plan.c
KEY_BALANCE: Final[int]
KEY_STREAM: Final[int]
KEY_FULL: Final[int]
KEY_PHASES: Final[int]
PLAN_BYTES: Final[int]
TRAITS: Final[int]

def balance(values: _Array, key: int, out: _Array, /) -> None: ...
def balance_vectors(vectors: _Array, width: int, key: int, out: _Array, /) -> None: ...
def plan_begin(plan: object, /) -> tuple[int, int, int, int] | None: ...
def plan_fit(
    kind: str,
    rows: int,
    row_bytes: float,
    /,
    *,
    even: int,
    wanted: int,
    budget: int,
    group: int,
    whole: int,
    balanced: int,
    spare: bool,
    ahead: int,
) -> tuple[int, int, bool]: ...
def plan_new(
    kind: str,
    rows: int,
    key: int,
    /,
    *,
    blocks: int,
    even: int,
    cuts: _Array | None,
    order: _Array | None,
    first: int,
    stop: int,
    buffer: int,
    group: int,
    whole: bool,
    ahead: int,
    start: int,
) -> object: ...
def plan_next(plan: object, extents: _Array, into: _Array, visit: _Array, sweep: _Array, /) -> None: ...
def plan_bytes(kind: str, blocks: int, widest: int, buffer: int, group: int, whole: bool, ahead: int, /) -> int: ...
def plan_slots(kind: str, blocks: int, widest: int, buffer: int, group: int, whole: bool, ahead: int, /) -> int: ...
def step_rows(row_bytes: float, /) -> int: ...

# bind_lanes.c
def follow(extents: _Array, into: _Array, visit: _Array, row_of: _Array, rows: _Array, /) -> None: ...
def lanes_new(slots: int, ahead: int, /) -> object: ...
def lanes_add(
    lanes: object,
    plan: object,
    /,
    *,
    each: int,
    first: int,
    stop: int,
    group: int,
    groups: int,
    worker: int,
    workers: int,
    place: int,
    skip: int,
) -> int: ...
def lanes_next(lanes: object, takes: _Array, visit: _Array, /) -> tuple[bytes, bytes]: ...

# bind_stream.c
def stream_new(
    first: int,
    stop: int,
    key: int,
    /,
    *,
    reservoir: bool,
    window: int,
    chunk: int,
    ahead: int,
    loops: int,
    asked: bool = ...,
) -> object: ...
def stream_next(stream: object, into: _Array, visit: _Array, /) -> tuple[int, int] | None: ...
def stream_waiting(stream: object, rows: _Array, slots: _Array, /) -> int: ...

# bind_permute.c
def derive(*parts: int) -> int: ...
def permute(n: int, key: int, start: int, out: _Array, /) -> None: ...
def randoms(key: int, start: int, out: _Array, /) -> None: ...
def shuffle(array: _Array, key: int, /) -> None: ...
def permute_at(n: int, key: int, positions: _Array, /) -> None: ...
def unpermute(n: int, key: int, values: _Array, /) -> None: ...

# bind_expand.c
def expand(
    out: _Array,
    indices: _Array,
    index_ends: _Array,
    values: _Array,
    value_ends: _Array,
    first: int,
    count: int,
    /,
    *,
    width: int,
    index_type: int,
    value_type: int,
    wide: bool,
) -> int: ...

# bind_rows.c
def gather(to: tuple[_Array, ...], rows: tuple[_Array, ...], row_bytes: _Array, index: _Array, at: int, /) -> None: ...
def gather_objects(address: _Array, length: _Array, index: _Array, text: bool, /) -> list[Any]: ...
def gather_ragged(out: _Array, address: _Array, length: _Array, item: int, index: _Array, /) -> None: ...
def reader_bytes(reader: object, /) -> int: ...
def reader_column(
    reader: object,
    starts: _Array,
    offsets: _Array,
    fds: _Array,
    target: _Array,
    /,
    *,
    at: int,
    stride: int,
    items: int,
    from_type: int,
    to_type: int,
) -> None: ...
def reader_new(threads: int, slots: int, rows: int, owner: object = ..., /) -> object: ...
def reader_read(
    reader: object, extents: _Array, into: _Array, sweep: _Array | None, urgent: bool, /
) -> tuple[int, int, int] | None: ...
def reader_soon(reader: object, extents: _Array, /) -> None: ...
def scatter(
    to: _Array,
    rows: _Array,
    into: _Array,
    /,
    *,
    at: int,
    stride: int,
    items: int,
    from_type: int,
    to_type: int,
) -> None: ...

# bind_lists.c
def reader_items(
    reader: object, extents: _Array, into: _Array, owner: _Array, bundles: object, urgent: bool, /
) -> tuple[int, int, int] | None: ...
def reader_list(
    reader: object,
    starts: _Array,
    offsets: _Array,
    fds: _Array,
    items: _Array,
    counts: _Array,
    address: _Array,
    length: _Array,
    /,
    *,
    item: int,
    wide: bool,
    text: bool,
) -> None: ...
def reader_listed(reader: object, /) -> int: ...
def bundles_drop(bundles: object, numbers: _Array, /) -> None: ...
def bundles_look(bundles: object, /) -> tuple[int, int, int, int]: ...
def bundles_new(spare: int, /) -> object: ...
def bundles_release(bundles: object, owner: _Array, slots: _Array, /) -> int: ...
def bundles_retire(bundles: object, numbers: _Array, /) -> None: ...
def bundles_tell(bundles: object, out: _Array, /) -> None: ...

# bind_records.c
def copy_ranges(data: _Array, starts: _Array, lengths: _Array, out: _Array, to: _Array, /) -> None: ...
def crc32c(data: _Bytes, /) -> int: ...
def crc32c_ranges(data: _Array, starts: _Array, lengths: _Array, out: _Array, /) -> None: ...
def example_features(record: _Bytes, /) -> list[tuple[bytes, int, int]] | None: ...
def examples_fill(data: _Array, spans: _Array, kind: int, values: _Array, ends: _Array, /) -> None: ...
def examples_find(
    data: _Array,
    ends: _Array,
    names: tuple[bytes, ...],
    /,
    *,
    kinds: _Array,
    expected: _Array,
    spans: _Array,
    counts: _Array,
    nbytes: _Array,
) -> tuple[int, int, int, int] | None: ...
def read_bytes(fd: int, offsets: _Array, lengths: _Array, threads: int, /) -> list[bytes] | tuple[int, int]: ...
def read_ranges(
    fd: int, offsets: _Array, lengths: _Array, to: _Array, out: _Array, threads: int, /
) -> tuple[int, int] | None: ...
def write_ranges(fd: int, data: _Array, starts: _Array, lengths: _Array, offsets: _Array, /) -> int: ...
def tfrecord_pack(
    data: _Bytes | _Array, starts: _Array, sizes: _Array, out: _Array, ends: _Array, /
) -> tuple[int, int] | None: ...
def tfrecord_scan(
    data: _Bytes, remaining: int, lost: int, starts: _Array, sizes: _Array, /
) -> tuple[int, int, int, int, int]: ...

# bind_async_gather.c
def async_gather_new() -> object: ...
def async_gather_request(gatherer: object, to: _Array, rows: _Array, row_bytes: int, index: _Array, /) -> int: ...
def async_gather_wait(gatherer: object, until: int, /) -> int: ...

# bind_prefetch.c
def run_new(plan: object, reader: object, far: int, room: int, places: int, /) -> object: ...
def run_next(run: object, /) -> bytearray | list[Any] | tuple[int, int, int] | Literal[False] | None: ...
def run_look(run: object, /) -> tuple[int, int]: ...
def run_stop(run: object, /) -> None: ...

# bind_dual.c
def dual_again(
    model: object,
    rows: _Array | tuple[_Array, ...],
    labels: _Array,
    y_type: int,
    weights: _Array | None,
    weights_type: int,
    visit: _Array,
    number: _Array,
    a: _Array,
    passes: int,
    still: float,
    key: int,
    /,
) -> None: ...
def dual_begin(model: object, /) -> None: ...
def dual_figures(model: object, /) -> tuple[int, float, float, float, float]: ...
def dual_get(model: object, weights: _Array, biases: _Array, /) -> None: ...
def dual_learn(
    model: object,
    rows: _Array | tuple[_Array, ...],
    labels: _Array,
    y_type: int,
    weights: _Array | None,
    weights_type: int,
    visit: _Array,
    number: _Array | None,
    a: _Array | None,
    /,
) -> tuple[int, int]: ...
def dual_new(
    loss: int,
    classes: _Array,
    /,
    *,
    number_bytes: int,
    sparse: bool,
    features: int,
    outputs: int,
    intercept: bool,
    bound: float,
    isa: int,
    weighted: bool = False,
    class_weight: _Array | None = None,
) -> object: ...
def dual_value(model: object, a: _Array, /) -> float: ...

# bind_newton.c
def newton_add(
    state: object,
    lane: int,
    rows: _Array | tuple[_Array, ...],
    labels: _Array,
    y_type: int,
    weights: _Array | None,
    weights_type: int,
    visit: _Array,
    first: int,
    /,
) -> tuple[int, int]: ...
def newton_begin(
    state: object,
    matrix: int,
    start: bool,
    blend: float,
    width: float,
    weights: _Array,
    center: _Array,
    factor: _Array,
    /,
) -> None: ...
def newton_end(
    state: object, gradient: _Array, matrices: _Array | None, /
) -> tuple[int, int, int, float, float, float, float, float, float]: ...
def newton_factor(matrix: _Array, tolerance: float, /) -> float: ...
def newton_lanes(state: object, /) -> int: ...
def newton_new(
    loss: int,
    parameter: float,
    classes: _Array,
    /,
    *,
    number_bytes: int,
    sparse: bool,
    features: int,
    outputs: int,
    intercept: bool,
    skip: bool,
    class_weight: _Array | None,
    isa: int,
) -> object: ...
def newton_rotate(triangle: _Array, rows: _Array, tolerance: float, /) -> float: ...
def newton_shrink(matrix: _Array, slope: _Array, weights: _Array, l1: _Array, sweeps: int, /) -> bool: ...
def newton_solve(triangle: _Array, right: _Array, whole: int, /) -> None: ...

# bind_sgd.c
def sgd_begin(model: object, rate: float, /) -> None: ...
def sgd_bytes(model: object, /) -> int: ...
def sgd_decide(model: object, rows: _Array | tuple[_Array, ...], visit: _Array, out: _Array, /) -> int: ...
def sgd_learn(
    model: object,
    rows: _Array | tuple[_Array, ...],
    y: _Array,
    y_type: int,
    visit: _Array,
    weights: _Array | None = None,
    weights_type: int = 0,
    /,
) -> tuple[int, int]: ...
def sgd_figures(model: object, /) -> tuple[int, float, float, float]: ...
def sgd_flush(model: object, /) -> None: ...
def sgd_rests(model: object, losses: _Array, /) -> bool: ...
def sgd_get(model: object, weights: _Array, biases: _Array, /) -> None: ...
def sgd_isa() -> int: ...
def sgd_keep(model: object, lines: _Array, into: int, /) -> None: ...
def sgd_lines(model: object, /) -> int: ...
def sgd_new(
    loss: int,
    parameter: float,
    classes: _Array,
    /,
    *,
    number_bytes: int,
    sparse: bool,
    features: int,
    outputs: int,
    batch: int,
    intercept: bool,
    l2: float,
    isa: int,
    average: bool,
    step: int,
    l1: float,
    class_weight: _Array | None,
    max_norm: float,
    rows: int,
) -> object: ...
def sgd_predictor(model: object, weights: _Array, biases: _Array, /) -> None: ...
def sgd_set(model: object, weights: _Array, biases: _Array, /) -> None: ...

# bind_groups.c
def sgd_at_once(model: object, /) -> int: ...
def sgd_each(
    models: list[object],
    rows: _Array | tuple[_Array, _Array, _Array],
    y: _Array,
    y_type: int,
    visit: _Array,
    weights: _Array | None,
    weights_type: int,
    sets: _Array | None,
    labels: int,
    first: int,
    /,
) -> list[tuple[int, int]]: ...
def sgd_groups(
    models: list[object],
    starts: _Array,
    rows: _Array | tuple[_Array, _Array, _Array],
    y: _Array,
    y_type: int,
    visit: _Array,
    weights: _Array | None,
    weights_type: int,
    /,
) -> tuple[int, int]: ...

# bind_sums.c
SUM_BYTES: int

def sum_add(sum_: bytearray, values: _Array, /) -> None: ...
def sum_value(sum_: bytearray, /) -> float: ...

# bind_sketch.c
def similarity(rows: _Array, each: int, features: int, extras: int, /) -> float: ...
def content(
    features: int, center: _Array, scale: _Array, turn: _Array, rows: _Array, ends: _Array, out: _Array, /
) -> None: ...
def content_scale(rows: _Array, center: _Array, scale: _Array, /) -> None: ...
def content_turn(features: int, center: _Array, scale: _Array, turn: _Array, rows: _Array, /) -> None: ...
def content_width(features: int, extras: int, /) -> int: ...
def spot_rows(rows: int, count: int, each: int, out: _Array, /) -> None: ...
def spots(rows: int, row_bytes: float, /) -> tuple[int, int, int]: ...
def spots_spread(rows: int, count: int, each: int, vectors: _Array, cuts: _Array, out: _Array, /) -> None: ...
def sketch_add(sketch: object, values: _Array, number_type: int, /) -> int: ...
def sketch_new(cuts: _Array, floats: bool, /) -> object: ...
def sketch_values(sketch: object, out: _Array, /) -> None: ...
def wants_content(similarity: float, blocks: int, dealt: int, batch: int, /) -> bool: ...

# bind_fields.c
def fields_read(
    text: _Array | bytes | memoryview,
    rows: int,
    mark: int,
    into: _Array | None,
    fields: list[tuple[_Array, int, int, int, int, _Array | None] | None],
    /,
) -> list[int] | None: ...

# bind_hashed.c
HASHED_WORDS: int
HASHED_CATEGORY: int
HASHED_NUMBER: int
MOST_HASH_BITS: int
MOST_NGRAMS: int
MOST_CROSSED: int
MOST_HASHED_COLUMNS: int

def hash_rows(
    columns: list[Any],
    terms: list[tuple[int, ...]],
    ends: _Array,
    /,
    *,
    bits: int,
    ngrams: int,
    missing: _Array | None,
    beside: _Array | None,
) -> tuple[bytes, bytes]: ...
def murmur(content: bytes, seed: int, /) -> int: ...

# bind_text.c
def json_depth(text: bytes | memoryview, /) -> int: ...
def lines_scan(
    text: _Array, final: int, mark: int, quote: int, fields: int, starts: _Array, /
) -> tuple[int, int, int, int, int, int]: ...
def svmlight_parse(
    text: bytes | memoryview,
    labels: _Array,
    /,
    *,
    final: bool = True,
    base: int = 0,
    starts: _Array | None = None,
    ends: _Array | None = None,
    indices: _Array | None = None,
    values: _Array | None = None,
) -> tuple[int, int, int, int, int, int, int, int, int, int]: ...

# bind_visits.c
def classes_add(
    codes: _Array, sizes: _Array, counts: _Array, start: int, last: _Array | None, longest: _Array | None, /
) -> None: ...
def classes_find(values: _Array, table: _Array, least: int, codes: _Array, /) -> int: ...
def visits_add(
    ids: _Array,
    sizes: _Array,
    seen: _Array,
    rows: int,
    bound: int,
    chosen: _Array,
    along: _Array,
    last: _Array,
    places: _Array | None,
    parts: int,
    /,
) -> tuple[int, int, int]: ...
