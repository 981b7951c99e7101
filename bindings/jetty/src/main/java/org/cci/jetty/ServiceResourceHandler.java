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
 * is in Jetty's cache from there, and other files from memory that those were read into. Without a cache, what a path leads to is
 * remembered for one second, unless the file changes.
 */
public class ServiceResourceHandler extends ResourceHandler {
    /** How long the cache takes a file for what it was. */
    private static final long VALID_MS = TimeUnit.SECONDS.toMillis(1);

    private long cachedBytesMax = 256 << 20;
    private int cachedFileBytesMax = 128 << 20;

    /** A handler with a cache. */
    public ServiceResourceHandler() {}

    /**
     * How much is cached.
     *
     * @param bytes of all files together; 0: there is no cache
     * @param fileBytes of one file: longer ones are not cached
     */
    public void setCachedBytesMax(long bytes, int fileBytes) {
        cachedBytesMax = bytes;
        cachedFileBytesMax = fileBytes;
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
        HttpContent.Factory contents = path -> {
            HttpContent content = files.getContent(path);
            return content == null ? null : new FileContent(content);
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
