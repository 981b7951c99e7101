/*
 * cci_job.h: jobs of CCI: processes that start together, know each other by rank, and end together.
 *
 * SPDX-License-Identifier: MIT OR Apache-2.0
 *
 * `cci run`, or a launcher that speaks PMIx or PMI-1, starts the processes of a job. Each calls cci_job_join() once. In between, keys, exchanges
 * and barriers go through the launcher: they are for the start and the end of a program.
 *
 * What cci.h says about return values and pointers holds here; only endpoints need cci_init(). A call that fails has changed nothing, unless its
 * description says otherwise, and cci_last_error() says what was wrong. All calls that take a job also return:
 *
 *   CCI_EINVAL             the job is NULL, or this process has left it
 *   CCI_EBUSY              another thread is in a call with the job
 *   CCI_ERROR              the launcher is gone or answers nonsense; or this process is a fork() child of the one that has joined
 *   CCI_ECONNREFUSED       the launcher refuses
 *   CCI_ERR_DISCONNECTED   a rank has ended or left that this needs
 */
#ifndef CCI_JOB_H
#define CCI_JOB_H

#include "cci.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Longest value, key and reason, bytes. */
#define CCI_JOB_VALUE_BYTES_MAX 4096
#define CCI_JOB_KEY_BYTES_MAX 64
#define CCI_JOB_REASON_BYTES_MAX 512

/* A job, as this process takes part in it. */
typedef const struct cci_job {
    /* The number of this rank, from 0, and how many there are. */
    uint32_t rank;
    uint32_t size;
    /* The number of this rank among those of its host, from 0, and how many this host has. */
    uint32_t local_rank;
    uint32_t local_size;
    /* The number of this host, from 0, in the order of their lowest ranks. */
    uint32_t host;
} cci_job_t;

/* What has become of a rank, as far as the launcher knows. */
typedef enum cci_job_status_type {
    /* Its process has not ended, and has not left the job. */
    CCI_JOB_RUNNING = 0,
    /* It has left the job, and nobody has seen its process end. */
    CCI_JOB_LEFT = 1,
    /* Its process has ended with an exit code. */
    CCI_JOB_EXITED = 2,
    /* A signal has ended its process. */
    CCI_JOB_KILLED = 3,
    /* Its host can't be reached. */
    CCI_JOB_LOST = 4
} cci_job_status_type_t;

typedef struct cci_job_status {
    cci_job_status_type_t type;
    /* The exit code, or the number of the signal; else 0. */
    int32_t code;
} cci_job_status_t;

/* A value of a rank. */
typedef struct cci_job_value {
    /* 8-byte aligned. */
    const void *ptr;
    uint32_t len;
} cci_job_value_t;

/*
 * Joins the job that this process was started for, by the variables that its launcher has set. Without any, it is a job of one. Returns when
 * all ranks have joined. A process joins once, by this or by CCS_init().
 *
 *   job   out: the job, until cci_job_leave()
 *
 * Errors: CCI_EINVAL (job is NULL), CCI_EBUSY (this process takes part in a job already), CCI_ERROR (a launcher's variables are set, and it
 * does not answer), CCI_ECONNREFUSED (it refuses, or another rank has another version of CCI), CCI_ERR_DISCONNECTED (a rank has ended before it
 * joined).
 */
int cci_job_join(cci_job_t **job);

/*
 * Leaves the job. The others' exchanges and barriers fail from now on. It waits for nobody, so call cci_job_barrier() first.
 */
int cci_job_leave(cci_job_t *job);

/*
 * Gives the number of a rank's host.
 *
 * Errors: CCI_EINVAL (host is NULL), CCI_ERANGE (no such rank).
 */
int cci_job_host_of(cci_job_t *job, uint32_t rank, uint32_t *host);

/*
 * Keeps a value under a key for ranks that ask for it: up to 64 keys a rank, each once, of 1 to CCI_JOB_KEY_BYTES_MAX bytes (16 with launchers
 * that speak PMI-1).
 *
 *   ptr, len   the value, up to CCI_JOB_VALUE_BYTES_MAX bytes; NULL and 0: an empty one
 *
 * Errors: CCI_EINVAL (NULL, a key that is empty, too long or not UTF-8), CCI_EMSGSIZE (the value is too long), CCI_ECONNREFUSED (the key was put
 * before, or there are too many).
 */
int cci_job_put(cci_job_t *job, const char *key, const void *ptr, uint32_t len);

/*
 * Gives what a rank has put under a key. It is certain to be there after a barrier that followed the cci_job_put().
 *
 *   value   out: the caller frees it with free()
 *
 * Errors: CCI_EINVAL (as for cci_job_put()), CCI_ERANGE (no such rank), CCI_ERR_NOT_FOUND (it has put none), CCI_ENOMEM.
 */
int cci_job_get(cci_job_t *job, uint32_t rank, const char *key, cci_job_value_t **value);

/*
 * Gives everybody this rank's value, and this rank everybody's. All ranks call it, in the same order with cci_job_barrier(); it blocks until
 * all have.
 *
 *   ptr, len   this rank's value, as for cci_job_put()
 *   values     out: job->size values, by rank, which the caller frees with one free()
 *
 * Errors: CCI_EINVAL (NULL), CCI_EMSGSIZE (the value is too long), CCI_ENOMEM (after the exchange, which the others have completed).
 */
int cci_job_exchange(cci_job_t *job, const void *ptr, uint32_t len, cci_job_value_t **values);

/*
 * Blocks until all ranks have called it.
 */
int cci_job_barrier(cci_job_t *job);

/*
 * Asks the launcher to end the whole job, and to say why. This process goes on until it is ended.
 *
 *   code     the job's exit code, 1 to 255
 *   reason   up to CCI_JOB_REASON_BYTES_MAX bytes of UTF-8
 *
 * Errors: CCI_EINVAL (NULL, not UTF-8, too long, or another code).
 */
int cci_job_abort(cci_job_t *job, int code, const char *reason);

/*
 * Says that this rank goes on when another one dies. By default a death ends the job; once every living rank has called this, it does not.
 * Exchanges and barriers then return CCI_ERR_DISCONNECTED, and connections with the dead rank end: those of ACP and CCS some 2 s after the
 * launcher has seen the death at the latest, over any device; those of other endpoints over datagrams when their peer was silent for too long.
 *
 * Errors: CCI_ECONNREFUSED (the launcher can't be asked: only `cci run` can).
 */
int cci_job_survive(cci_job_t *job);

/*
 * Says what has become of a rank, so that a rank which survives others can learn why they died. The launcher may learn of a death a little
 * later than ranks do.
 *
 *   timeout   how long to wait for the rank's process to end if it has not; NULL: for ever
 *   status    out
 *
 * Errors: CCI_EINVAL (NULL, or a bad timeout), CCI_ERANGE (no such rank), CCI_ECONNREFUSED (the launcher can't be asked: only `cci run`
 * can).
 */
int cci_job_status(cci_job_t *job, uint32_t rank, const struct timeval *timeout, cci_job_status_t *status);

/*
 * Opens an endpoint on each rank, by which they connect by number. All ranks call it, in the same order with cci_job_exchange() and
 * cci_job_barrier(), each with the device of its choice: "any" reaches ranks of this host by shared memory. It blocks until all have called it.
 * If it fails on one rank, the others learn that when that rank leaves.
 *
 * The endpoint is one of cci.h, with these differences:
 *
 *   - Connections come by cci_job_connect(); cci_connect(), and cci_accept_on() of requests of other endpoints, give CCI_EINVAL.
 *   - It admits ranks of this job only, without CCI_EVENT_CONNECT_REQUEST: a connection that a rank has asked for comes as CCI_EVENT_ACCEPT,
 *     with the context NULL. If both ranks ask at once, one connection comes of it, with CCI_EVENT_CONNECT on both.
 *   - Each connection that its peer, or a time-out, has ended gives CCI_EVENT_EXT_DISCONNECTED, which can't be switched off.
 *   - It has the job's security where its device can have security. With more than 16 ranks on this host its memory has a cap of 40 MB, unless
 *     options has another one.
 *
 *   device     as for cci_create_endpoint()
 *   options    as for cci_create_endpoint_with(); NULL: the defaults
 *   endpoint   out: until cci_destroy_endpoint()
 *   fd         out, or NULL: the descriptor, as cci_create_endpoint() gives it
 *
 * Errors: those of cci_create_endpoint_with().
 */
int cci_job_create_endpoint(cci_job_t *job, cci_device_t *device, const cci_endpoint_options_t *options,
                            cci_endpoint_t **endpoint, cci_os_handle_t *fd);

/*
 * Asks for the connection with a rank, of which there is one at most for each attribute. A rank may connect to itself,
 * but not over UDP or TCP alone. Never blocks.
 *
 *   attribute    CCI_CONN_ATTR_RO, _RU or _UU
 *   context      of the connection and of its CCI_EVENT_CONNECT, if this call is the first of this rank's for it
 *   timeout      how long the rank may take to answer; NULL: for ever
 *   connection   out: the connection if it is open, whoever has asked for it. Else NULL: CCI_EVENT_CONNECT will come once, with the
 *                connection, or with the reason why there is none; then the next call asks again.
 *
 * Errors: CCI_EINVAL (NULL, a multicast attribute, or an endpoint that is none of a job), CCI_ERANGE (no such rank), CCI_ERROR (the endpoint
 * can't connect).
 */
int cci_job_connect(cci_endpoint_t *endpoint, uint32_t rank, cci_conn_attribute_t attribute, const void *context,
                    const struct timeval *timeout, cci_connection_t **connection);

/*
 * Says with which rank a connection is, or was.
 *
 * Errors: CCI_EINVAL (NULL, an endpoint that is none of a job, or another connection has its place by now).
 */
int cci_job_rank_of(cci_connection_t *connection, uint32_t *rank);

#ifdef __cplusplus
}
#endif

#endif
