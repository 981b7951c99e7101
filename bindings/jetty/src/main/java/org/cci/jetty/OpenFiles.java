package org.cci.jetty;

import java.io.IOException;
import java.nio.file.Path;
import java.nio.file.attribute.BasicFileAttributes;
import java.util.ArrayList;
import java.util.Iterator;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.TimeUnit;
import org.eclipse.jetty.util.component.AbstractLifeCycle;
import org.eclipse.jetty.util.thread.Scheduler;

/** The files that were sent lately, which stay open for a short time: clients that fetch one again need not be given it anew. */
final class OpenFiles extends AbstractLifeCycle {
    /** The most files that are open although nobody fetches them. */
    static final int FILES_MAX = 64;
    /** How long such a file stays open. */
    static final long IDLE_NS = TimeUnit.SECONDS.toNanos(2);

    /** Those that were used last come last. */
    private final LinkedHashMap<Path, OpenFile> files = new LinkedHashMap<>(16, 0.75f, true);

    private final Scheduler scheduler;
    private boolean isSweepDue;

    /**
     * No files.
     *
     * @param scheduler what has idle ones closed; null: they are closed when others are opened
     */
    OpenFiles(Scheduler scheduler) {
        this.scheduler = scheduler;
    }

    /** A file as it is now, retained once for the caller. Null: there is none that can be sent from where it is. */
    OpenFile open(Path path) {
        BasicFileAttributes now = KnownFile.look(path);
        if (now == null || !now.isRegularFile() || now.fileKey() == null || now.size() == 0) {
            return null;
        }
        List<OpenFile> closed = new ArrayList<>();
        OpenFile found;
        synchronized (files) {
            found = files.get(path);
            if (found == null || !found.is(now)) {
                if (found != null) {
                    closed.add(found);
                }
                found = opened(path, now);
                if (found == null) {
                    files.remove(path);
                } else if (isStarted()) {
                    files.put(path, found);
                    found.retain();
                }
            } else {
                found.retain();
            }
            if (found != null) {
                found.usedNs = System.nanoTime();
            }
            Iterator<OpenFile> oldest = files.values().iterator();
            while (files.size() > FILES_MAX) {
                closed.add(oldest.next());
                oldest.remove();
            }
            later();
        }
        closed.forEach(OpenFile::release);
        return found;
    }

    private static OpenFile opened(Path path, BasicFileAttributes now) {
        try {
            return new OpenFile(path, now);
        } catch (IOException e) {
            // Who reads the file says what is wrong.
            return null;
        }
    }

    /** How many files are open because they were sent lately. */
    int count() {
        synchronized (files) {
            return files.size();
        }
    }

    /** Has idle files closed later. With the lock. */
    private void later() {
        if (!isSweepDue && !files.isEmpty() && scheduler != null && scheduler.isRunning()) {
            isSweepDue = true;
            scheduler.schedule(this::sweep, IDLE_NS, TimeUnit.NANOSECONDS);
        }
    }

    /** Closes files that nobody has fetched for some time. */
    private void sweep() {
        List<OpenFile> closed = new ArrayList<>();
        synchronized (files) {
            isSweepDue = false;
            for (Iterator<Map.Entry<Path, OpenFile>> all = files.entrySet().iterator(); all.hasNext(); ) {
                OpenFile file = all.next().getValue();
                if (System.nanoTime() - file.usedNs >= IDLE_NS) {
                    closed.add(file);
                    all.remove();
                }
            }
            later();
        }
        closed.forEach(OpenFile::release);
    }

    @Override
    protected void doStop() {
        List<OpenFile> closed;
        synchronized (files) {
            closed = new ArrayList<>(files.values());
            files.clear();
        }
        closed.forEach(OpenFile::release);
    }
}
