/*
 * Gets a file from ripc_files, and writes it to standard output: ripc_get PATH.
 *
 * SPDX-License-Identifier: MIT OR Apache-2.0
 *
 * It asks for one part after the other, each by a call, with memory that the service puts the bytes into. If the service is killed and started
 * again meanwhile, the calls go to its next life without a word from here.
 */
#include <cci.h>
#include <ripc.h>
#include <stdio.h>
#include <string.h>

#define PART_BYTES (256 * 1024)
#define DEADLINE_MS 60000

static int fails(const char *what)
{
    fprintf(stderr, "ripc_get: %s: %s\n", what, cci_last_error());
    return 1;
}

int main(int count, char **words)
{
    if (count != 2) {
        fputs("ripc_get PATH\n", stderr);
        return 2;
    }
    uint16_t me = ripc_register_random_service_id(), files = ripc_number_of("files-in-c");
    void *part = ripc_buf_alloc(PART_BYTES);
    if (me == 65535 || files == 65535 || !part)
        return fails("no service here");
    uint64_t offset = 0, length = 0;
    do {
        void *items[] = {words[1], &offset};
        uint32_t sizes[] = {(uint32_t)strlen(words[1]), sizeof offset}, part_bytes = PART_BYTES;
        struct ripc_content request = {items, sizes, NULL, NULL, &part, &part_bytes, 2, 0, 1};
        uint64_t call = ripc_call(me, files, &request, DEADLINE_MS, 0);
        struct ripc_message reply;
        if (call == 0)
            return fails("no call");
        uint8_t result;
        while ((result = ripc_reply(me, &call, -1, &reply)) == 2)
            ; /* a signal was handled */
        if (result != 0 || reply.num_short != 1 || reply.short_sizes[0] != sizeof length)
            return fails(words[1]);
        memcpy(&length, reply.short_items[0], sizeof length);
        if (reply.num_long == 1) {
            if (fwrite(reply.long_items[0], 1, reply.long_sizes[0], stdout) != reply.long_sizes[0] || fflush(stdout) != 0) {
                perror("ripc_get");
                return 1;
            }
            offset += reply.long_sizes[0];
        } else if (offset < length) {
            fprintf(stderr, "ripc_get: %s has become shorter\n", words[1]);
            return 1;
        }
        ripc_free_message(&reply);
    } while (offset < length);
    return 0;
}
