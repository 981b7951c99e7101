/* Many threads call, and many answer: each request is answered once, by the thread that got it. Argument: the transport. */
#include "messenger.h"
#include <pthread.h>

#define CALLERS 2
#define ANSWERERS 4
#define COUNT 600
#define LONG_BYTES 300000

/* Requests by their numbers, as they came, and how many threads have tried to answer each. */
static cci_messenger_event_t *requests[COUNT];
static int tried[COUNT], answered_by[COUNT];
/* Requests that were given back. */
static int returned;
/* All answers have arrived. */
static int has_all;

static void patiently(long long until)
{
    CHECK(now_ms() < until);
    usleep(50);
}

static int is_long(uint32_t number)
{
    return number % 16 == 0;
}

/* Every CALLERS-th call. */
static void *caller(void *first)
{
    long long until = now_ms() + PATIENCE_MS;
    for (uint32_t number = (uint32_t)(uintptr_t)first; number < COUNT; number += CALLERS) {
        void *context = (void *)(uintptr_t)number;
        int status;
        while ((status = cci_messenger_call(client.messenger, client.peer, &number, sizeof number, NULL, context, NULL)) != 0) {
            CHECK_STATUS(status, CCI_ENOBUFS);
            patiently(until);
        }
    }
    return NULL;
}

/* Takes the server's events, sleeping on its descriptor, and gives back requests that every thread has tried to answer. Goes on until the
 * answers have arrived: a server that makes no progress sends nothing again, and long answers in no further part. */
static void *taker(void *unused)
{
    long long until = now_ms() + PATIENCE_MS;
    (void)unused;
    while (returned < COUNT || !__atomic_load_n(&has_all, __ATOMIC_ACQUIRE)) {
        cci_messenger_event_t *event;
        int status = cci_messenger_wait_event(server.messenger, &(struct timeval){0, 1000}, &event);
        if (status == CCI_SUCCESS) {
            uint32_t number;
            CHECK(event->type == CCI_MESSENGER_REQUEST && event->len == sizeof number);
            memcpy(&number, event->ptr, sizeof number);
            CHECK(number < COUNT && !requests[number]);
            __atomic_store_n(&requests[number], event, __ATOMIC_RELEASE);
        } else {
            CHECK(status == CCI_EAGAIN || status == CCI_ENOBUFS);
        }
        for (uint32_t number = 0; number < COUNT; number++)
            if (__atomic_load_n(&tried[number], __ATOMIC_ACQUIRE) == ANSWERERS) {
                return_event(requests[number]);
                tried[number]++;
                returned++;
            }
        CHECK(now_ms() < until);
    }
    return NULL;
}

/* Tries to answer every request, of which other threads do the same. */
static void *answerer(void *which)
{
    const uint32_t me = (uint32_t)(uintptr_t)which;
    long long until = now_ms() + PATIENCE_MS;
    unsigned char *bytes = contents(LONG_BYTES, me);
    char has_tried[COUNT] = {0};
    for (int count = 0; count < COUNT;) {
        for (uint32_t number = 0; number < COUNT; number++) {
            cci_messenger_event_t *request = __atomic_load_n(&requests[number], __ATOMIC_ACQUIRE);
            if (!request || has_tried[number])
                continue;
            int status = is_long(number)
                             ? cci_messenger_reply(server.messenger, request, bytes, LONG_BYTES)
                             : cci_messenger_reply_error(server.messenger, request, me, &number, sizeof number);
            if (status == CCI_ENOBUFS)
                continue;
            if (status == CCI_SUCCESS)
                CHECK(__atomic_exchange_n(&answered_by[number], (int)me, __ATOMIC_ACQ_REL) == 0);
            else
                CHECK_STATUS(status, CCI_EINVAL);
            has_tried[number] = 1;
            count++;
            __atomic_fetch_add(&tried[number], 1, __ATOMIC_ACQ_REL);
        }
        patiently(until);
    }
    free(bytes);
    return NULL;
}

static void answers_from_threads(const char *transport)
{
    pthread_t callers[CALLERS], answerers[ANSWERERS], takes;
    uint32_t ended_by[COUNT] = {0};
    open_pair(transport, CCI_CONN_ATTR_RO, NULL);
    CHECK(pthread_create(&takes, NULL, taker, NULL) == 0);
    for (uintptr_t at = 0; at < ANSWERERS; at++)
        CHECK(pthread_create(&answerers[at], NULL, answerer, (void *)(at + 1)) == 0);
    for (uintptr_t at = 0; at < CALLERS; at++)
        CHECK(pthread_create(&callers[at], NULL, caller, (void *)at) == 0);
    for (int ended = 0; ended < COUNT; ended++) {
        cci_messenger_event_t *event;
        OK(cci_messenger_wait_event(client.messenger, &(struct timeval){PATIENCE_MS / 1000, 0}, &event));
        CHECK(event->type == CCI_MESSENGER_REPLY);
        uint32_t number = (uint32_t)(uintptr_t)event->context;
        CHECK(number < COUNT && ended_by[number] == 0);
        if (is_long(number)) {
            OK(event->status);
            CHECK(event->len == LONG_BYTES);
            for (uint32_t me = 1; me <= ANSWERERS; me++)
                if (is_contents(event->ptr, event->len, me))
                    ended_by[number] = me;
            CHECK(ended_by[number]);
        } else {
            CHECK_STATUS(event->status, CCI_EXT_REPLY_ERROR);
            CHECK(event->len == sizeof number && memcmp(event->ptr, &number, sizeof number) == 0);
            ended_by[number] = event->code;
        }
        return_event(event);
    }
    __atomic_store_n(&has_all, 1, __ATOMIC_RELEASE);
    for (int at = 0; at < CALLERS; at++)
        CHECK(pthread_join(callers[at], NULL) == 0);
    for (int at = 0; at < ANSWERERS; at++)
        CHECK(pthread_join(answerers[at], NULL) == 0);
    CHECK(pthread_join(takes, NULL) == 0);
    for (int number = 0; number < COUNT; number++)
        CHECK(ended_by[number] == (uint32_t)answered_by[number]);
    idle();
    close_pair();
}

CASES("messenger_threads", answers_from_threads)
