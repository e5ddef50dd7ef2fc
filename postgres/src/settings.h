/* Configuration settings of a server, database, role or session. */
#pragma once

enum { CORGI_SHARE_NONE = -1 };
extern int corgi_share;         /* right of everybody on a new model, or none */
extern int corgi_max_threads;   /* upper bound of a training's threads */
extern int corgi_max_memory;    /* kilobytes of a training's buffer; -1: no limit */
extern int corgi_max_jobs;      /* concurrent jobs of a role; -1: no limit */
extern int corgi_versions;      /* stored versions of a model, the current one included */

extern void corgi_define_settings(void);
