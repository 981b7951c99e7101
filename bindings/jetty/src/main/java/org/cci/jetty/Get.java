package org.cci.jetty;

import java.io.IOException;
import java.nio.channels.FileChannel;
import java.nio.file.Path;
import java.nio.file.StandardOpenOption;
import java.util.concurrent.TimeUnit;
import java.util.function.LongConsumer;
import org.cci.ServiceId;
import org.eclipse.jetty.client.HttpClient;

/** The command that fetches a file from a service: {@code Get SERVICE /PATH TO}. */
public final class Get {
    /** How long the service may be away. */
    private static final long PATIENCE_S = 60;

    private static final int BAR = 40;

    private Get() {}

    /**
     * Runs it.
     *
     * @param arguments the service's name, the file's path there, and where it goes
     * @throws Exception if it fails
     */
    public static void main(String[] arguments) throws Exception {
        if (arguments.length != 3 || !arguments[1].startsWith("/")) {
            System.err.println("usage: Get SERVICE /PATH FILE");
            System.exit(2);
        }
        HttpClient client = new HttpClient();
        client.start();
        try (ServiceTransport transport = new ServiceTransport();
                FileChannel to = FileChannel.open(
                        Path.of(arguments[2]), StandardOpenOption.CREATE, StandardOpenOption.WRITE)) {
            String uri = "http://" + arguments[0] + arguments[1];
            Download download = new Download(client, transport.to(ServiceId.of(arguments[0])), uri);
            long began = System.nanoTime();
            long bytes = download.fetch(to, new Bar(download), PATIENCE_S, TimeUnit.SECONDS);
            double seconds = (System.nanoTime() - began) / 1e9;
            System.out.printf(
                    "%n%s: %d bytes, %.1f MiB/s, %d tries%n",
                    arguments[1], bytes, bytes / seconds / (1 << 20), download.tries() + 1);
        } catch (IOException e) {
            System.err.println("\n" + e.getMessage());
            System.exit(1);
        } finally {
            client.stop();
        }
    }

    /** A progress bar, which is drawn anew for each hundredth. */
    private static final class Bar implements LongConsumer {
        private final Download download;
        private long drawn = -1;

        Bar(Download download) {
            this.download = download;
        }

        @Override
        public void accept(long bytes) {
            long total = download.total();
            long percent = total <= 0 ? 100 : bytes * 100 / total;
            if (percent != drawn) {
                drawn = percent;
                int full = (int) (percent * BAR / 100);
                System.out.printf(
                        "\r[%s%s] %3d%% %d of %d MiB", "#".repeat(full), "-".repeat(BAR - full), percent, bytes >> 20, total >> 20);
            }
        }
    }
}
