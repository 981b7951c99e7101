/*
 * Every function of the interface through a pointer of the type that programs for CCI 2.x expect: one that differs does
 * not compile, one that is missing does not link.
 */
#include "cci_job.h"
#include "cci_messenger.h"

static int (*init)(uint32_t, uint32_t, uint32_t *) = cci_init;
static int (*finalize)(void) = cci_finalize;
static const char *(*error_text)(cci_endpoint_t *, enum cci_status) = cci_strerror;
static int (*get_devices)(cci_device_t *const **) = cci_get_devices;
static int (*create_endpoint)(cci_device_t *, int, cci_endpoint_t **, cci_os_handle_t *) = cci_create_endpoint;
static int (*create_endpoint_at)(cci_device_t *, const char *, int, cci_endpoint_t **,
                                 cci_os_handle_t *) = cci_create_endpoint_at;
static int (*destroy_endpoint)(cci_endpoint_t *) = cci_destroy_endpoint;
static int (*connect_to)(cci_endpoint_t *, const char *, const void *, uint32_t, cci_conn_attribute_t, const void *,
                         int, const struct timeval *) = cci_connect;
static int (*accept_request)(cci_event_t *, const void *) = cci_accept;
static int (*reject)(cci_event_t *) = cci_reject;
static int (*disconnect)(cci_connection_t *) = cci_disconnect;
static int (*get_event)(cci_endpoint_t *, cci_event_t **) = cci_get_event;
static int (*return_event)(cci_event_t *) = cci_return_event;
static int (*arm_os_handle)(cci_endpoint_t *, int) = cci_arm_os_handle;
static int (*set_opt)(cci_opt_handle_t *, cci_opt_name_t, const void *) = cci_set_opt;
static int (*get_opt)(cci_opt_handle_t *, cci_opt_name_t, void *) = cci_get_opt;
static int (*send_one)(cci_connection_t *, const void *, uint32_t, const void *, int) = cci_send;
static int (*send_many)(cci_connection_t *, const struct iovec *, uint32_t, const void *, int) = cci_sendv;
static int (*rma_register)(cci_endpoint_t *, void *, uint64_t, int, cci_rma_handle_t **) = cci_rma_register;
static int (*rma_deregister)(cci_endpoint_t *, cci_rma_handle_t *) = cci_rma_deregister;
static int (*rma)(cci_connection_t *, const void *, uint32_t, cci_rma_handle_t *, uint64_t, cci_rma_handle_t *,
                  uint64_t, uint64_t, const void *, int) = cci_rma;
static const char *(*event_type_text)(cci_event_type_t) = cci_event_type_str;
/* Extensions. */
static const char *(*last_error)(void) = cci_last_error;
static int (*create_with)(cci_device_t *, const char *, const cci_endpoint_options_t *, int, cci_endpoint_t **,
                          cci_os_handle_t *) = cci_create_endpoint_with;
static int (*wait_event)(cci_endpoint_t *, const struct timeval *, cci_event_t **) = cci_wait_event;
static int (*send2)(cci_connection_t *, const void *, uint32_t, const void *, uint32_t, const void *,
                    int) = cci_send2;
static int (*send_burst)(cci_connection_t *, const struct iovec *, uint32_t, const void *, int,
                         uint32_t *) = cci_send_burst;
static int (*poll_events)(cci_endpoint_t *, uint32_t, cci_ext_handler_t, void *, uint32_t *) = cci_poll;
static int (*loan)(cci_connection_t *, uint32_t, void **) = cci_loan;
static int (*send_loan)(cci_connection_t *, void *, uint32_t, const void *, int) = cci_send_loan;
static int (*return_loan)(cci_connection_t *, void *) = cci_return_loan;
static int (*keep_event)(cci_event_t *, cci_event_t **) = cci_keep_event;
static int (*accept_on)(cci_event_t *, cci_endpoint_t *, const void *) = cci_accept_on;
static int (*register_conn)(cci_connection_t *, void *, uint64_t, int, cci_rma_handle_t **) = cci_rma_register_conn;
static int (*rma_alloc)(cci_endpoint_t *, uint64_t, void **) = cci_rma_alloc;
static int (*rma_free)(cci_endpoint_t *, void *) = cci_rma_free;
static int (*rma_invalidate)(cci_endpoint_t *, const void *, uint64_t) = cci_rma_invalidate;
static int (*rmav)(cci_connection_t *, const void *, uint32_t, const cci_rma_segment_t *, uint32_t,
                   const cci_rma_segment_t *, uint32_t, const void *, int) = cci_rmav;
static int (*atomic)(cci_connection_t *, cci_atomic_op_t, uint32_t, uint64_t, uint64_t, cci_rma_handle_t *, uint64_t,
                     cci_rma_handle_t *, uint64_t, const void *, int) = cci_atomic;
static int (*explain)(cci_connection_t *, char **) = cci_explain;
static int (*get_counters)(cci_endpoint_t *, cci_connection_t *, char **) = cci_get_counters;
static int (*connect_expecting)(cci_endpoint_t *, const char *, const char *, const void *, uint32_t,
                                cci_conn_attribute_t, const void *, int,
                                const struct timeval *) = cci_connect_expecting;
static int (*peer_names)(cci_connection_t *, char **) = cci_peer_names;
static int (*resolve)(const char *, char **) = cci_resolve;
static int (*conn_req_names)(cci_event_t *, char **) = cci_conn_req_names;
/* Messengers. */
static int (*messenger_open)(cci_device_t *, const char *, const cci_endpoint_options_t *,
                             const cci_messenger_limits_t *, cci_messenger_t **, cci_os_handle_t *) = cci_messenger_open;
static int (*messenger_close)(cci_messenger_t *) = cci_messenger_close;
static int (*messenger_uri)(cci_messenger_t *, char **) = cci_messenger_uri;
static int (*messenger_get_event)(cci_messenger_t *, cci_messenger_event_t **) = cci_messenger_get_event;
static int (*messenger_wait_event)(cci_messenger_t *, const struct timeval *,
                                   cci_messenger_event_t **) = cci_messenger_wait_event;
static int (*messenger_return_event)(cci_messenger_event_t *) = cci_messenger_return_event;
static int (*messenger_connect)(cci_messenger_t *, const char *, const void *, uint32_t, cci_conn_attribute_t,
                                const void *, const struct timeval *) = cci_messenger_connect;
static int (*messenger_accept)(cci_messenger_t *, cci_messenger_event_t *, const void *) = cci_messenger_accept;
static int (*messenger_reject)(cci_messenger_t *, cci_messenger_event_t *) = cci_messenger_reject;
static int (*messenger_disconnect)(cci_messenger_t *, cci_messenger_connection_t) = cci_messenger_disconnect;
static int (*messenger_alloc)(cci_messenger_t *, uint64_t, void **) = cci_messenger_alloc;
static int (*messenger_free)(cci_messenger_t *, void *) = cci_messenger_free;
static int (*messenger_send)(cci_messenger_t *, cci_messenger_connection_t, const void *, uint64_t,
                             const void *, int, uint64_t *) = cci_messenger_send;
static int (*messenger_sendv)(cci_messenger_t *, cci_messenger_connection_t, const struct iovec *, uint32_t,
                              const void *, int, uint64_t *) = cci_messenger_sendv;
static int (*messenger_cancel)(cci_messenger_t *, uint64_t) = cci_messenger_cancel;
static int (*messenger_send_progress)(cci_messenger_t *, uint64_t,
                                      cci_messenger_progress_t *) = cci_messenger_send_progress;
static int (*messenger_receive)(cci_messenger_t *, uint64_t) = cci_messenger_receive;
static int (*messenger_receive_into)(cci_messenger_t *, uint64_t, void *, uint64_t,
                                     const void *) = cci_messenger_receive_into;
static int (*messenger_refuse)(cci_messenger_t *, uint64_t, uint32_t) = cci_messenger_refuse;
static int (*messenger_receive_progress)(cci_messenger_t *, uint64_t,
                                         cci_messenger_progress_t *) = cci_messenger_receive_progress;
static int (*messenger_call)(cci_messenger_t *, cci_messenger_connection_t, const void *, uint64_t,
                             const struct timeval *, const void *, uint64_t *) = cci_messenger_call;
static int (*messenger_callv)(cci_messenger_t *, cci_messenger_connection_t, const struct iovec *, uint32_t,
                              const struct timeval *, const void *, int, uint64_t *) = cci_messenger_callv;
static int (*messenger_replyv)(cci_messenger_t *, cci_messenger_event_t *, const struct iovec *,
                               uint32_t) = cci_messenger_replyv;
static int (*messenger_cancel_call)(cci_messenger_t *, uint64_t) = cci_messenger_cancel_call;
static int (*messenger_reply)(cci_messenger_t *, cci_messenger_event_t *, const void *,
                              uint64_t) = cci_messenger_reply;
static int (*messenger_reply_error)(cci_messenger_t *, cci_messenger_event_t *, uint32_t, const void *,
                                    uint64_t) = cci_messenger_reply_error;
static int (*messenger_explain)(cci_messenger_t *, cci_messenger_connection_t, char **) = cci_messenger_explain;
static int (*messenger_get_counters)(cci_messenger_t *, cci_messenger_connection_t,
                                     char **) = cci_messenger_get_counters;

static int (*job_join)(cci_job_t **) = cci_job_join;
static int (*job_leave)(cci_job_t *) = cci_job_leave;
static int (*job_host_of)(cci_job_t *, uint32_t, uint32_t *) = cci_job_host_of;
static int (*job_put)(cci_job_t *, const char *, const void *, uint32_t) = cci_job_put;
static int (*job_get)(cci_job_t *, uint32_t, const char *, cci_job_value_t **) = cci_job_get;
static int (*job_exchange)(cci_job_t *, const void *, uint32_t, cci_job_value_t **) = cci_job_exchange;
static int (*job_barrier)(cci_job_t *) = cci_job_barrier;
static int (*job_abort)(cci_job_t *, int, const char *) = cci_job_abort;
static int (*job_survive)(cci_job_t *) = cci_job_survive;
static int (*job_create_endpoint)(cci_job_t *, cci_device_t *, const cci_endpoint_options_t *, cci_endpoint_t **,
                                  cci_os_handle_t *) = cci_job_create_endpoint;
static int (*job_connect)(cci_endpoint_t *, uint32_t, cci_conn_attribute_t, const void *, const struct timeval *,
                          cci_connection_t **) = cci_job_connect;
static int (*job_rank_of)(cci_connection_t *, uint32_t *) = cci_job_rank_of;
static int (*job_status)(cci_job_t *, uint32_t, const struct timeval *, cci_job_status_t *) = cci_job_status;

int main(void)
{
    return !(init && finalize && error_text && get_devices && create_endpoint && create_endpoint_at &&
             destroy_endpoint && connect_to && accept_request && reject && disconnect && get_event && return_event &&
             arm_os_handle && set_opt && get_opt && send_one && send_many && rma_register && rma_deregister && rma &&
             event_type_text && last_error && create_with && wait_event && send2 && send_burst && loan && send_loan && return_loan &&
             poll_events && keep_event && accept_on && register_conn &&
             rma_alloc && rma_free && rma_invalidate && rmav && atomic && explain && get_counters &&
             resolve && peer_names && conn_req_names && connect_expecting &&
             messenger_open && messenger_close && messenger_uri && messenger_get_event && messenger_wait_event &&
             messenger_return_event && messenger_connect && messenger_accept && messenger_reject &&
             messenger_disconnect && messenger_alloc && messenger_free && messenger_send && messenger_sendv && messenger_cancel &&
             messenger_send_progress && messenger_receive && messenger_receive_into && messenger_refuse &&
             messenger_receive_progress && messenger_call && messenger_callv && messenger_replyv && messenger_cancel_call && messenger_reply &&
             messenger_reply_error && messenger_explain && messenger_get_counters &&
             job_join && job_leave && job_host_of && job_put && job_get && job_exchange && job_barrier && job_abort &&
             job_survive && job_status && job_create_endpoint && job_connect && job_rank_of);
}
