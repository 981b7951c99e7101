package org.cci.internal;

import java.io.IOException;
import java.io.InputStream;
import java.lang.foreign.Arena;
import java.lang.foreign.FunctionDescriptor;
import java.lang.foreign.Linker;
import java.lang.foreign.MemoryLayout;
import java.lang.foreign.MemorySegment;
import java.lang.foreign.SymbolLookup;
import java.lang.invoke.MethodHandle;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.StandardCopyOption;

/** Finds and loads the native library, once, and makes handles of its functions. */
public final class NativeLibrary {
    /** The system property that names another native library than the one in the jar. */
    public static final String PROPERTY = "cci.library";

    private static final Path NAMED = named();
    private static final SymbolLookup LIBRARY = load();
    private static final Linker LINKER = Linker.nativeLinker();

    private NativeLibrary() {}

    /**
     * A handle of a function of the library.
     *
     * @param name its name in C
     * @param result what it returns, or null for nothing
     * @param arguments what it takes
     * @return the handle
     */
    public static MethodHandle function(String name, MemoryLayout result, MemoryLayout... arguments) {
        return LINKER.downcallHandle(find(name), descriptor(result, arguments));
    }

    /**
     * A handle of a function of the library that returns at once. Java does not prepare for a long absence: calls cost less, and
     * the garbage collector waits for their end.
     *
     * @param name its name in C
     * @param result what it returns
     * @param arguments what it takes
     * @return the handle
     */
    public static MethodHandle quickFunction(String name, MemoryLayout result, MemoryLayout... arguments) {
        return LINKER.downcallHandle(find(name), descriptor(result, arguments), Linker.Option.critical(false));
    }

    private static MemorySegment find(String name) {
        return LIBRARY.find(name)
                .orElseThrow(() -> new UnsatisfiedLinkError(
                        origin() + " has no function " + name + ": it is no CCI library, or one of another version"));
    }

    /**
     * A handle of a function of the system's C library.
     *
     * @param name its name in C
     * @param result what it returns, or null for nothing
     * @param arguments what it takes
     * @return the handle
     */
    public static MethodHandle systemFunction(String name, MemoryLayout result, MemoryLayout... arguments) {
        var symbol = LINKER.defaultLookup()
                .find(name)
                .orElseThrow(() -> new UnsatisfiedLinkError("this system's C library has no function " + name));
        return LINKER.downcallHandle(symbol, descriptor(result, arguments));
    }

    /**
     * All memory of the process.
     *
     * @return a segment from address 0 on
     */
    public static MemorySegment memory() {
        return MemorySegment.NULL.reinterpret(Long.MAX_VALUE);
    }

    private static FunctionDescriptor descriptor(MemoryLayout result, MemoryLayout... arguments) {
        return result == null ? FunctionDescriptor.ofVoid(arguments) : FunctionDescriptor.of(result, arguments);
    }

    private static Path named() {
        Requirements.check();
        String name = System.getProperty(PROPERTY);
        return name == null || name.isEmpty() ? null : Path.of(name).toAbsolutePath();
    }

    private static String origin() {
        return NAMED == null ? "the native library in the jar" : NAMED.toString();
    }

    private static SymbolLookup load() {
        try {
            return NAMED == null ? fromJar() : open(NAMED);
        } catch (IllegalCallerException e) {
            throw (UnsatisfiedLinkError) new UnsatisfiedLinkError(
                            "Java does not allow native access: start it with --enable-native-access=ALL-UNNAMED, or with"
                                    + " --enable-native-access=org.cci if CCI is on the module path")
                    .initCause(e);
        }
    }

    private static SymbolLookup open(Path path) {
        if (!Files.isReadable(path)) {
            throw new UnsatisfiedLinkError(
                    "no native CCI library at " + path + ", which the system property " + PROPERTY + " names");
        }
        return lookup(path);
    }

    private static SymbolLookup lookup(Path path) {
        try {
            return SymbolLookup.libraryLookup(path, Arena.global());
        } catch (IllegalArgumentException e) {
            throw (UnsatisfiedLinkError) new UnsatisfiedLinkError("the system does not load " + path + " (" + e.getMessage()
                            + "): it must be a libcci.so for " + Requirements.platform() + ", on a file system that is not"
                            + " mounted noexec; the system property java.io.tmpdir chooses the folder of the one in the jar, "
                            + PROPERTY + " names another one")
                    .initCause(e);
        }
    }

    /** The library can only be loaded from a file, which is deleted as soon as it is loaded. */
    private static SymbolLookup fromJar() {
        String resource = "/org/cci/native/" + Requirements.platform() + "/libcci_capi.so";
        try (InputStream library = NativeLibrary.class.getResourceAsStream(resource)) {
            if (library == null) {
                throw new UnsatisfiedLinkError("there is no native CCI library for " + Requirements.platform()
                        + " in the jar (" + resource + "): build it with `cargo build --release -p cci-capi` and name it by"
                        + " the system property " + PROPERTY + ", -D" + PROPERTY + "=/path/to/libcci.so");
            }
            Path file = Files.createTempFile("libcci-", ".so");
            try {
                Files.copy(library, file, StandardCopyOption.REPLACE_EXISTING);
                return lookup(file);
            } finally {
                Files.deleteIfExists(file);
            }
        } catch (IOException e) {
            throw (UnsatisfiedLinkError) new UnsatisfiedLinkError("the native CCI library can't be copied from the jar to "
                            + System.getProperty("java.io.tmpdir") + ": " + e)
                    .initCause(e);
        }
    }
}
