/* A service that is killed and started again is found without a call by anybody, and one that is not there is an error after a while. */
#include "ripc_check.h"

#define SERVER 1
#define CLIENT 4

/* Lives of the service, which make no call beyond what a server makes. */
static void serve(struct other *parent)
{
    CHECK(ripc_register_service_id(SERVER) == 1);
    tell(parent);
    for (;;) {
        struct message got = receive(SERVER);
        CHECK(got.result == 0 || got.result == 2);
        if (got.result == 0) {
            CHECK(send_bytes(SERVER, got.from, got.shorts[0], got.short_sizes[0]) == 0);
            done(&got);
        }
    }
}

/* Starts the lives, since a process that has services can't fork one that has. */
static void conduct(struct other *parent)
{
    for (int life = 0; life < 4; life++) {
        struct other server = start(serve);
        await(&server);
        tell(parent);
        await(parent);
        end(&server);
        tell(parent);
    }
}

int main(void)
{
    struct other conductor = start(conduct);
    CHECK(ripc_register_service_id(CLIENT) == 1);
    for (int life = 0; life < 4; life++) {
        await(&conductor);
        long long until = now_ms() + PATIENCE_MS;
        for (;;) {
            /* What was sent to the last life may be lost. */
            CHECK(now_ms() < until);
            CHECK(send_bytes(CLIENT, SERVER, &life, sizeof life) == 0);
            struct message got = receive_within(CLIENT, 300);
            if (got.result == 0) {
                int is_it = memcmp(got.shorts[0], &life, sizeof life) == 0;
                done(&got);
                if (is_it)
                    break;
            }
        }
        while (receive_within(CLIENT, 300).result == 0)
            ;
        tell(&conductor);
        await(&conductor);
    }
    finish(&conductor);
    /* Nobody is there: an error, and not too soon. */
    int failed = 0;
    for (int attempt = 0; attempt < 20 && !failed; attempt++) {
        failed = send_text(CLIENT, SERVER, "anybody?") != 0;
        sleep_ms(failed ? 0 : 300);
    }
    CHECK(failed && strlen(cci_last_error()) > 0);
    puts("ripc_restart: all well");
    return 0;
}
