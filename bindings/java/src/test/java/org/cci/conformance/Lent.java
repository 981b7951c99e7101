package org.cci.conformance;

import java.lang.foreign.Arena;
import java.lang.foreign.MemorySegment;
import java.lang.foreign.ValueLayout;
import java.lang.invoke.VarHandle;
import org.cci.Access;
import org.cci.Connection;
import org.cci.Endpoint;
import org.cci.Memory;
import org.cci.Region;

/** Memory that peers are to read and write: the library's, or the program's own in an arena. */
final class Lent {
    private static final VarHandle LONG = ValueLayout.JAVA_LONG.varHandle();
    private static final VarHandle INT = ValueLayout.JAVA_INT.varHandle();

    private final Endpoint endpoint;
    private final Memory memory;
    private final Arena arena;
    final MemorySegment segment;

    private Lent(Endpoint endpoint, Memory memory, Arena arena, MemorySegment segment) {
        this.endpoint = endpoint;
        this.memory = memory;
        this.arena = arena;
        this.segment = segment;
    }

    static Lent ofLibrary(Endpoint endpoint, long bytes) {
        Memory memory = endpoint.allocate(bytes);
        return new Lent(endpoint, memory, null, memory.segment());
    }

    static Lent ofProgram(Endpoint endpoint, long bytes) {
        Arena arena = Arena.ofAuto();
        return new Lent(endpoint, null, arena, arena.allocate(bytes, 8));
    }

    Region register(long offset, long length, Connection only, Access[] access) {
        if (memory != null) {
            return only == null
                    ? memory.register(offset, length, access)
                    : memory.registerFor(only, offset, length, access);
        }
        MemorySegment part = segment.asSlice(offset, length);
        return only == null
                ? endpoint.register(part, arena, access)
                : endpoint.registerFor(only, part, arena, access);
    }

    /** The program needs it no more: what is registered stays. */
    void letGo() {
        if (memory != null) {
            try {
                memory.close();
            } catch (IllegalStateException registered) {
                // It ends with its endpoint.
            }
        }
    }

    /** An atomic operation of the owner's own; returns the value before. */
    long change(long offset, int kind, int width, long operand, long compare) {
        if (width == Integer.BYTES) {
            int word = (int) operand;
            return switch (kind) {
                case 0, 3 -> Integer.toUnsignedLong((int) INT.getAndAdd(segment, offset, word));
                case 1 -> Integer.toUnsignedLong((int) INT.getAndSet(segment, offset, word));
                case 2 -> Integer.toUnsignedLong((int) INT.compareAndExchange(segment, offset, (int) compare, word));
                case 4 -> Integer.toUnsignedLong((int) INT.getAndBitwiseAnd(segment, offset, word));
                case 5 -> Integer.toUnsignedLong((int) INT.getAndBitwiseOr(segment, offset, word));
                default -> Integer.toUnsignedLong((int) INT.getAndBitwiseXor(segment, offset, word));
            };
        }
        return switch (kind) {
            case 0, 3 -> (long) LONG.getAndAdd(segment, offset, operand);
            case 1 -> (long) LONG.getAndSet(segment, offset, operand);
            case 2 -> (long) LONG.compareAndExchange(segment, offset, compare, operand);
            case 4 -> (long) LONG.getAndBitwiseAnd(segment, offset, operand);
            case 5 -> (long) LONG.getAndBitwiseOr(segment, offset, operand);
            default -> (long) LONG.getAndBitwiseXor(segment, offset, operand);
        };
    }
}
