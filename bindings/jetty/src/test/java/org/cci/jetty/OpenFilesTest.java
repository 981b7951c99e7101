package org.cci.jetty;

import static org.junit.jupiter.api.Assertions.assertArrayEquals;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertNotSame;
import static org.junit.jupiter.api.Assertions.assertNull;
import static org.junit.jupiter.api.Assertions.assertSame;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.io.EOFException;
import java.io.IOException;
import java.nio.ByteBuffer;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.stream.Stream;
import org.eclipse.jetty.util.thread.ScheduledExecutorScheduler;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;

/** How long files stay open. */
class OpenFilesTest {
    @TempDir
    Path folder;

    private final ScheduledExecutorScheduler scheduler = new ScheduledExecutorScheduler();
    private final OpenFiles files = new OpenFiles(scheduler);

    @BeforeEach
    void start() throws Exception {
        scheduler.start();
        files.start();
    }

    @AfterEach
    void stop() throws Exception {
        files.stop();
        scheduler.stop();
        assertEquals(0, mapped());
    }

    /** How many files of the folder this process has mapped, also if their names are gone. */
    private long mapped() throws IOException {
        String prefix = folder.toRealPath() + "/";
        try (Stream<String> mappings = Files.lines(Path.of("/proc/self/maps"))) {
            return mappings.filter(mapping -> mapping.contains(prefix)).count();
        }
    }

    private Path file(String name, int bytes) throws IOException {
        return Files.write(folder.resolve(name), new byte[bytes]);
    }

    @Test
    void aFileStaysOpenForAWhileUnlessItChanges() throws Exception {
        Path path = file("a", 1000);
        OpenFile first = files.open(path);
        OpenFile again = files.open(path);
        assertSame(first, again);
        again.release();
        first.release();
        assertEquals(1, mapped(), "nobody uses it, and it is open");
        file("a", 1001);
        OpenFile changed = files.open(path);
        assertNotSame(first, changed);
        assertEquals(1, mapped(), "the one that was there is closed");
        Files.delete(path);
        assertNull(files.open(path));
        changed.release();
        for (int waited = 0; files.count() > 0 || mapped() > 0; waited++) {
            assertTrue(waited < 600, "a file is open for ever");
            Thread.sleep(50);
        }
    }

    @Test
    void aFileThatIsUsedOutlivesTheTable() throws Exception {
        Path path = Files.write(folder.resolve("a"), new byte[] {1, 2, 3, 4});
        OpenFile used = files.open(path);
        files.stop();
        assertEquals(0, files.count());
        byte[] bytes = new byte[2];
        ByteBuffer part = used.bytes(1, 2);
        part.get(bytes);
        assertArrayEquals(new byte[] {2, 3}, bytes);
        assertThrows(EOFException.class, () -> used.bytes(3, 2));
        assertFalse(part.hasRemaining());
        used.release();
        OpenFile unlisted = files.open(path);
        assertEquals(0, files.count(), "what is stopped keeps nothing open");
        unlisted.release();
    }

    @Test
    void noMoreAreOpenThanMayBe() throws Exception {
        for (int number = 0; number < OpenFiles.FILES_MAX + 20; number++) {
            files.open(file("f" + number, 10)).release();
        }
        assertEquals(OpenFiles.FILES_MAX, files.count());
        assertEquals(OpenFiles.FILES_MAX, mapped());
        OpenFile last = files.open(folder.resolve("f" + (OpenFiles.FILES_MAX + 19)));
        last.release();
        assertEquals(OpenFiles.FILES_MAX, mapped(), "the last ones are kept");
    }

    @Test
    void whatIsNoFileIsLeftToOthers() throws Exception {
        assertNull(files.open(folder));
        assertNull(files.open(file("empty", 0)));
        assertNull(files.open(folder.resolve("none")));
        assertNull(files.open(Path.of("/dev/zero")));
        assertNull(files.open(Files.createSymbolicLink(folder.resolve("link"), file("a", 5))));
    }
}
