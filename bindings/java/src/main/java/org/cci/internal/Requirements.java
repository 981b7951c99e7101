package org.cci.internal;

/** What CCI needs of Java and of the machine. It uses nothing that an old Java does not have. */
public final class Requirements {
    private static final int JAVA_MIN = 22;

    private Requirements() {}

    /**
     * Makes sure that this Java is new enough.
     *
     * @throws UnsupportedOperationException if it is not: says which one is needed
     */
    public static void check() {
        int feature = Runtime.version().feature();
        if (feature < JAVA_MIN) {
            throw new UnsupportedOperationException("CCI needs Java " + JAVA_MIN
                    + " or newer, for java.lang.foreign; this is Java " + Runtime.version() + " of "
                    + System.getProperty("java.home"));
        }
    }

    /**
     * The system and the processor, as the folder of the native library in the jar is called.
     *
     * @return such as {@code linux-amd64}
     */
    public static String platform() {
        return System.getProperty("os.name").toLowerCase(java.util.Locale.ROOT) + "-" + System.getProperty("os.arch");
    }
}
