package org.cci.jetty.bench;

import java.nio.file.Path;
import org.cci.jetty.ServiceConnector;
import org.cci.jetty.ServiceResourceHandler;
import org.eclipse.jetty.http.content.FileMappingHttpContentFactory;
import org.eclipse.jetty.http.content.HttpContent;
import org.eclipse.jetty.http.content.ResourceHttpContentFactory;
import org.eclipse.jetty.http.content.ValidatingCachingHttpContentFactory;
import org.eclipse.jetty.io.ByteBufferPool;
import org.eclipse.jetty.server.HttpConfiguration;
import org.eclipse.jetty.server.HttpConnectionFactory;
import org.eclipse.jetty.server.Server;
import org.eclipse.jetty.server.ServerConnector;
import org.eclipse.jetty.server.handler.ContextHandler;
import org.eclipse.jetty.server.handler.ContextHandlerCollection;
import org.eclipse.jetty.server.handler.ResourceHandler;
import org.eclipse.jetty.util.resource.ResourceFactory;

/**
 * The server of {@link FetchBench}: one Jetty that serves a folder over TCP and RIPC, at {@code /plain} without its cache, at
 * {@code /mapped} without it from mappings, and at {@code /cached} with it; at {@code /lent} and {@code /lent-cached} by what this
 * module has for it. It ends with its standard input.
 */
final class FetchServer {
    private static final int READ_BYTES = 256 << 10;
    private static final int CACHED_FILE_BYTES_MAX = 512 << 20;
    private static final long CACHED_BYTES_MAX = 1L << 30;
    private static final long VALID_MS = 10_000;

    private FetchServer() {}

    /** A handler without a cache, which reads files or maps them. */
    private static ResourceHandler plain(boolean maps) {
        return new ResourceHandler(null, new ByteBufferPool.Sized(null, true, READ_BYTES)) {
            @Override
            protected HttpContent.Factory newHttpContentFactory(ByteBufferPool.Sized pool) {
                HttpContent.Factory files = new ResourceHttpContentFactory(getBaseResource(), getMimeTypes(), pool);
                return maps ? new FileMappingHttpContentFactory(files, 0, Integer.MAX_VALUE) : files;
            }
        };
    }

    private static ResourceHandler cached() {
        return new ResourceHandler(null, new ByteBufferPool.Sized(null, true, READ_BYTES)) {
            @Override
            protected HttpContent.Factory newHttpContentFactory(ByteBufferPool.Sized pool) {
                HttpContent.Factory files = new ResourceHttpContentFactory(getBaseResource(), getMimeTypes(), pool);
                ValidatingCachingHttpContentFactory cache =
                        new ValidatingCachingHttpContentFactory(files, VALID_MS, pool);
                cache.setMaxCachedFileSize(CACHED_FILE_BYTES_MAX);
                cache.setMaxCacheSize(CACHED_BYTES_MAX);
                return cache;
            }
        };
    }

    private static ResourceHandler lent(long cachedBytesMax) {
        ServiceResourceHandler files = new ServiceResourceHandler();
        files.setCachedBytesMax(cachedBytesMax, CACHED_FILE_BYTES_MAX);
        return files;
    }

    private static ContextHandler at(String path, ResourceHandler files, Server server, Path folder) {
        files.setBaseResource(ResourceFactory.of(server).newResource(folder));
        return new ContextHandler(files, path);
    }

    private static HttpConnectionFactory http() {
        HttpConfiguration configuration = new HttpConfiguration();
        configuration.setSendServerVersion(false);
        configuration.setSendDateHeader(false);
        return new HttpConnectionFactory(configuration);
    }

    public static void main(String[] arguments) throws Exception {
        Path folder = Path.of(arguments[1]).toRealPath();
        Server server = new Server();
        ServerConnector tcp = new ServerConnector(server, http());
        tcp.setHost(arguments[2]);
        server.addConnector(tcp);
        server.addConnector(new ServiceConnector(server, arguments[0], http()));
        server.setHandler(new ContextHandlerCollection(
                at("/plain", plain(false), server, folder),
                at("/mapped", plain(true), server, folder),
                at("/cached", cached(), server, folder),
                at("/lent", lent(0), server, folder),
                at("/lent-cached", lent(CACHED_BYTES_MAX), server, folder)));
        server.start();
        System.out.println(tcp.getLocalPort());
        while (System.in.read() >= 0) {
            // What ends it is the end of the program that has started it.
        }
        System.exit(0);
    }
}
