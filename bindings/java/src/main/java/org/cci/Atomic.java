package org.cci;

/**
 * A change of one word of remote memory: exactly once, and atomic against every other operation of this kind on it. Values never
 * change.
 */
public final class Atomic {
    private static final int FETCH_ADD = 0;
    private static final int SWAP = 1;
    private static final int COMPARE_SWAP = 2;
    private static final int ADD = 3;
    private static final int AND = 4;
    private static final int OR = 5;
    private static final int XOR = 6;

    final int code;
    final long operand;
    final long compare;
    final int width;
    final boolean fenced;

    private Atomic(int code, long operand, long compare, int width, boolean fenced) {
        this.code = code;
        this.operand = operand;
        this.compare = compare;
        this.width = width;
        this.fenced = fenced;
    }

    private Atomic(int code, long operand, long compare) {
        this(code, operand, compare, Long.BYTES, false);
    }

    /**
     * Adds to the word, and gives the value before.
     *
     * @param operand what is added; it wraps around
     * @return the change
     */
    public static Atomic fetchAdd(long operand) {
        return new Atomic(FETCH_ADD, operand, 0);
    }

    /**
     * Stores a value, and gives the value before.
     *
     * @param value the value
     * @return the change
     */
    public static Atomic swap(long value) {
        return new Atomic(SWAP, value, 0);
    }

    /**
     * Stores a value if the word has the expected one, and gives the value before.
     *
     * @param expected the value that the word must have
     * @param value the value that is stored then
     * @return the change
     */
    public static Atomic compareSwap(long expected, long value) {
        return new Atomic(COMPARE_SWAP, value, expected);
    }

    /**
     * Adds to the word. It gives no value.
     *
     * @param operand what is added; it wraps around
     * @return the change
     */
    public static Atomic add(long operand) {
        return new Atomic(ADD, operand, 0);
    }

    /**
     * Keeps the bits that are set in a mask. It gives no value.
     *
     * @param mask the mask
     * @return the change
     */
    public static Atomic and(long mask) {
        return new Atomic(AND, mask, 0);
    }

    /**
     * Sets the bits of a mask. It gives no value.
     *
     * @param mask the mask
     * @return the change
     */
    public static Atomic or(long mask) {
        return new Atomic(OR, mask, 0);
    }

    /**
     * Flips the bits of a mask. It gives no value.
     *
     * @param mask the mask
     * @return the change
     */
    public static Atomic xor(long mask) {
        return new Atomic(XOR, mask, 0);
    }

    /**
     * Works on a word of 4 bytes instead of 8, of which it takes and gives the low half.
     *
     * @return a changed change
     */
    public Atomic of4Bytes() {
        return new Atomic(code, operand, compare, Integer.BYTES, fenced);
    }

    /**
     * Has everything that was started earlier on the connection be complete at the peer first.
     *
     * @return a changed change
     */
    public Atomic fenced() {
        return new Atomic(code, operand, compare, width, true);
    }

    boolean givesValue() {
        return code <= COMPARE_SWAP;
    }
}
