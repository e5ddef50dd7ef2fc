#include "bind.h"

PyMethodDef cp_sgd_methods[] = {{NULL, NULL, 0, NULL}};
