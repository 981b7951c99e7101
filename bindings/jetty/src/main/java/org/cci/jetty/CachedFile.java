package org.cci.jetty;

import java.nio.file.attribute.BasicFileAttributes;
import java.time.Instant;
import org.eclipse.jetty.util.resource.Resource;

/**
 * A regular file in Jetty's cache, which asks now and then when it was modified. Each request asks whether it is a directory: that
 * costs no look at the file.
 */
final class CachedFile extends KnownFile {
    CachedFile(Resource resource, BasicFileAttributes seen) {
        super(resource, seen);
    }

    @Override
    public boolean exists() {
        return resource.exists();
    }

    @Override
    public Instant lastModified() {
        return resource.lastModified();
    }

    @Override
    public long length() {
        return resource.length();
    }
}
