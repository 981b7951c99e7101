/* Jobs in C: one rank or several, which each misuse leaves as they were. */
#include "cci_job.h"
#include "check.h"
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <sys/wait.h>

static cci_job_t *job;

static void misuse(void)
{
    static const char text[CCI_JOB_VALUE_BYTES_MAX + 1];
    char long_key[CCI_JOB_KEY_BYTES_MAX + 2], long_reason[CCI_JOB_REASON_BYTES_MAX + 2];
    cci_job_value_t *value = (cci_job_value_t *)0x11;
    cci_job_t *other = (cci_job_t *)0x11;
    const struct timeval now = {0, 0}, never = {-1, 0};
    cci_job_status_t status = {(cci_job_status_type_t)55, 66};
    uint32_t host = 77;
    memset(long_key, 'k', sizeof long_key);
    memset(long_reason, 'r', sizeof long_reason);
    long_key[sizeof long_key - 1] = long_reason[sizeof long_reason - 1] = 0;

    CHECK_STATUS(cci_job_join(NULL), CCI_EINVAL);
    CHECK_STATUS(cci_job_join(&other), CCI_EBUSY);
    CHECK_STATUS(cci_job_leave(NULL), CCI_EINVAL);
    CHECK_STATUS(cci_job_leave(other), CCI_EINVAL);
    CHECK_STATUS(cci_job_host_of(job, 0, NULL), CCI_EINVAL);
    CHECK_STATUS(cci_job_host_of(job, job->size, &host), CCI_ERANGE);
    CHECK_STATUS(cci_job_put(NULL, "key", "value", 5), CCI_EINVAL);
    CHECK_STATUS(cci_job_put(job, NULL, "value", 5), CCI_EINVAL);
    CHECK_STATUS(cci_job_put(job, "", "value", 5), CCI_EINVAL);
    CHECK_STATUS(cci_job_put(job, "\xff", "value", 5), CCI_EINVAL);
    CHECK_STATUS(cci_job_put(job, long_key, "value", 5), CCI_EINVAL);
    CHECK_STATUS(cci_job_put(job, "key", NULL, 5), CCI_EINVAL);
    CHECK_STATUS(cci_job_put(job, "key", text, sizeof text), CCI_EMSGSIZE);
    CHECK_STATUS(cci_job_get(job, 0, "key", NULL), CCI_EINVAL);
    CHECK_STATUS(cci_job_get(job, 0, NULL, &value), CCI_EINVAL);
    CHECK_STATUS(cci_job_get(job, 0, "", &value), CCI_EINVAL);
    CHECK_STATUS(cci_job_get(job, job->size, "key", &value), CCI_ERANGE);
    CHECK_STATUS(cci_job_get(job, job->rank, "key", &value), CCI_ERR_NOT_FOUND);
    CHECK_STATUS(cci_job_exchange(job, "value", 5, NULL), CCI_EINVAL);
    CHECK_STATUS(cci_job_exchange(job, NULL, 5, &value), CCI_EINVAL);
    CHECK_STATUS(cci_job_exchange(job, text, sizeof text, &value), CCI_EMSGSIZE);
    CHECK_STATUS(cci_job_barrier(NULL), CCI_EINVAL);
    CHECK_STATUS(cci_job_abort(job, 0, "why"), CCI_EINVAL);
    CHECK_STATUS(cci_job_abort(job, 256, "why"), CCI_EINVAL);
    CHECK_STATUS(cci_job_abort(job, -1, "why"), CCI_EINVAL);
    CHECK_STATUS(cci_job_abort(job, 1, NULL), CCI_EINVAL);
    CHECK_STATUS(cci_job_abort(job, 1, "\xff"), CCI_EINVAL);
    CHECK_STATUS(cci_job_abort(job, 1, long_reason), CCI_EINVAL);
    CHECK_STATUS(cci_job_survive(NULL), CCI_EINVAL);
    CHECK_STATUS(cci_job_status(NULL, 0, &now, &status), CCI_EINVAL);
    CHECK_STATUS(cci_job_status(job, 0, &now, NULL), CCI_EINVAL);
    CHECK_STATUS(cci_job_status(job, 0, &never, &status), CCI_EINVAL);
    CHECK_STATUS(cci_job_status(job, job->size, &now, &status), CCI_ERANGE);
    CHECK((int)status.type == 55 && status.code == 66);
    OK(cci_job_status(job, job->rank, &now, &status));
    CHECK(status.type == CCI_JOB_RUNNING && status.code == 0);
    CHECK(host == 77 && value == (cci_job_value_t *)0x11 && other == (cci_job_t *)0x11);
}

/* Everybody's values come by rank, also empty ones and the longest. */
static void exchange(void)
{
    char mine[CCI_JOB_VALUE_BYTES_MAX];
    cci_job_value_t *all;
    uint32_t len = job->rank % 2 ? sizeof mine : job->rank;
    memset(mine, (int)job->rank + 1, sizeof mine);
    OK(cci_job_exchange(job, mine, len, &all));
    for (uint32_t rank = 0; rank < job->size; rank++) {
        const char *bytes = all[rank].ptr;
        CHECK(all[rank].len == (rank % 2 ? sizeof mine : rank) && (uintptr_t)bytes % 8 == 0);
        for (uint32_t at = 0; at < all[rank].len; at++)
            CHECK(bytes[at] == (char)(rank + 1));
    }
    free(all);
    OK(cci_job_exchange(job, NULL, 0, &all));
    CHECK(all[job->size - 1].len == 0);
    free(all);
}

static void keys(void)
{
    cci_job_value_t *value = NULL;
    char key[CCI_JOB_KEY_BYTES_MAX + 1];
    memset(key, 'k', CCI_JOB_KEY_BYTES_MAX);
    key[CCI_JOB_KEY_BYTES_MAX] = 0;
    OK(cci_job_put(job, key, &job->rank, sizeof job->rank));
    CHECK_STATUS(cci_job_put(job, key, "other", 5), CCI_ECONNREFUSED);
    OK(cci_job_put(job, "empty", NULL, 0));
    OK(cci_job_barrier(job));
    for (uint32_t rank = 0; rank < job->size; rank++) {
        OK(cci_job_get(job, rank, key, &value));
        CHECK(value->len == sizeof rank && memcmp(value->ptr, &rank, sizeof rank) == 0);
        free(value);
        OK(cci_job_get(job, rank, "empty", &value));
        CHECK(value->len == 0);
        free(value);
    }
}

/* A copy of the process has no part in the job. */
static void copies(void)
{
    pid_t copy = fork();
    int status = 0;
    CHECK(copy >= 0);
    if (copy == 0) {
        cci_job_t *other;
        int refused = cci_job_barrier(job) == CCI_ERROR && cci_job_leave(job) == CCI_ERROR &&
                      cci_job_join(&other) == CCI_EBUSY;
        _exit(refused ? 0 : 1);
    }
    CHECK(waitpid(copy, &status, 0) == copy && WIFEXITED(status) && WEXITSTATUS(status) == 0);
}

static void *wait_for_all(void *arg)
{
    long long until = now_ms() + PATIENCE_MS;
    int status;
    (void)arg;
    /* The other thread looks meanwhile. */
    while ((status = cci_job_barrier(job)) == CCI_EBUSY)
        CHECK(now_ms() < until);
    OK(status);
    return NULL;
}

/* While a thread of rank 0 waits for the others in a barrier, its other threads are refused. */
static void threads(void)
{
    if (job->size > 1 && job->rank == 0) {
        pthread_t waiting;
        long long until = now_ms() + PATIENCE_MS;
        int status;
        CHECK(pthread_create(&waiting, NULL, wait_for_all, NULL) == 0);
        do {
            uint32_t host;
            CHECK(now_ms() < until);
            status = cci_job_host_of(job, 0, &host);
            CHECK(status == CCI_SUCCESS || status == CCI_EBUSY);
        } while (status == CCI_SUCCESS);
        CHECK_STATUS(cci_job_leave(job), CCI_EBUSY);
        CHECK(fputs("go", fopen(getenv("JOB_GO"), "w")) >= 0 && fflush(NULL) == 0);
        CHECK(pthread_join(waiting, NULL) == 0);
        return;
    }
    long long until = now_ms() + PATIENCE_MS;
    while (job->size > 1 && access(getenv("JOB_GO"), F_OK) != 0) {
        CHECK(now_ms() < until);
        usleep(1000);
    }
    OK(cci_job_barrier(job));
}

/* The last rank dies, and the others live on. */
static void deaths(void)
{
    cci_job_value_t *all = (cci_job_value_t *)0x11;
    OK(cci_job_survive(job));
    OK(cci_job_barrier(job));
    if (job->rank == job->size - 1 && job->size > 1)
        raise(SIGKILL);
    if (job->size > 1) {
        CHECK_STATUS(cci_job_barrier(job), CCI_ERR_DISCONNECTED);
        CHECK(strstr(cci_last_error(), "rank"));
        CHECK_STATUS(cci_job_exchange(job, NULL, 0, &all), CCI_ERR_DISCONNECTED);
        CHECK(all == (cci_job_value_t *)0x11);
        /* The launcher learns how its process ended, perhaps an instant later. */
        cci_job_status_t status;
        OK(cci_job_status(job, job->size - 1, NULL, &status));
        CHECK(status.type == CCI_JOB_KILLED && status.code == SIGKILL);
    }
}

int main(int argc, char **argv)
{
    uint32_t host = 77;
    const char *mode = argc > 1 ? argv[1] : "";
    CHECK_STATUS(cci_job_barrier((cci_job_t *)0x11), CCI_EINVAL);
    if (strcmp(mode, "lost") == 0) {
        CHECK_STATUS(cci_job_join(&job), CCI_ERROR);
        CHECK(job == NULL && strstr(cci_last_error(), "CCI_JOB_SOCKET"));
        puts("job: all well");
        return 0;
    }
    OK(cci_job_join(&job));
    CHECK(job->rank < job->size && job->local_size == job->size && job->local_rank == job->rank && job->host == 0);
    OK(cci_job_host_of(job, job->size - 1, &host));
    CHECK(host == 0);
    if (strcmp(mode, "abort") == 0) {
        if (job->rank == 1)
            OK(cci_job_abort(job, 17, "for a test"));
        /* The launcher ends it. */
        sleep(PATIENCE_MS / 1000);
        abort();
    }
    misuse();
    exchange();
    keys();
    copies();
    threads();
    OK(cci_job_barrier(job));
    if (strcmp(mode, "deaths") == 0)
        deaths();
    OK(cci_job_leave(job));
    CHECK_STATUS(cci_job_leave(job), CCI_EINVAL);
    CHECK_STATUS(cci_job_barrier(job), CCI_EINVAL);
    puts("job: all well");
    return 0;
}
