"""Check of the SQL expressions that a model file holds."""

import json
import re
from collections.abc import Iterator, Mapping
from typing import Any

from corgipile.errors import BadArgument
from corgipile.sql.engines.duckdb.session import Session

__all__ = ["HIDDEN", "check_expressions"]

HIDDEN = "corgipile_computed_"  # prefix of computed columns
MAX_LENGTH, MAX_COLUMNS = 1 << 16, 100  # of one expression
MAX_CALLS = {"nullif": 8, "list_value": 8, "list_filter": 1}  # nested ones double a value, its quotes, or multiply time
MAX_REPEATED = 1 << 12  # characters of an expression with CASE x WHEN, which DuckDB reads as a copy of x per WHEN
CASE = re.compile(r"(?<![^\W\d])case(?!\w)", re.IGNORECASE)  # in strings too: they need no parsing then
SIMPLE_CASE = re.compile(CASE.pattern + r"(?!\s+when(?!\w))", re.IGNORECASE)
PARTS = {"BETWEEN", "CASE", "CAST", "COLUMN_REF", "COMPARISON", "CONJUNCTION", "CONSTANT", "FUNCTION", "LAMBDA"}
PARTS |= {"OPERATOR", "TYPE"}  # other parts read other rows, or load an extension
TYPES = (
    "bigint bool boolean bpchar char date datetime dec decimal double float float4 float8 hugeint int int1 int2 int32 "
    "int4 int64 int8 integer interval list long numeric real short smallint string text time timestamp timestamp_ms "
    "timestamp_ns timestamp_s timestamptz tinyint ubigint uhugeint uinteger usmallint utinyint varchar"
)
ZONED = ("time with time zone", "timestamp with time zone")
FUNCTIONS = (
    "+ - * / // % ^ ** & | ~ << >> @ || ~~ !~~ ~~* !~~* ~~~ ^@ like_escape not_like_escape ilike_escape "
    "not_ilike_escape if nullif constant_or_null typeof hash md5_number "
    "abs acos acosh add asin asinh atan atan2 atanh bit_count cbrt ceil ceiling cos cosh cot degrees divide even exp "
    "factorial floor fmod gamma gcd greatest greatest_common_divisor isfinite isinf isnan lcm least "
    "least_common_multiple lgamma ln log log10 log2 mod multiply nextafter pi pow power radians round round_even sign "
    "signbit sin sinh sqrt subtract tan tanh trunc xor "
    "array_contains array_extract array_length array_position element_at len list_contains list_element list_extract "
    "list_filter list_position list_value "
    "ascii bit_length char_length character_length chr concat contains damerau_levenshtein editdist3 "
    "ends_with hamming instr jaccard jaro_similarity jaro_winkler_similarity lcase left left_grapheme length "
    "length_grapheme levenshtein lower ltrim mismatches nfc_normalize octet_length ord position prefix regexp_extract "
    "regexp_full_match regexp_matches replace reverse right right_grapheme rtrim starts_with strip_accents strlen "
    "strpos substr substring substring_grapheme suffix translate trim ucase unicode upper "
    "century date_diff date_part date_sub date_trunc datediff datepart datesub datetrunc day dayname dayofmonth "
    "dayofweek dayofyear decade epoch epoch_ms epoch_ns epoch_us era hour isodow isoyear julian last_day make_date "
    "make_time make_timestamp microsecond millennium millisecond minute month monthname nanosecond quarter second "
    "strftime strptime time_bucket timezone timezone_hour timezone_minute to_days to_hours to_microseconds "
    "to_milliseconds to_minutes to_months to_quarters to_seconds to_timestamp to_weeks to_years try_strptime week "
    "weekday weekofyear year yearweek"
)  # of their arguments alone, whose result is no longer than these; DuckDB has others that plan queries or make sizes


def check_expressions(session: Session, columns: Mapping[str, str]) -> None:
    """Raise BadArgument unless each SQL is one expression of columns, constants and known functions.

    A model may come from somebody else: its expressions reach no rows, files or hosts, and make no large values.
    """
    shadowed = "SELECT function_name FROM system.main.duckdb_functions() WHERE NOT internal"
    known, rests = {*FUNCTIONS.split()} - {str(name).lower() for (name,) in session.rows(shadowed)}, []
    for name, sql in [("", "0"), *columns.items()]:
        if len(str(sql)) > MAX_LENGTH or _repeats(str(sql)):
            limits = f"{MAX_LENGTH} characters, and one CASE unless each begins with CASE WHEN"
            raise BadArgument(f"an expression of TRANSFORM must have at most {limits}, got {name!r}")
        statement = {"sql": f"SELECT ({sql}\n)"}
        text = str(session.rows("SELECT system.main.json_serialize_sql($sql)", statement)[0][0])
        try:
            parsed = json.loads(text)
        except RecursionError:
            raise BadArgument(f"TRANSFORM must be expressions of fewer levels, got {name!r}") from None
        parts = [part for part in _parts(parsed) if "class" in part]
        node, *others = [one["node"] for one in parsed.get("statements", [])] or [{}]
        rests.append((len(node.pop("select_list", ())), node, others))
        if rests[-1] != rests[0] or not {part["class"] for part in parts} <= PARTS:
            raise BadArgument(f"TRANSFORM must be expressions without queries, got {sql!r} for {name!r}")
        calls = [_path(part, "function_name") for part in parts if part["class"] == "FUNCTION"]
        types = {_path(part, "type_name") for part in parts if part["class"] == "TYPE"}
        if other := sorted({*calls} - known) + sorted(types - {*TYPES.split(), *ZONED}):
            raise BadArgument(f"TRANSFORM must use functions and types that it supports, got {other[0]} for {name!r}")
        named = [part["column_names"][-1] for part in parts if part["class"] == "COLUMN_REF"]
        if any(one.lower().startswith(HIDDEN) for one in named) or not all(map(_keeps_length, parts)):
            raise BadArgument(f"TRANSFORM must replace text by one character, and name columns only, got {name!r}")
        if len(named) > MAX_COLUMNS or any(calls.count(one) > most for one, most in MAX_CALLS.items()):
            limits = f"{MAX_COLUMNS} columns, 8 nullif, 8 lists and one list_filter"
            raise BadArgument(f"an expression of TRANSFORM must have at most {limits}, got {name!r}")


def _repeats(sql: str) -> bool:
    """Return whether an expression has CASE x WHEN in another CASE, or in a long text."""
    return SIMPLE_CASE.search(sql) is not None and (len(sql) > MAX_REPEATED or len(CASE.findall(sql)) > 1)


def _keeps_length(part: Mapping[str, Any]) -> bool:
    """Return whether a part, if it replaces text, replaces it by at most one character."""
    if part["class"] != "FUNCTION" or part["function_name"].lower() != "replace":
        return True
    literals = [one["expression"].get("literal", {}) for one in part["arguments"]]
    return len(literals) == 3 and literals[2].get("kind") == "STRING" and len(literals[2]["text"]) <= 1


def _parts(parsed: Any) -> Iterator[dict[str, Any]]:
    """Yield all parts of a parsed statement."""
    waiting = [parsed]
    while waiting:
        part = waiting.pop()
        if isinstance(part, dict):
            yield part
        waiting += part.values() if isinstance(part, dict) else part if isinstance(part, list) else ()


def _path(part: Mapping[str, Any], key: str) -> str:
    """Return the name of a function or type, with its schema if it has one."""
    return ".".join(part[one] for one in ("catalog", "schema", key) if part.get(one)).lower()
