/*
 * Copies a file to another process by remote memory access: the receiver maps the file to be, and the sender writes
 * into that mapping, many pieces at a time.
 *
 *   rma_file_copy receive FILE [DEVICE]     prints its URI, takes one file, checks it, ends
 *   rma_file_copy send FILE URI [DEVICE]    shows its progress on standard error
 *
 * The sender's request to connect says how long the file is; the receiver answers with the handle of its mapping. At the
 * end the sender sends its checksum, and the receiver answers whether it found the same.
 */
#include <cci.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#define PIECE (256 * 1024)
#define UNDER_WAY 32

struct request {
    uint64_t size;
};

struct offer {
    struct cci_rma_handle file; /* Of no meaning if the file is empty. */
};

struct finished {
    uint32_t crc;
};

struct verdict {
    uint32_t same;
};

static cci_endpoint_t *endpoint;

static void must(const char *what, int status)
{
    if (status != CCI_SUCCESS) {
        fprintf(stderr, "%s: %s (%s)\n", what, cci_strerror(NULL, (enum cci_status)status), cci_last_error());
        exit(1);
    }
}

static void check(int is_well, const char *what)
{
    if (!is_well) {
        perror(what);
        exit(1);
    }
}

/* CRC-32 as of zlib and Ethernet; of "123456789" it is cbf43926. */
static uint32_t crc32(uint32_t crc, const unsigned char *bytes, size_t length)
{
    static uint32_t table[256];
    if (table[1] == 0)
        for (uint32_t byte = 0; byte < 256; byte++) {
            table[byte] = byte;
            for (int bit = 0; bit < 8; bit++)
                table[byte] = table[byte] & 1 ? table[byte] >> 1 ^ 0xedb88320u : table[byte] >> 1;
        }
    crc = ~crc;
    while (length--)
        crc = crc >> 8 ^ table[(crc ^ *bytes++) & 0xff];
    return ~crc;
}

static double now(void)
{
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return time.tv_sec + time.tv_nsec / 1e9;
}

static void open_endpoint(const char *device)
{
    uint32_t caps;
    cci_device_t *const *devices;
    must("cci_init", cci_init(CCI_ABI_VERSION, 0, &caps));
    must("cci_get_devices", cci_get_devices(&devices));
    while (device && *devices && strcmp((*devices)->name, device) != 0)
        devices++;
    /* The thread answers the peer while we compute checksums; the peer that is silent all the same has died. */
    cci_endpoint_options_t options = {
        .size = sizeof(options), .keepalive_timeout_us = 10 * 1000 * 1000, .progress_thread = 1};
    must("cci_create_endpoint_with",
         cci_create_endpoint_with(device ? *devices : NULL, NULL, &options, 0, &endpoint, NULL));
}

static void close_endpoint(void)
{
    must("cci_destroy_endpoint", cci_destroy_endpoint(endpoint));
    must("cci_finalize", cci_finalize());
}

/* The next event, which must be of a type: if the peer dies it is CCI_EVENT_KEEPALIVE_TIMEDOUT. */
static cci_event_t *next(cci_event_type_t type)
{
    cci_event_t *event;
    must("waiting", cci_wait_event(endpoint, NULL, &event));
    if (event->type != type) {
        fprintf(stderr, "%s instead of %s\n", cci_event_type_str(event->type), cci_event_type_str(type));
        exit(1);
    }
    return event;
}

/* Takes a message, which must have a length. */
static void take(void *message, size_t length)
{
    cci_event_t *event = next(CCI_EVENT_RECV);
    if (event->recv.len != length) {
        fprintf(stderr, "the peer is another kind of program\n");
        exit(1);
    }
    memcpy(message, event->recv.ptr, length);
    cci_return_event(event);
}

/* ------------------------------------------------------------------------------------------- the receiver --- */

/* The bytes of a file that is to be written; NULL for an empty one. Its room on the disk is there before. */
static unsigned char *make_file(const char *path, uint64_t size)
{
    int fd = open(path, O_RDWR | O_CREAT | O_TRUNC, 0666);
    check(fd >= 0, path);
    if (size == 0) {
        close(fd);
        return NULL;
    }
    check((errno = posix_fallocate(fd, 0, (off_t)size)) == 0, path);
    unsigned char *bytes = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    check(bytes != MAP_FAILED, path);
    close(fd);
    return bytes;
}

static int receive(const char *path, const char *device)
{
    char *uri;
    open_endpoint(device);
    must("cci_get_opt", cci_get_opt(endpoint, CCI_OPT_ENDPT_URI, &uri));
    printf("%s\n", uri);
    fflush(stdout);
    free(uri);

    struct request request;
    cci_event_t *event = next(CCI_EVENT_CONNECT_REQUEST);
    if (event->request.data_len != sizeof(request)) {
        fprintf(stderr, "not a sender of files\n");
        cci_reject(event);
        return 1;
    }
    memcpy(&request, event->request.data_ptr, sizeof(request));
    unsigned char *bytes = make_file(path, request.size);
    must("cci_accept", cci_accept(event, NULL));
    cci_return_event(event);
    event = next(CCI_EVENT_ACCEPT);
    must("accepting", event->accept.status);
    cci_connection_t *connection = event->accept.connection;
    cci_return_event(event);

    /* For this sender alone. */
    cci_rma_handle_t *handle = NULL;
    struct offer offer = {{{0}}};
    if (bytes) {
        must("cci_rma_register_conn",
             cci_rma_register_conn(connection, bytes, request.size, CCI_FLAG_WRITE, &handle));
        memcpy(&offer.file, handle, sizeof(offer.file));
    }
    must("cci_send", cci_send(connection, &offer, sizeof(offer), NULL, CCI_FLAG_SILENT));

    /* The data come without us; what we see is the message after them. */
    struct finished finished;
    take(&finished, sizeof(finished));
    if (bytes)
        must("cci_rma_deregister", cci_rma_deregister(endpoint, handle));
    uint32_t crc = crc32(0, bytes, request.size);
    struct verdict verdict = {crc == finished.crc};
    must("telling", cci_send(connection, &verdict, sizeof(verdict), NULL, CCI_FLAG_BLOCKING));
    if (bytes)
        munmap(bytes, request.size);
    printf("received %llu bytes, crc32 %08x: %s\n", (unsigned long long)request.size, (unsigned)crc,
           verdict.same ? "as sent" : "NOT AS SENT");
    close_endpoint();
    return verdict.same ? 0 : 1;
}

/* --------------------------------------------------------------------------------------------- the sender --- */

/* A bar that grows; ten times a second at most. */
static void show(uint64_t done, uint64_t size, double started)
{
    static double shown;
    double time = now();
    if (time - shown < 0.1 && done < size)
        return;
    shown = time;
    int width = 40, full = size ? (int)(width * done / size) : width;
    fprintf(stderr, "\r[%.*s%*s] %3d %%  %.0f MB/s ", full, "########################################", width - full,
            "", (int)(size ? 100 * done / size : 100), (double)done / 1e6 / (time - started + 1e-9));
    if (done == size)
        fprintf(stderr, "\n");
}

/* Writes all of it, a window of pieces at a time; gives the checksum. */
static uint32_t write_all(cci_connection_t *connection, const unsigned char *bytes, uint64_t size,
                          cci_rma_handle_t *local, cci_rma_handle_t *remote)
{
    uint64_t started = 0, done = 0, under_way = 0;
    uint32_t crc = 0;
    double start = now();
    while (done < size) {
        cci_event_t *event;
        if (started < size && under_way < UNDER_WAY) {
            uint64_t length = size - started < PIECE ? size - started : PIECE;
            int status = cci_rma(connection, NULL, 0, local, started, remote, started, length,
                                 (void *)(uintptr_t)length, CCI_FLAG_WRITE);
            if (status == CCI_SUCCESS) {
                /* While it travels. */
                crc = crc32(crc, bytes + started, length);
                started += length;
                under_way++;
                continue;
            }
            if (status != CCI_ENOBUFS)
                must("cci_rma", status);
        }
        event = next(CCI_EVENT_SEND);
        must("writing", event->send.status);
        done += (uintptr_t)event->send.context;
        under_way--;
        cci_return_event(event);
        show(done, size, start);
    }
    return crc;
}

static int send_file(const char *path, const char *uri, const char *device)
{
    struct stat about;
    int fd = open(path, O_RDONLY);
    check(fd >= 0 && fstat(fd, &about) == 0, path);
    struct request request = {(uint64_t)about.st_size};
    unsigned char *bytes = NULL;
    if (request.size > 0) {
        bytes = mmap(NULL, request.size, PROT_READ, MAP_PRIVATE, fd, 0);
        check(bytes != MAP_FAILED, path);
    }
    close(fd);

    struct timeval timeout = {10, 0};
    double start = now();
    open_endpoint(device);
    must("cci_connect",
         cci_connect(endpoint, uri, &request, sizeof(request), CCI_CONN_ATTR_RU, NULL, 0, &timeout));
    cci_event_t *event = next(CCI_EVENT_CONNECT);
    must("connecting", event->connect.status);
    cci_connection_t *connection = event->connect.connection;
    cci_return_event(event);

    struct offer offer;
    take(&offer, sizeof(offer));
    struct finished finished = {0};
    if (bytes) {
        cci_rma_handle_t *handle;
        must("cci_rma_register", cci_rma_register(endpoint, bytes, request.size, 0, &handle));
        finished.crc = write_all(connection, bytes, request.size, handle, &offer.file);
        must("cci_rma_deregister", cci_rma_deregister(endpoint, handle));
        munmap(bytes, request.size);
    }
    must("cci_send", cci_send(connection, &finished, sizeof(finished), NULL, CCI_FLAG_SILENT));
    struct verdict verdict;
    take(&verdict, sizeof(verdict));
    printf("sent %llu bytes in %.3f s, crc32 %08x: %s\n", (unsigned long long)request.size, now() - start,
           (unsigned)finished.crc, verdict.same ? "arrived as sent" : "ARRIVED CHANGED");
    close_endpoint();
    return verdict.same ? 0 : 1;
}

int main(int argc, char **argv)
{
    if (crc32(0, (const unsigned char *)"123456789", 9) != 0xcbf43926u)
        return 3;
    if (argc >= 3 && strcmp(argv[1], "receive") == 0)
        return receive(argv[2], argc > 3 ? argv[3] : NULL);
    if (argc >= 4 && strcmp(argv[1], "send") == 0)
        return send_file(argv[2], argv[3], argc > 4 ? argv[4] : NULL);
    fprintf(stderr, "usage: rma_file_copy receive FILE [DEVICE] | rma_file_copy send FILE URI [DEVICE]\n");
    return 2;
}
