/* A sender that exits at once, and receivers that do not receive: one that is busy, and one that is stopped. */
#include "ripc_check.h"

#define SERVER 1
#define SLOW 2
#define HELLO 4
#define SENDS 2000

static void hello(struct other *parent)
{
    CHECK(ripc_register_service_id(HELLO));
    await(parent);
    static char bytes[1500];
    for (int number = 0; number < 50; number++) {
        memcpy(bytes, &number, sizeof number);
        CHECK(send_bytes(HELLO, SERVER, bytes, sizeof bytes) == 0);
    }
    exit(0);
}

static void slow(struct other *parent)
{
    CHECK(ripc_register_service_id(SLOW));
    tell(parent);
    await(parent);
    /* What waits comes, each message once and in order. */
    int last = -1, count = 0;
    struct message got;
    while ((got = receive_within(SLOW, 500)).result == 0) {
        int number = *(int *)got.shorts[0];
        CHECK(got.from == SERVER && number > last);
        last = number;
        count++;
        done(&got);
    }
    CHECK(got.result == 2 && count >= 8);
}

int main(void)
{
    struct other sender = start(hello), receiver = start(slow);
    CHECK(ripc_register_service_id(SERVER));
    tell(&sender);
    finish(&sender);
    for (int number = 0; number < 50; number++) {
        struct message got = receive(SERVER);
        CHECK(got.result == 0 && got.from == HELLO && *(int *)got.shorts[0] == number);
        done(&got);
    }
    await(&receiver);
    for (int number = 0; number < SENDS; number++)
        CHECK(send_bytes(SERVER, SLOW, &number, sizeof number) == 0);
    CHECK(kill(receiver.pid, SIGSTOP) == 0);
    /* They return, whatever becomes of them. */
    for (int number = SENDS; number < 2 * SENDS; number++)
        send_bytes(SERVER, SLOW, &number, sizeof number);
    CHECK(kill(receiver.pid, SIGCONT) == 0);
    tell(&receiver);
    finish(&receiver);
    puts("ripc_ends: all well");
    return 0;
}
