/* What the C tests of CCS share. */
#ifndef CCS_CHECK_H
#define CCS_CHECK_H

#include "ccs.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define CHECK(condition)                                                              \
    do {                                                                              \
        if (!(condition)) {                                                           \
            fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__, #condition);           \
            abort();                                                                  \
        }                                                                             \
    } while (0)

#define CODE(call, expected)                                                                                   \
    do {                                                                                                       \
        int code_ = (call);                                                                                    \
        if (code_ != (expected)) {                                                                             \
            fprintf(stderr, "%s:%d: %s gave %d (%s), not %s\n", __FILE__, __LINE__, #call, code_,              \
                    CCS_strerror(code_), #expected);                                                           \
            abort();                                                                                           \
        }                                                                                                      \
    } while (0)

#define OK(call) CODE(call, CCS_SUCCESS)

#endif
