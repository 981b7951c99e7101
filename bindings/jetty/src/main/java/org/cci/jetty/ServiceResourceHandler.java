package org.cci.jetty;

import java.nio.file.attribute.BasicFileAttributes;
import java.util.concurrent.TimeUnit;
import org.eclipse.jetty.http.content.HttpContent;
import org.eclipse.jetty.http.content.PreCompressedHttpContentFactory;
import org.eclipse.jetty.http.content.ResourceHttpContentFactory;
import org.eclipse.jetty.http.content.ValidatingCachingHttpContentFactory;
import org.eclipse.jetty.http.content.VirtualHttpContentFactory;
import org.eclipse.jetty.io.ByteBufferPool;
import org.eclipse.jetty.server.handler.ResourceHandler;
import org.eclipse.jetty.util.resource.Resource;

/**
 * Serves files as {@link ResourceHandler} does. To clients of a {@link ServiceConnector} nothing is copied in Java: they fetch what
 * is in Jetty's cache from there, and longer files straight from the system's page cache; short ones are read into memory first. Without a
 * cache, what a path leads to is remembered for one second, unless the file changes. Files that were sent stay open for two seconds.
 */
public class ServiceResourceHandler extends ResourceHandler {
    /** How long the cache takes a file for what it was. */
    private static final long VALID_MS = TimeUnit.SECONDS.toMillis(1);

    /**
     * Longer files are not cached: a client that fetches from the page cache is faster than from memory that is too long for it to be
     * mapped.
     */
    private static final int CACHED_FILE_BYTES_MAX = 64 << 20;

    private long cachedBytesMax = 256 << 20;
    private int cachedFileBytesMax = CACHED_FILE_BYTES_MAX;
    private OpenFiles openFiles;

    /** A handler with a cache. */
    public ServiceResourceHandler() {}

    /**
     * How much is cached.
     *
     * @param bytes of all files together; 0: there is no cache
     * @param fileBytes of one file: longer ones are not cached, nor are those of more than 64 MiB, which the system's page cache has
     */
    public void setCachedBytesMax(long bytes, int fileBytes) {
        cachedBytesMax = bytes;
        cachedFileBytesMax = Math.min(fileBytes, CACHED_FILE_BYTES_MAX);
    }

    @Override
    protected HttpContent.Factory newHttpContentFactory(ByteBufferPool.Sized pool) {
        // The cache has its own memory of what it found, and asks files whether they have changed.
        HttpContent.Factory files = cachedBytesMax == 0
                ? new KnownFiles(getBaseResource(), getMimeTypes(), pool)
                : new ResourceHttpContentFactory(getBaseResource(), getMimeTypes(), pool) {
                    @Override
                    protected Resource resolve(String path) {
                        Resource resource = super.resolve(path);
                        BasicFileAttributes seen = KnownFile.look(resource);
                        return seen == null ? resource : new CachedFile(resource, seen);
                    }
                };
        OpenFiles open = new OpenFiles(getServer() == null ? null : getServer().getScheduler());
        updateBean(openFiles, open, true);
        openFiles = open;
        HttpContent.Factory contents = path -> {
            HttpContent content = files.getContent(path);
            return content == null ? null : new FileContent(content, open);
        };
        contents = new VirtualHttpContentFactory(contents, getStyleSheet(), "text/css", pool);
        contents = new PreCompressedHttpContentFactory(contents, getPrecompressedFormats());
        if (cachedBytesMax == 0) {
            return contents;
        }
        ByteBufferPool.Sized cached = new ByteBufferPool.Sized(new ServiceBufferPool(), true, pool.getSize());
        ValidatingCachingHttpContentFactory cache =
                new ValidatingCachingHttpContentFactory(contents, VALID_MS, cached);
        cache.setMaxCachedFileSize(cachedFileBytesMax);
        cache.setMaxCacheSize(cachedBytesMax);
        return cache;
    }
}
