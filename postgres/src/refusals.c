/* Errors about rows that the kernel refused. */
#include "members.h"
#include "reading.h"

/* Raise an error about a row that the kernel refused. */
void corgi_learner_refuse(const CorgiRun *run, int status, int32 slot)
{
    const CorgiBuffer *b = &run->buffer;
    const CorgiColumn *c = run->source.parts[b->part ? b->part[slot] : 0].features;
    const char *row = corgi_row_name(c, &b->tid[slot]);
    if (run->members != NULL && b->group != NULL)
        row = psprintf("%s of group %s", row, corgi_member_name(run->members, b->group[slot]));
    switch (status) {
    case CP_SGD_BAD_LABEL:
        if (corgi_predicts_numbers(&run->options.of))
            ereport(ERROR, errcode(ERRCODE_INVALID_PARAMETER_VALUE),
                    errmsg("%s has label %g; a %s model takes labels of 0 or more", row, b->y[slot],
                           corgi_loss_name(&run->options.of)));
        ereport(ERROR, errcode(ERRCODE_INVALID_PARAMETER_VALUE),
                errmsg("%s has label %g, which is none of the classes", row, b->y[slot]));
        break;
    case CP_SGD_BAD_WEIGHT:
        ereport(ERROR, errcode(ERRCODE_INVALID_PARAMETER_VALUE),
                errmsg("%s has weight %g; a finite number of 0 or more is needed", row, b->weight[slot]));
        break;
    case CP_SGD_BAD_VALUE:
        ereport(ERROR, errcode(ERRCODE_INVALID_PARAMETER_VALUE),
                errmsg("%s has a feature that is NaN or infinite; finite numbers are needed", row));
        break;
    case CP_SGD_BAD_INDEX:
    case CP_SGD_BAD_ORDER:
        corgi_refuse_indices(c, &b->tid[slot], status, run->survey.width);
        break;
    case CP_SGD_DIVERGED:
        if (run->options.learning_rate == 0)
            ereport(ERROR, errcode(ERRCODE_NUMERIC_VALUE_OUT_OF_RANGE),
                    errmsg("%s has a score that overflows %s", row,
                           run->source.bytes == 4 ? "real" : "double precision"));
        ereport(ERROR, errcode(ERRCODE_NUMERIC_VALUE_OUT_OF_RANGE),
                errmsg("training diverged: %s brought the weights beyond what %s can hold", row,
                       run->source.bytes == 4 ? "real" : "double precision"),
                corgi_hint_rate(run));
        break;
    default:
        elog(ERROR, "%s was refused by the kernel with status %d", row, status);
    }
}
