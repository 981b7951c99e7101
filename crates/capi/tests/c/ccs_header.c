/* What a program writes with the header alone: it is compiled by several standards, and not run. */
#include "ccs.h"

static int answered;

static void handler(CCS_token_t token, void *buffer, unsigned len, int number, const char *text)
{
    (void)buffer, (void)len, (void)text;
    answered += CCS_amreply(token, NULL, 0, CCS_DATA_NULL, number, 0);
}

int use(CCS_context_t context, int *to);

int use(CCS_context_t context, int *to)
{
    CCS_lock_t lock;
    int code = CCS_lock_init(&lock) + CCS_register_handler(context, 1, handler);
    code += CCS_amrequest(context, 1, to, sizeof *to, CCS_DATA8, 1, 2, 5, "text");
    code += CCS_amrequest(context, 1, to, 1, CCS_DATA32, 1, 16, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, to);
    CCS_block_until(answered > 0);
    return code + CCS_fence(1);
}
