/*
 * A file service, by libRIPC: ripc_files FOLDER. Programs on this host get its files by ripc_get, wherever and however often it is started.
 *
 * SPDX-License-Identifier: MIT OR Apache-2.0
 *
 * A request is the path of a file, and where in it to begin. The answer is the file's length, and a long item with the next bytes. They are read
 * into a buffer of the library's, which is freed at once: nobody gets it again before the client has the bytes.
 */
#include <cci.h>
#include <fcntl.h>
#include <ripc.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define PART_BYTES (256 * 1024)
#define PATH_BYTES 256

static void refuse(uint64_t request, const char *reason)
{
    ripc_refuse(request, reason, (uint32_t)strlen(reason));
}

/* A path in the folder, and not out of it. */
static int is_inside(const char *path)
{
    return path[0] != '/' && path[0] != 0 && strcmp(path, "..") != 0 && strncmp(path, "../", 3) != 0 && !strstr(path, "/..");
}

static void answer(int folder, uint64_t request, const struct ripc_message *message)
{
    char path[PATH_BYTES + 1] = {0};
    uint64_t offset;
    if (message->num_short != 2 || message->short_sizes[0] > PATH_BYTES || message->short_sizes[1] != sizeof offset) {
        refuse(request, "a request is a path of up to 256 bytes, and an offset");
        return;
    }
    memcpy(path, message->short_items[0], message->short_sizes[0]);
    memcpy(&offset, message->short_items[1], sizeof offset);
    int file = is_inside(path) ? openat(folder, path, O_RDONLY | O_NOFOLLOW | O_CLOEXEC) : -1;
    struct stat about;
    if (file < 0 || fstat(file, &about) != 0 || !S_ISREG(about.st_mode)) {
        refuse(request, "there is no such file");
        if (file >= 0)
            close(file);
        return;
    }
    uint64_t length = (uint64_t)about.st_size;
    void *head = &length, *part = ripc_buf_alloc(PART_BYTES);
    ssize_t got = part && offset < length ? pread(file, part, PART_BYTES, (off_t)offset) : 0;
    close(file);
    uint32_t head_bytes = sizeof length, part_bytes = got > 0 ? (uint32_t)got : 0;
    struct ripc_content content = {&head, &head_bytes, &part, &part_bytes, NULL, NULL, 1, part_bytes > 0, 0};
    if (!part || got < 0)
        refuse(request, "the file can't be read now");
    else if (ripc_answer(request, &content) != 0)
        fprintf(stderr, "ripc_files: %s\n", cci_last_error());
    ripc_buf_free(part);
}

int main(int count, char **words)
{
    int folder = count == 2 ? open(words[1], O_RDONLY | O_DIRECTORY | O_CLOEXEC) : -1;
    if (folder < 0) {
        fputs("ripc_files FOLDER, which is there\n", stderr);
        return 2;
    }
    uint16_t files = ripc_register_named("files-in-c");
    if (files == 65535) {
        fprintf(stderr, "ripc_files: %s\n", cci_last_error());
        return 1;
    }
    puts("serving");
    fflush(stdout);
    for (;;) {
        struct ripc_message message;
        uint64_t request;
        uint8_t result = ripc_receive_request(-1, files, &request, &message);
        if (request != 0 && result == 0)
            answer(folder, request, &message);
        else if (request != 0)
            refuse(request, "a request has no long items");
        if (result <= 1)
            ripc_free_message(&message);
    }
}
