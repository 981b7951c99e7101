/* Messages for a handler that does not come: CCS_explain names the handler and its context at the receiver, and at the sender the credits that do
 * not come back. Rank 0 sends, the last rank receives. */
#include "ccs_check.h"

enum { HANDLER = 7 };

static int handled;

static void late(CCS_token_t token, void *buffer, unsigned len)
{
    CHECK(token && len == 10 && memcmp(buffer, "for nobody", 10) == 0);
    handled++;
}

/* Whether CCS_explain says this of a rank. */
static int says(int rank, const char *what)
{
    char *text = NULL;
    OK(CCS_explain(rank, &text));
    int is_said = strstr(text, what) != NULL;
    free(text);
    return is_said;
}

/* Sends until there is no room, and asks why. Returns how many messages were sent. */
static int fill(CCS_context_t library, int to)
{
    int sent = 0, code;
    while ((code = CCS_try_amrequestv(library, to, "for nobody", 10, CCS_DATA8, HANDLER, 0, NULL)) == CCS_SUCCESS)
        sent++;
    CHECK(code == CCS_ERR_AGAIN && sent > 0);
    CHECK(says(to, "the program's messages wait") && says(to, "does it poll, and has it all handlers?"));
    return sent;
}

int main(void)
{
    CCS_context_t library;
    int rank, size, sent = 0;
    char waits[100];
    OK(CCS_init());
    OK(CCS_rank(&rank));
    OK(CCS_nprocs(&size));
    int to = size - 1;
    CHECK(to > 0);
    if (rank == 0) {
        OK(CCS_new_named_context("library", &library));
        CHECK(!says(to, "the program's messages wait"));
        sent = fill(library, to);
    }
    /* What waits for a handler holds up no collective. */
    OK(CCS_broadcast(CCS_TEAM_WORLD, 0, &sent, sizeof sent, CCS_DATA8));
    if (rank == to) {
        snprintf(waits, sizeof waits, "wait here: %d, the first one for handler 7 of the context \"library\", ", sent);
        CCS_block_until(says(0, waits));
        CHECK(says(0, "which this process has not made"));
        OK(CCS_new_named_context("library", &library));
        CCS_block_until(says(0, waits));
        CHECK(says(0, "which is not registered") && handled == 0);
    }
    OK(CCS_barrier());
    /* The sender sees no other state until the handler is there, and then that its credits have come back. */
    if (rank == 0)
        CHECK(says(to, "the program's messages wait"));
    OK(CCS_barrier());
    if (rank == to) {
        OK(CCS_register_handler(library, HANDLER, late));
        CCS_block_until(handled == sent);
        CHECK(!says(0, "wait here"));
    }
    if (rank == 0)
        CCS_block_until(!says(to, "the program's messages wait"));
    OK(CCS_finalize());
    puts("ccs_explain: all well");
    return 0;
}
