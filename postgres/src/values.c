/* Values as numbers, and as text that is equal for equal values of any type. */

#include "numbers.h"

#include <math.h>

#include "catalog/pg_type.h"
#include "common/shortest_dec.h"
#include "utils/builtins.h"
#include "utils/date.h"
#include "utils/datetime.h"
#include "utils/fmgrprotos.h"
#include "utils/json.h"
#include "utils/lsyscache.h"
#include "utils/timestamp.h"

static const int64 epoch_days = POSTGRES_EPOCH_JDATE - UNIX_EPOCH_JDATE;
enum { LOWEST_DECIMAL = -6, FIRST_EXPONENT = 15 }; /* powers of ten between which numbers need no exponent */

bool corgi_is_number(Oid type) { return type == NUMERICOID || corgi_stored_type(type) != CP_TYPES; }

bool corgi_is_text(Oid type)
{
    return type == TEXTOID || type == VARCHAROID || type == BPCHAROID || type == NAMEOID || type_is_enum(type);
}

/* Return the comparison family of a type. */
CorgiFamily corgi_family(Oid type)
{
    if (type == DATEOID || type == TIMESTAMPOID || type == TIMESTAMPTZOID)
        return CORGI_TIME;
    if (corgi_is_number(type) || type == TIMEOID)
        return CORGI_NUMBER;
    return corgi_is_text(type) ? CORGI_TEXT : CORGI_NO_FAMILY;
}

/* Convert a number exactly as the kernel converts arrays of its type. */
void corgi_read_number(Oid type, Datum value, int bytes, char *to)
{
    union { bool b; int16 i2; int32 i4; int64 i8; float4 f4; float8 f8; } scalar;
    enum cp_type from = corgi_stored_type(type);
    switch (type) {
    case BOOLOID: scalar.b = DatumGetBool(value); break;
    case INT2OID: scalar.i2 = DatumGetInt16(value); break;
    case INT4OID: scalar.i4 = DatumGetInt32(value); break;
    case INT8OID: scalar.i8 = DatumGetInt64(value); break;
    case FLOAT4OID: scalar.f4 = DatumGetFloat4(value); break;
    case FLOAT8OID: scalar.f8 = DatumGetFloat8(value); break;
    default:
        scalar.f8 = DatumGetFloat8(DirectFunctionCall1(numeric_float8, value));
        from = CP_F64;
    }
    cp_cast(to, bytes == 8, (const char *) &scalar, from, 1);
}

/* Return microseconds since 1970; the server's infinities stay infinite. */
static double moment(int64 since_2000)
{
    if (TIMESTAMP_NOT_FINITE(since_2000))
        return TIMESTAMP_IS_NOBEGIN(since_2000) ? -INFINITY : INFINITY;
    return since_2000 > PG_INT64_MAX - epoch_days * USECS_PER_DAY
               ? (double) since_2000 + (double) (epoch_days * USECS_PER_DAY)
               : (double) (since_2000 + epoch_days * USECS_PER_DAY);
}

/* Return a value as a number: dates and times as days since 1970, times of day as seconds. */
double corgi_number_of(Oid type, Datum value)
{
    DateADT date;
    double number;
    switch (type) {
    case DATEOID:
        date = DatumGetDateADT(value);
        if (DATE_NOT_FINITE(date))
            return DATE_IS_NOBEGIN(date) ? -INFINITY : INFINITY;
        return (double) (date + epoch_days);
    case TIMESTAMPOID:
    case TIMESTAMPTZOID: return moment(DatumGetTimestamp(value)) / (double) USECS_PER_DAY;
    case TIMEOID: return (double) DatumGetTimeADT(value) / (double) USECS_PER_SEC;
    default:
        corgi_read_number(type, value, sizeof number, (char *) &number);
        return number;
    }
}

/* Write a fraction with the fewest digits that identify it, from PostgreSQL's digits and decimal point, as Python
 * does. */
static char *write_fraction(double number)
{
    char shown[DOUBLE_SHORTEST_DECIMAL_LEN], digits[DOUBLE_SHORTEST_DECIMAL_LEN];
    int count = 0, point = -1, exponent = 0, first;
    StringInfoData text;
    double_to_shortest_decimal_buf(fabs(number), shown);
    for (const char *at = shown; *at; at++)
        if (*at == '.')
            point = count;
        else if (*at == 'e') {
            exponent = atoi(at + 1);
            break;
        } else
            digits[count++] = *at;
    point = (point < 0 ? count : point) + exponent;
    for (first = 0; digits[first] == '0'; first++)
        point--;
    initStringInfo(&text);
    appendStringInfoString(&text, number < 0 ? "-" : "");
    count -= first;
    if (point - 1 < LOWEST_DECIMAL || point - 1 >= FIRST_EXPONENT)
        appendStringInfo(&text, "%c%s%.*se%+d", digits[first], count > 1 ? "." : "", count - 1, digits + first + 1,
                         point - 1);
    else if (point <= 0)
        appendStringInfo(&text, "0.%.*s%.*s", -point, "000000", count, digits + first);
    else
        appendStringInfo(&text, "%.*s.%.*s", point, digits + first, count - point, digits + first + point);
    return text.data;
}

static char *write_moment(int64 since_2000, Oid type)
{
    struct pg_tm tm;
    fsec_t fraction;
    if (TIMESTAMP_NOT_FINITE(since_2000) || timestamp2tm(since_2000, NULL, &tm, &fraction, NULL, NULL) != 0)
        ereport(ERROR, errcode(ERRCODE_DATETIME_VALUE_OUT_OF_RANGE),
                errmsg("a category must be a finite %s in range", format_type_be(type)));
    return psprintf("%04d-%02d-%02d %02d:%02d:%02d.%06d", tm.tm_year, tm.tm_mon, tm.tm_mday, tm.tm_hour, tm.tm_min,
                    tm.tm_sec, (int) fraction);
}

static char *write_number(Oid type, Datum value)
{
    double number = type == INT8OID ? 0 : corgi_number_of(type, value);
    if (type == INT8OID)
        return psprintf(INT64_FORMAT, DatumGetInt64(value));
    if (isnan(number))
        return NULL;
    if (floor(number) == number && fabs(number) < (double) (INT64CONST(1) << 62))
        return psprintf(INT64_FORMAT, (int64) number);
    return isinf(number) ? (number < 0 ? "-inf" : "inf") : write_fraction(number);
}

static int64 moment_of(Oid type, Datum value)
{
    DateADT date = type == DATEOID ? DatumGetDateADT(value) : 0;
    if (type != DATEOID)
        return DatumGetTimestamp(value);
    if (DATE_NOT_FINITE(date) || date >= TIMESTAMP_END_JULIAN - POSTGRES_EPOCH_JDATE)
        return DT_NOEND;
    return (int64) date * USECS_PER_DAY;
}

/* Return the text of a value's category, as Python writes it; NULL for NaN, which is missing. */
const char *corgi_text_of(Oid type, Datum value, Size *length)
{
    const char *text;
    const struct varlena *stored;
    switch (type) {
    case TEXTOID:
    case VARCHAROID:
    case BPCHAROID:
        stored = PG_DETOAST_DATUM_PACKED(value);
        text = VARDATA_ANY(stored);
        *length = type == BPCHAROID ? (Size) bpchartruelen((char *) text, (int) VARSIZE_ANY_EXHDR(stored))
                                    : VARSIZE_ANY_EXHDR(stored);
        return text;
    case NAMEOID: text = NameStr(*DatumGetName(value)); break;
    case DATEOID:
    case TIMESTAMPOID:
    case TIMESTAMPTZOID: text = write_moment(moment_of(type, value), type); break;
    default:
        text = corgi_family(type) == CORGI_NUMBER ? write_number(type, value)
                                                  : DatumGetCString(DirectFunctionCall1(enum_out, value));
    }
    *length = text ? strlen(text) : 0;
    return text;
}

/* Compare names that are integers; as doubles, large ones would collide. */
static int by_whole_number(const void *a, const void *b)
{
    const int64 x = strtoll(((const CorgiName *) a)->text, NULL, 10),
                y = strtoll(((const CorgiName *) b)->text, NULL, 10);
    return x < y ? -1 : x > y;
}

/* Sort the values of a text, integer or boolean column as Python does. */
void corgi_sort_values(CorgiNames *n, Oid type)
{
    if (corgi_is_text(type))
        corgi_sort_names(n, false);
    else
        corgi_order_names(n, by_whole_number);
}

/* Write such a value as JSON; NULL as null. */
void corgi_write_value(StringInfo json, const char *text, Oid type)
{
    if (text == NULL)
        appendStringInfoString(json, "null");
    else if (corgi_is_text(type))
        escape_json(json, text);
    else if (type == BOOLOID)
        appendStringInfoString(json, *text == '0' ? "false" : "true");
    else
        appendStringInfoString(json, text);
}
