/* Multilabel models: one model per label. Included by corgipile.h. */
#ifndef CORGI_LABELS_H
#define CORGI_LABELS_H

/* label_reader.c */
typedef struct {
    int32 *at;              /* [count] label numbers, ascending */
    int64 count, room;
    MemoryContext row;      /* of one row: detoasted arrays and their elements */
} CorgiTags;
extern CorgiTags corgi_make_tags(void);
extern void corgi_read_tags(const CorgiSource *part, TupleTableSlot *row, CorgiNames *names, bool known, CorgiTags *t);
extern Oid corgi_label_type(const CorgiSource *s);
extern const char *corgi_name_of_sets(const List *labels);
extern bool corgi_is_label(const CorgiOptions *o, const char *column);
extern void corgi_check_labels(const CorgiOptions *o, bool label, bool classes);

/* labels.c */
typedef struct CorgiLabels CorgiLabels;
extern void corgi_begin_labels(CorgiRun *run);
extern void corgi_note_labels(CorgiRun *run, const CorgiSource *part, TupleTableSlot *row);
extern void corgi_settle_labels(CorgiRun *run);
extern int64 corgi_label_count(const CorgiLabels *l);
extern int64 corgi_labels_bytes(const CorgiRun *run);
extern int64 corgi_set_of(const CorgiLabels *l, int64 row);
extern int64 corgi_set_of_row(CorgiLabels *l, const CorgiSource *part, TupleTableSlot *row);
extern const uint8 *corgi_label_sets(const CorgiLabels *l, int64 *sets);
extern char *corgi_label_name(const CorgiLabels *l, int64 k);
extern void corgi_write_labels(StringInfo json, const CorgiLabels *l);

#endif
