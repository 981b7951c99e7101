/* Compiled as every standard of C and C++: the header needs nothing before it, and its prototypes are the published ones. */
#include <ripc.h>

uint8_t started(void);

uint8_t started(void)
{
    uint16_t (*random_id)(void) = ripc_register_random_service_id;
    uint8_t (*register_id)(int) = ripc_register_service_id;
    uint8_t (*join)(int) = ripc_register_multicast_service_id;
    void *(*allocate)(size_t) = ripc_buf_alloc;
    void *(*reallocate)(void *, size_t) = ripc_buf_realloc;
    void (*give_back)(void *) = ripc_buf_free;
    uint8_t (*window)(void *, size_t) = ripc_reg_recv_window;
    uint8_t (*window_for)(void *, size_t, uint16_t) = ripc_reg_recv_window_for_service;
    uint8_t (*register_buf)(void *, size_t) = ripc_buf_register;
    uint8_t (*unregister_buf)(void *) = ripc_buf_unregister;
    uint8_t (*sends[2])(uint16_t, uint16_t, void **, uint32_t *, uint16_t, void **, uint32_t *, uint16_t) = {ripc_send_short,
                                                                                                             ripc_send_long};
    uint8_t (*receive)(uint16_t, uint16_t *, void ***, uint32_t **, uint16_t *, void ***, uint32_t **, uint16_t *) = ripc_receive;
    char sizes_are[RECV_BUF_SIZE == 2000 && NUM_RECV_BUFFERS == 10 ? 1 : -1];
    (void)sizes_are;
    return (uint8_t)(init() && random_id && register_id && join && allocate && reallocate && give_back && window && window_for &&
                     register_buf && unregister_buf && sends[0] && sends[1] && receive);
}
