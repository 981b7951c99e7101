package org.cci.bench;

import static org.junit.jupiter.api.Assertions.assertTrue;
import static org.junit.jupiter.api.Assumptions.assumeTrue;

import java.nio.file.Files;
import java.nio.file.Path;
import org.junit.jupiter.api.Test;

/** Instructions of a JVM's thread are counted. How many they are is not looked at: it has hardly compiled anything yet. */
class InstructionsTest {
    /** Whether processes may follow others that they have started. */
    private static boolean mayTrace() throws Exception {
        Path scope = Path.of("/proc/sys/kernel/yama/ptrace_scope");
        return !Files.exists(scope) || Integer.parseInt(Files.readString(scope).strip()) < 2;
    }

    @Test
    void partsAreCountedApart() throws Exception {
        assumeTrue(System.getProperty("os.arch").equals("amd64") && mayTrace(), "it takes x86-64 and ptrace");
        Instructions.Counts counts = Instructions.run("messages=2", "warm=20000");
        assertTrue(counts.java() > 0 && counts.library() > 0, counts.toString());
    }
}
