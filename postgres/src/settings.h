/* Settings of the server, a database, a role or a session. */
#ifndef CORGIPILE_SETTINGS_H
#define CORGIPILE_SETTINGS_H

enum { CORGI_SHARE_NONE = -1 };
extern int corgi_share;         /* what everybody may do with a new model: a right, or none */
extern int corgi_max_threads;   /* of a training, besides what it asks for */
extern int corgi_max_memory;    /* kilobytes of a training's buffer; -1: no limit */
extern int corgi_versions;      /* of a model that are kept, with the present one */

extern void corgi_define_settings(void);

#endif
