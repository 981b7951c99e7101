/*
 * A messenger in libuv's loop: a client of messenger_kv that asks for one key again and again, on a timer.
 *
 *   messenger_uv URI key [count]
 *
 * The descriptor is watched by uv_poll_start(). It is level-triggered, so each wake-up takes what is there and goes back to the loop.
 */
#include <cci_messenger.h>
#include <stdlib.h>
#include <string.h>
#include <uv.h>

static struct {
    cci_messenger_t *messenger;
    cci_messenger_connection_t server;
    const char *key;
    int asked, answered, count;
    uv_poll_t poll;
    uv_timer_t timer;
} client;

static void check(int status, const char *what)
{
    if (status != CCI_SUCCESS) {
        fprintf(stderr, "%s: %s: %s\n", what, cci_strerror(NULL, (cci_status_t)status), cci_last_error());
        exit(1);
    }
}

static void ask(uv_timer_t *timer)
{
    const struct timeval timeout = {10, 0};
    if (client.asked == client.count) {
        uv_timer_stop(timer);
        return;
    }
    /* Where as many calls are under way as may be, the next turn asks. */
    int status = cci_messenger_call(client.messenger, client.server, client.key, strlen(client.key), &timeout, NULL, NULL);
    if (status != CCI_ENOBUFS) {
        check(status, "call");
        client.asked++;
    }
}

static void on_event(cci_messenger_event_t *event)
{
    switch (event->type) {
    case CCI_MESSENGER_CONNECT:
        check(event->status, "connect");
        client.server = event->connection;
        uv_timer_start(&client.timer, ask, 0, 1);
        break;
    case CCI_MESSENGER_REPLY:
        if (event->status != CCI_EXT_REPLY_ERROR)
            check(event->status, "reply");
        client.answered++;
        break;
    case CCI_MESSENGER_DISCONNECTED:
        fprintf(stderr, "the server has gone\n");
        exit(1);
    default:
        break;
    }
}

static void on_readable(uv_poll_t *poll, int status, int events)
{
    cci_messenger_event_t *event;
    (void)events;
    if (status < 0)
        exit(1);
    while (cci_messenger_get_event(client.messenger, &event) == CCI_SUCCESS) {
        on_event(event);
        check(cci_messenger_return_event(event), "return_event");
    }
    if (client.answered == client.count) {
        uv_close((uv_handle_t *)poll, NULL);
        uv_close((uv_handle_t *)&client.timer, NULL);
    }
}

int main(int argc, char **argv)
{
    uint32_t caps;
    int fd;
    if (argc < 3)
        return 2;
    client.key = argv[2];
    client.count = argc > 3 ? atoi(argv[3]) : 100;
    check(cci_init(CCI_ABI_VERSION, 0, &caps), "cci_init");
    check(cci_messenger_open(NULL, NULL, NULL, NULL, &client.messenger, &fd), "open");
    check(cci_messenger_connect(client.messenger, argv[1], NULL, 0, CCI_CONN_ATTR_RO, NULL, &(struct timeval){10, 0}),
          "connect");
    uv_poll_init(uv_default_loop(), &client.poll, fd);
    uv_timer_init(uv_default_loop(), &client.timer);
    uv_poll_start(&client.poll, UV_READABLE, on_readable);
    uv_run(uv_default_loop(), UV_RUN_DEFAULT);
    uv_loop_close(uv_default_loop());
    printf("%d answers\n", client.answered);
    check(cci_messenger_close(client.messenger), "close");
    check(cci_finalize(), "cci_finalize");
    return 0;
}
