/* Members of several models: the groups of a column or the labels, and which of them each training row has. */
#pragma once

#include "postgres.h"

#include "learning.h"

/* label_reader.c */
typedef struct {
    int32 *at;              /* [count] label numbers, ascending */
    int64 count, room;
    MemoryContext row;      /* of one row: detoasted arrays and their elements */
} CorgiTags;
extern CorgiTags corgi_make_tags(void);
extern void corgi_sort_tags(int32 *at, int64 count);
extern void corgi_read_tags(const CorgiSource *part, TupleTableSlot *row, CorgiNames *names, bool known, CorgiTags *t);
extern Oid corgi_label_type(const CorgiSource *s);
extern const char *corgi_name_of_sets(const List *labels);
extern void corgi_check_labels(const CorgiOptions *o, bool label, bool classes);

/* members.c */
typedef struct CorgiMembers CorgiMembers;
extern void corgi_begin_members(CorgiRun *run);
extern void corgi_note_member(CorgiRun *run, const CorgiSource *part, TupleTableSlot *row);
extern void corgi_settle_members(CorgiRun *run);
extern bool corgi_are_labels(const CorgiMembers *m);
extern int64 corgi_model_count(const CorgiRun *run);
extern int64 *corgi_rows_per_model(const CorgiRun *run);
extern int64 corgi_members_bytes(const CorgiRun *run);
extern int64 corgi_member_of(const CorgiMembers *m, int64 row);
extern int64 corgi_set_of_row(CorgiMembers *m, const CorgiSource *part, TupleTableSlot *row);
extern CorgiLabelSets corgi_label_sets(const CorgiMembers *m);
extern char *corgi_member_name(const CorgiMembers *m, int64 k);
extern void corgi_write_members(StringInfo json, const CorgiMembers *m);
