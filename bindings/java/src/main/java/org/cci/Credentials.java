package org.cci;

import java.lang.foreign.Arena;
import java.lang.foreign.MemorySegment;
import java.lang.foreign.ValueLayout;
import java.nio.file.Path;
import java.util.Objects;

/**
 * How an endpoint recognises its peers, and what each may do. Everything that it sends and receives is encrypted and
 * authenticated then. Not for shared memory. Names are DNS names or names of keys, with commas between; {@code *.domain} stands
 * for any one label, {@code *} for everyone.
 */
public final class Credentials {
    private static final int SIZE_BYTES = 64;

    private final Path keys;
    private final Path certificate;
    private final Path privateKey;
    private final Path authorities;
    private final String allowConnect;
    private final String allowRead;
    private final String allowWrite;

    private Credentials(
            Path keys, Path certificate, Path privateKey, Path authorities, String allowConnect, String allowRead,
            String allowWrite) {
        this.keys = keys;
        this.certificate = certificate;
        this.privateKey = privateKey;
        this.authorities = authorities;
        this.allowConnect = allowConnect;
        this.allowRead = allowRead;
        this.allowWrite = allowWrite;
    }

    /**
     * Pre-shared keys.
     *
     * @param file lines of the form {@code name = 64 hexadecimal digits}, readable by nobody else; the first key is for the
     *     connections that this side makes
     * @return credentials with which everyone who is known may do everything
     */
    public static Credentials ofKeys(Path file) {
        return new Credentials(Objects.requireNonNull(file, "file"), null, null, null, null, null, null);
    }

    /**
     * A certificate. All files are PEM.
     *
     * @param certificate the own certificate, with those between it and an authority
     * @param privateKey its private key, readable by nobody else
     * @param authorities the authorities that sign for peers
     * @return credentials with which everyone who is known may do everything
     */
    public static Credentials ofCertificate(Path certificate, Path privateKey, Path authorities) {
        return new Credentials(
                null,
                Objects.requireNonNull(certificate, "certificate"),
                Objects.requireNonNull(privateKey, "privateKey"),
                Objects.requireNonNull(authorities, "authorities"),
                null,
                null,
                null);
    }

    /**
     * Says who may be at the other end of a connection.
     *
     * @param names the names
     * @return changed credentials
     */
    public Credentials allowingConnections(String names) {
        return new Credentials(keys, certificate, privateKey, authorities, names, allowRead, allowWrite);
    }

    /**
     * Says who may read, and who may write to, the memory that is registered. Atomics take both.
     *
     * @param readers names of those who may read
     * @param writers names of those who may write
     * @return changed credentials
     */
    public Credentials allowingRemoteMemory(String readers, String writers) {
        return new Credentials(keys, certificate, privateKey, authorities, allowConnect, readers, writers);
    }

    /** The struct cci_security_t. */
    long write(Arena arena) {
        MemorySegment struct = arena.allocate(SIZE_BYTES, 8);
        struct.set(ValueLayout.JAVA_INT, 0, SIZE_BYTES);
        Object[] texts = {keys, certificate, privateKey, authorities, allowConnect, allowRead, allowWrite};
        for (int i = 0; i < texts.length; i++) {
            if (texts[i] != null) {
                struct.set(ValueLayout.JAVA_LONG, 8 + 8L * i, arena.allocateFrom(texts[i].toString()).address());
            }
        }
        return struct.address();
    }
}
