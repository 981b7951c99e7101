package org.cci.jetty;

import java.io.IOException;
import java.nio.file.attribute.BasicFileAttributes;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.TimeUnit;
import org.eclipse.jetty.http.MimeTypes;
import org.eclipse.jetty.http.content.HttpContent;
import org.eclipse.jetty.http.content.ResourceHttpContentFactory;
import org.eclipse.jetty.io.ByteBufferPool;
import org.eclipse.jetty.util.resource.Resource;

/**
 * Finds files as Jetty does, and remembers for a short time what a path leads to. Each request for a path that is known looks at the
 * file once: if it is another one or has changed, it is looked up anew. Only regular files are remembered that no link leads to, so
 * what Jetty asks of an alias is asked each time.
 */
final class KnownFiles extends ResourceHttpContentFactory {
    private static final long VALID_NS = TimeUnit.SECONDS.toNanos(1);
    /** The most paths that are remembered. */
    static final int PATHS_MAX = 1024;

    private final ConcurrentHashMap<String, Known> known = new ConcurrentHashMap<>();

    private record Known(HttpContent content, KnownFile file, long sinceNs) {
        boolean isValid() {
            return System.nanoTime() - sinceNs < VALID_NS && file.isAsItWas();
        }
    }

    KnownFiles(Resource base, MimeTypes types, ByteBufferPool.Sized pool) {
        super(base, types, pool);
    }

    @Override
    public HttpContent getContent(String path) throws IOException {
        Known before = known.get(path);
        if (before != null && before.isValid()) {
            return before.content;
        }
        if (before != null) {
            known.remove(path, before);
        }
        long nowNs = System.nanoTime();
        HttpContent content = super.getContent(path);
        if (content != null && content.getResource() instanceof KnownFile file) {
            if (known.size() >= PATHS_MAX) {
                known.clear();
            }
            known.put(path, new Known(content, file, nowNs));
        }
        return content;
    }

    @Override
    protected Resource resolve(String path) {
        Resource resource = super.resolve(path);
        BasicFileAttributes seen = KnownFile.look(resource);
        return seen == null ? resource : new KnownFile(resource, seen);
    }

    /** How many paths are remembered. */
    int count() {
        return known.size();
    }
}
