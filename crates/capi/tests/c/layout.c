/* Prints what the compiler makes of cci.h: a name and a number on each line. */
#include "cci_job.h"
#include "cci_messenger.h"
#include <stddef.h>

#define SIZE(type) printf("sizeof " #type " %zu\n", sizeof(type))
#define FIELD(type, field) printf("offsetof " #type " " #field " %zu\n", offsetof(type, field))
#define VALUE(name) printf("value " #name " %lld\n", (long long)(name))

static void values(void)
{
    VALUE(CCI_ABI_VERSION);
    VALUE(CCI_CONN_REQ_LEN);
    VALUE(CCI_SUCCESS);
    VALUE(CCI_ERROR);
    VALUE(CCI_ERR_DISCONNECTED);
    VALUE(CCI_ERR_RNR);
    VALUE(CCI_ERR_DEVICE_DEAD);
    VALUE(CCI_ERR_RMA_HANDLE);
    VALUE(CCI_ERR_RMA_OP);
    VALUE(CCI_ERR_NOT_IMPLEMENTED);
    VALUE(CCI_ERR_NOT_FOUND);
    VALUE(CCI_EINVAL);
    VALUE(CCI_ETIMEDOUT);
    VALUE(CCI_ENOMEM);
    VALUE(CCI_ENODEV);
    VALUE(CCI_ENETDOWN);
    VALUE(CCI_EBUSY);
    VALUE(CCI_ERANGE);
    VALUE(CCI_EAGAIN);
    VALUE(CCI_ENOBUFS);
    VALUE(CCI_EMSGSIZE);
    VALUE(CCI_ENOMSG);
    VALUE(CCI_EADDRNOTAVAIL);
    VALUE(CCI_ECONNREFUSED);
    VALUE(CCI_PLAIN_PEERS_DEFAULT);
    VALUE(CCI_PLAIN_PEERS_REFUSED);
    VALUE(CCI_PLAIN_PEERS_SERVED);
    VALUE(CCI_CONN_ATTR_RO);
    VALUE(CCI_CONN_ATTR_RU);
    VALUE(CCI_CONN_ATTR_UU);
    VALUE(CCI_CONN_ATTR_UU_MC_TX);
    VALUE(CCI_CONN_ATTR_UU_MC_RX);
    VALUE(CCI_EVENT_NONE);
    VALUE(CCI_EVENT_SEND);
    VALUE(CCI_EVENT_RECV);
    VALUE(CCI_EVENT_CONNECT);
    VALUE(CCI_EVENT_CONNECT_REQUEST);
    VALUE(CCI_EVENT_ACCEPT);
    VALUE(CCI_EVENT_KEEPALIVE_TIMEDOUT);
    VALUE(CCI_EVENT_ENDPOINT_DEVICE_FAILED);
    VALUE(CCI_EVENT_EXT_DISCONNECTED);
    VALUE(CCI_EXT_DISCONNECT_CLOSED);
    VALUE(CCI_EXT_DISCONNECT_DIED);
    VALUE(CCI_EXT_DISCONNECT_TIMEDOUT);
    VALUE(CCI_EXT_DISCONNECT_REFUSED);
    VALUE(CCI_FLAG_BLOCKING);
    VALUE(CCI_FLAG_NO_COPY);
    VALUE(CCI_FLAG_SILENT);
    VALUE(CCI_FLAG_READ);
    VALUE(CCI_FLAG_WRITE);
    VALUE(CCI_FLAG_FENCE);
    VALUE(CCI_FLAG_ATOMIC);
    VALUE(CCI_ATOMIC_FETCH_ADD);
    VALUE(CCI_ATOMIC_SWAP);
    VALUE(CCI_ATOMIC_COMPARE_SWAP);
    VALUE(CCI_ATOMIC_ADD);
    VALUE(CCI_ATOMIC_AND);
    VALUE(CCI_ATOMIC_OR);
    VALUE(CCI_ATOMIC_XOR);
    VALUE(CCI_OPT_ENDPT_SEND_TIMEOUT);
    VALUE(CCI_OPT_ENDPT_RECV_BUF_COUNT);
    VALUE(CCI_OPT_ENDPT_SEND_BUF_COUNT);
    VALUE(CCI_OPT_ENDPT_KEEPALIVE_TIMEOUT);
    VALUE(CCI_OPT_ENDPT_URI);
    VALUE(CCI_OPT_ENDPT_RMA_ALIGN);
    VALUE(CCI_OPT_CONN_SEND_TIMEOUT);
    VALUE(CCI_OPT_CONN_KEEPALIVE_TIMEOUT);
    VALUE(CCI_OPT_EXT_ENDPT_MEMORY_CAP);
    VALUE(CCI_OPT_EXT_ENDPT_MEMORY_USED);
    VALUE(CCI_OPT_EXT_CONN_LOANS);
    VALUE(CCI_OPT_EXT_ENDPT_DISCONNECT_EVENTS);
    VALUE(CCI_INIT_SINGLE_THREADED);
    VALUE(CCI_CAP_THREAD_SAFE);
}

static void objects(void)
{
    SIZE(cci_status_t);
    SIZE(cci_os_handle_t);
    SIZE(cci_conn_attribute_t);
    SIZE(cci_event_type_t);
    SIZE(cci_opt_name_t);
    SIZE(cci_device_t);
    FIELD(cci_device_t, name);
    FIELD(cci_device_t, transport);
    FIELD(cci_device_t, up);
    FIELD(cci_device_t, info);
    FIELD(cci_device_t, conf_argv);
    FIELD(cci_device_t, max_send_size);
    FIELD(cci_device_t, rate);
    FIELD(cci_device_t, pci);
    FIELD(cci_device_t, pci.domain);
    FIELD(cci_device_t, pci.bus);
    FIELD(cci_device_t, pci.dev);
    FIELD(cci_device_t, pci.func);
    SIZE(cci_endpoint_t);
    FIELD(cci_endpoint_t, device);
    SIZE(cci_connection_t);
    FIELD(cci_connection_t, max_send_size);
    FIELD(cci_connection_t, endpoint);
    FIELD(cci_connection_t, attribute);
    FIELD(cci_connection_t, context);
    SIZE(cci_alignment_t);
    FIELD(cci_alignment_t, rma_write_local_addr);
    FIELD(cci_alignment_t, rma_write_remote_addr);
    FIELD(cci_alignment_t, rma_write_length);
    FIELD(cci_alignment_t, rma_read_local_addr);
    FIELD(cci_alignment_t, rma_read_remote_addr);
    FIELD(cci_alignment_t, rma_read_length);
    SIZE(cci_rma_handle_t);
    FIELD(cci_rma_handle_t, stuff);
    SIZE(cci_atomic_op_t);
    SIZE(cci_rma_segment_t);
    FIELD(cci_rma_segment_t, handle);
    FIELD(cci_rma_segment_t, offset);
    FIELD(cci_rma_segment_t, length);
    SIZE(cci_endpoint_options_t);
    FIELD(cci_endpoint_options_t, size);
    FIELD(cci_endpoint_options_t, recv_buf_count);
    FIELD(cci_endpoint_options_t, send_buf_count);
    FIELD(cci_endpoint_options_t, send_timeout_us);
    FIELD(cci_endpoint_options_t, keepalive_timeout_us);
    FIELD(cci_endpoint_options_t, rma_op_count);
    FIELD(cci_endpoint_options_t, memory_cap_bytes);
    FIELD(cci_endpoint_options_t, progress_thread);
    FIELD(cci_endpoint_options_t, reserved);
    FIELD(cci_endpoint_options_t, security);
    SIZE(cci_security_t);
    FIELD(cci_security_t, size);
    FIELD(cci_security_t, plain_peers);
    FIELD(cci_security_t, psk_file);
    FIELD(cci_security_t, certificate);
    FIELD(cci_security_t, private_key);
    FIELD(cci_security_t, authorities);
    FIELD(cci_security_t, allow_connect);
    FIELD(cci_security_t, allow_rma_read);
    FIELD(cci_security_t, allow_rma_write);
}

static void events(void)
{
    SIZE(cci_event_t);
    FIELD(cci_event_t, type);
    FIELD(cci_event_t, send);
    FIELD(cci_event_t, recv);
    FIELD(cci_event_t, connect);
    FIELD(cci_event_t, request);
    FIELD(cci_event_t, accept);
    FIELD(cci_event_t, keepalive);
    FIELD(cci_event_t, dev_failed);
    FIELD(cci_event_t, ext_disconnected);
    SIZE(cci_event_send_t);
    FIELD(cci_event_send_t, type);
    FIELD(cci_event_send_t, status);
    FIELD(cci_event_send_t, connection);
    FIELD(cci_event_send_t, context);
    SIZE(cci_event_recv_t);
    FIELD(cci_event_recv_t, type);
    FIELD(cci_event_recv_t, len);
    FIELD(cci_event_recv_t, ptr);
    FIELD(cci_event_recv_t, connection);
    SIZE(cci_event_connect_t);
    FIELD(cci_event_connect_t, type);
    FIELD(cci_event_connect_t, status);
    FIELD(cci_event_connect_t, context);
    FIELD(cci_event_connect_t, connection);
    SIZE(cci_event_connect_request_t);
    FIELD(cci_event_connect_request_t, type);
    FIELD(cci_event_connect_request_t, data_len);
    FIELD(cci_event_connect_request_t, data_ptr);
    FIELD(cci_event_connect_request_t, attribute);
    SIZE(cci_event_accept_t);
    FIELD(cci_event_accept_t, type);
    FIELD(cci_event_accept_t, status);
    FIELD(cci_event_accept_t, context);
    FIELD(cci_event_accept_t, connection);
    SIZE(cci_event_keepalive_timedout_t);
    FIELD(cci_event_keepalive_timedout_t, type);
    FIELD(cci_event_keepalive_timedout_t, connection);
    SIZE(cci_event_endpoint_device_failed_t);
    FIELD(cci_event_endpoint_device_failed_t, type);
    FIELD(cci_event_endpoint_device_failed_t, endpoint);
    SIZE(cci_event_ext_disconnected_t);
    FIELD(cci_event_ext_disconnected_t, type);
    FIELD(cci_event_ext_disconnected_t, reason);
    FIELD(cci_event_ext_disconnected_t, connection);
}

static void messengers(void)
{
    VALUE(CCI_EXT_CANCELLED);
    VALUE(CCI_EXT_REFUSED);
    VALUE(CCI_EXT_REPLY_ERROR);
    VALUE(CCI_EXT_DROPPED);
    VALUE(CCI_EXT_REPLY_LOST);
    VALUE(CCI_MESSENGER_SENT);
    VALUE(CCI_MESSENGER_MESSAGE);
    VALUE(CCI_MESSENGER_OFFER);
    VALUE(CCI_MESSENGER_RECEIVED);
    VALUE(CCI_MESSENGER_REQUEST);
    VALUE(CCI_MESSENGER_REQUEST_CANCELLED);
    VALUE(CCI_MESSENGER_REPLY);
    VALUE(CCI_MESSENGER_CONNECT);
    VALUE(CCI_MESSENGER_CONNECT_REQUEST);
    VALUE(CCI_MESSENGER_ACCEPT);
    VALUE(CCI_MESSENGER_KEEPALIVE_TIMEDOUT);
    VALUE(CCI_MESSENGER_DISCONNECTED);
    VALUE(CCI_MESSENGER_DEVICE_FAILED);
    SIZE(cci_messenger_event_type_t);
    SIZE(cci_messenger_event_t);
    FIELD(cci_messenger_event_t, type);
    FIELD(cci_messenger_event_t, status);
    FIELD(cci_messenger_event_t, connection);
    FIELD(cci_messenger_event_t, context);
    FIELD(cci_messenger_event_t, ptr);
    FIELD(cci_messenger_event_t, len);
    FIELD(cci_messenger_event_t, id);
    FIELD(cci_messenger_event_t, code);
    FIELD(cci_messenger_event_t, not_sent);
    SIZE(cci_messenger_limits_t);
    FIELD(cci_messenger_limits_t, size);
    FIELD(cci_messenger_limits_t, reserved);
    FIELD(cci_messenger_limits_t, whole_bytes_max);
    FIELD(cci_messenger_limits_t, message_bytes_max);
    FIELD(cci_messenger_limits_t, lent_bytes_max);
    FIELD(cci_messenger_limits_t, staged_bytes_max);
    SIZE(cci_messenger_progress_t);
    FIELD(cci_messenger_progress_t, moved_bytes);
    FIELD(cci_messenger_progress_t, total_bytes);
}

static void jobs(void)
{
    VALUE(CCI_JOB_VALUE_BYTES_MAX);
    VALUE(CCI_JOB_KEY_BYTES_MAX);
    VALUE(CCI_JOB_REASON_BYTES_MAX);
    VALUE(CCI_JOB_RUNNING);
    VALUE(CCI_JOB_LEFT);
    VALUE(CCI_JOB_EXITED);
    VALUE(CCI_JOB_KILLED);
    VALUE(CCI_JOB_LOST);
    SIZE(cci_job_t);
    FIELD(cci_job_t, rank);
    FIELD(cci_job_t, size);
    FIELD(cci_job_t, local_rank);
    FIELD(cci_job_t, local_size);
    FIELD(cci_job_t, host);
    SIZE(cci_job_status_t);
    FIELD(cci_job_status_t, type);
    FIELD(cci_job_status_t, code);
    SIZE(cci_job_value_t);
    FIELD(cci_job_value_t, ptr);
    FIELD(cci_job_value_t, len);
}

int main(void)
{
    values();
    objects();
    events();
    messengers();
    jobs();
    return 0;
}
