package org.cci.jetty;

import java.io.IOException;
import java.net.URI;
import java.nio.file.Files;
import java.nio.file.LinkOption;
import java.nio.file.Path;
import java.nio.file.attribute.BasicFileAttributes;
import java.time.Instant;
import org.eclipse.jetty.util.resource.Resource;

/** A regular file that no link leads to, as it was when it was looked at. */
class KnownFile extends Resource {
    final Resource resource;
    private final Path path;
    private final BasicFileAttributes seen;

    KnownFile(Resource resource, BasicFileAttributes seen) {
        this.resource = resource;
        path = resource.getPath();
        this.seen = seen;
    }

    /** What is at a path, not where a link there leads; null: nothing that can be looked at. */
    static BasicFileAttributes look(Path path) {
        try {
            return Files.readAttributes(path, BasicFileAttributes.class, LinkOption.NOFOLLOW_LINKS);
        } catch (IOException | RuntimeException e) {
            return null;
        }
    }

    /** What is at a resource, if it is a regular file that no link leads to; else null. */
    static BasicFileAttributes look(Resource resource) {
        Path path = resource == null ? null : resource.getPath();
        BasicFileAttributes seen = path == null ? null : look(path);
        boolean isFile = seen != null && seen.isRegularFile() && seen.fileKey() != null && !resource.isAlias();
        return isFile ? seen : null;
    }

    /** Whether the file is still there and has not changed. */
    boolean isAsItWas() {
        BasicFileAttributes now = look(path);
        return now != null && now.isRegularFile() && isSame(seen, now);
    }

    /** Whether what was seen is what is there now, and has not changed. */
    static boolean isSame(BasicFileAttributes seen, BasicFileAttributes now) {
        return seen.fileKey().equals(now.fileKey())
                && seen.size() == now.size()
                && seen.lastModifiedTime().equals(now.lastModifiedTime());
    }

    @Override
    public Path getPath() {
        return path;
    }

    @Override
    public boolean exists() {
        return true;
    }

    @Override
    public boolean isDirectory() {
        return false;
    }

    @Override
    public boolean isReadable() {
        return resource.isReadable();
    }

    @Override
    public Instant lastModified() {
        return seen.lastModifiedTime().toInstant();
    }

    @Override
    public long length() {
        return seen.size();
    }

    @Override
    public URI getURI() {
        return resource.getURI();
    }

    @Override
    public String getName() {
        return resource.getName();
    }

    @Override
    public String getFileName() {
        return resource.getFileName();
    }

    @Override
    public Resource resolve(String subPath) {
        return resource.resolve(subPath);
    }
}
