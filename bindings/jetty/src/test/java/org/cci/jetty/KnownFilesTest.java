package org.cci.jetty;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertNotNull;
import static org.junit.jupiter.api.Assertions.assertNull;
import static org.junit.jupiter.api.Assertions.assertSame;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.io.IOException;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.StandardCopyOption;
import java.nio.file.attribute.FileTime;
import java.util.concurrent.TimeUnit;
import org.eclipse.jetty.client.CompletableResponseListener;
import org.eclipse.jetty.client.ContentResponse;
import org.eclipse.jetty.client.HttpClient;
import org.eclipse.jetty.http.HttpHeader;
import org.eclipse.jetty.http.MimeTypes;
import org.eclipse.jetty.http.content.HttpContent;
import org.eclipse.jetty.http.content.ResourceHttpContentFactory;
import org.eclipse.jetty.io.ByteBufferPool;
import org.eclipse.jetty.server.AllowedResourceAliasChecker;
import org.eclipse.jetty.server.Handler;
import org.eclipse.jetty.server.Server;
import org.eclipse.jetty.server.ServerConnector;
import org.eclipse.jetty.server.handler.ContextHandler;
import org.eclipse.jetty.server.handler.ContextHandlerCollection;
import org.eclipse.jetty.server.handler.ResourceHandler;
import org.eclipse.jetty.util.resource.Resource;
import org.eclipse.jetty.util.resource.ResourceFactory;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;

/** What is remembered of a path never outlives a change, and no answer differs from Jetty's. */
class KnownFilesTest {
    private static final String[] PATHS = {"file", "folder/file", "folder", "link", "nothing", "protected/file", "FILE", "file/"};

    @TempDir
    Path outer;

    private Path root;
    private final Server server = new Server();
    private final ServerConnector tcp = new ServerConnector(server);
    private final HttpClient http = new HttpClient();

    private ContextHandler at(String path, ResourceHandler files, boolean allowsLinks) {
        files.setBaseResource(ResourceFactory.of(server).newResource(root));
        ContextHandler context = new ContextHandler(files, path);
        context.setBaseResource(files.getBaseResource());
        context.setProtectedTargets(new String[] {"/protected"});
        context.clearAliasChecks();
        if (allowsLinks) {
            context.addAliasCheck(new AllowedResourceAliasChecker(context));
        }
        return context;
    }

    private static ServiceResourceHandler ours() {
        ServiceResourceHandler files = new ServiceResourceHandler();
        files.setCachedBytesMax(0, 0);
        return files;
    }

    /** Jetty's own handler without its cache, which would have what was there before. */
    private static ResourceHandler jettys() {
        return new ResourceHandler() {
            @Override
            protected HttpContent.Factory newHttpContentFactory(ByteBufferPool.Sized pool) {
                return new ResourceHttpContentFactory(getBaseResource(), getMimeTypes(), pool);
            }
        };
    }

    @BeforeEach
    void start() throws Exception {
        root = Files.createDirectory(outer.toRealPath().resolve("root"));
        for (String folder : new String[] {"folder", "protected"}) {
            Files.createDirectory(root.resolve(folder));
            Files.writeString(root.resolve(folder).resolve("file"), folder);
        }
        Files.writeString(root.resolve("file"), "as it was");
        Files.createDirectory(outer.resolve("secret"));
        // Only what file it is differs.
        Path secret = Files.writeString(outer.resolve("secret/file"), "secret");
        Files.setLastModifiedTime(secret, Files.getLastModifiedTime(root.resolve("folder/file")));
        Handler.Collection all = new ContextHandlerCollection(
                at("/ours", ours(), false),
                at("/jettys", jettys(), false),
                at("/ours-cached", new ServiceResourceHandler(), false),
                at("/ours-linked", ours(), true),
                at("/jettys-linked", jettys(), true));
        server.setHandler(all);
        tcp.setHost("localhost");
        server.addConnector(tcp);
        server.start();
        http.setFollowRedirects(false);
        http.start();
    }

    @AfterEach
    void stop() throws Exception {
        http.stop();
        server.stop();
    }

    private ContentResponse get(String path) throws Exception {
        var request = http.newRequest("http://localhost:" + tcp.getLocalPort() + path).timeout(60, TimeUnit.SECONDS);
        return new CompletableResponseListener(request).send().get();
    }

    /** Both answer in the same manner, at once. Asked twice, so that ours has remembered. */
    private void compare(String when) throws Exception {
        for (String linked : new String[] {"", "-linked"}) {
            for (String path : PATHS) {
                for (int times = 0; times < 2; times++) {
                    ContentResponse ours = get("/ours" + linked + "/" + path);
                    ContentResponse jettys = get("/jettys" + linked + "/" + path);
                    String where = when + ", " + path + linked;
                    assertEquals(jettys.getStatus(), ours.getStatus(), where);
                    if (jettys.getStatus() != 200) {
                        continue;
                    }
                    // Lists of folders have their own paths in them.
                    String body = jettys.getContentAsString().replace("/jettys", "/ours");
                    assertEquals(body, ours.getContentAsString(), where);
                    for (HttpHeader header : new HttpHeader[] {HttpHeader.LAST_MODIFIED, HttpHeader.CONTENT_TYPE}) {
                        assertEquals(jettys.getHeaders().get(header), ours.getHeaders().get(header), where);
                    }
                }
            }
        }
    }

    private String content(String path) throws Exception {
        return get(path).getContentAsString();
    }

    @Test
    void answersAreJettysAfterEveryChange() throws Exception {
        Path file = root.resolve("file");
        compare("at first");
        assertEquals("as it was", content("/ours/file"));
        Files.writeString(file, "it is longer now");
        compare("longer");
        assertEquals("it is longer now", content("/ours/file"));
        Files.writeString(file, "short");
        compare("shorter");
        Files.writeString(file, "");
        compare("empty");
        Files.setLastModifiedTime(file, FileTime.fromMillis(1_000_000_000_000L));
        compare("touched");
        Path another = Files.createFile(root.resolve("another"));
        Files.setLastModifiedTime(another, Files.getLastModifiedTime(file));
        Files.move(another, file, StandardCopyOption.REPLACE_EXISTING);
        compare("replaced by one of the same length and time");
        Files.delete(file);
        compare("deleted");
        assertEquals(404, get("/ours/file").getStatus());
        Files.createDirectory(file);
        compare("a folder now");
        Files.delete(file);
        Files.writeString(file, "back");
        compare("back");
        assertEquals("back", content("/ours/file"));
    }

    @Test
    void linksLeadNowhereThatJettyWouldNotGo() throws Exception {
        Path file = root.resolve("file");
        Path folder = root.resolve("folder");
        compare("at first");
        assertEquals("folder", content("/ours/folder/file"));
        Files.delete(file);
        Files.createSymbolicLink(file, outer.resolve("secret/file"));
        compare("a link to the outside instead of a file");
        assertEquals(404, get("/ours/file").getStatus());
        assertEquals(404, get("/ours-linked/file").getStatus());
        Files.move(folder, root.resolve("moved"));
        Files.createSymbolicLink(folder, outer.resolve("secret"));
        compare("a link to the outside instead of a folder");
        assertEquals(404, get("/ours/folder/file").getStatus());
        Files.delete(folder);
        Files.createSymbolicLink(folder, root.resolve("protected"));
        compare("a link to what is protected");
        assertEquals(404, get("/ours-linked/folder/file").getStatus());
        Files.createSymbolicLink(root.resolve("link"), root.resolve("moved/file"));
        compare("a link within the folder");
        assertEquals("folder", content("/ours-linked/link"));
        assertEquals(404, get("/ours/link").getStatus());
        Files.delete(root.resolve("link"));
        Files.createSymbolicLink(root.resolve("link"), outer.resolve("secret/file"));
        compare("the link leads elsewhere");
        assertEquals(404, get("/ours-linked/link").getStatus());
    }

    /** Asks until the cache has looked at the file again. */
    private ContentResponse getUntil(int status, String path) throws Exception {
        ContentResponse response = get(path);
        for (int times = 0; times < 600 && response.getStatus() != status; times++) {
            Thread.sleep(100);
            response = get(path);
        }
        assertEquals(status, response.getStatus());
        return response;
    }

    @Test
    void theCacheFindsWhatReplacesAFile() throws Exception {
        Path file = root.resolve("file");
        Path secret = outer.resolve("secret/file");
        assertEquals("as it was", content("/ours-cached/file"));
        Files.delete(file);
        Files.createDirectory(file);
        Files.setLastModifiedTime(file, FileTime.fromMillis(1_000_000_000_000L));
        getUntil(302, "/ours-cached/file");
        Files.delete(file);
        Files.writeString(file, "back");
        assertEquals("back", getUntil(200, "/ours-cached/file").getContentAsString());
        Files.delete(file);
        getUntil(404, "/ours-cached/file");
        Files.writeString(file, "back again");
        assertEquals("back again", getUntil(200, "/ours-cached/file").getContentAsString());
        Files.delete(file);
        Files.setLastModifiedTime(secret, FileTime.fromMillis(1_000_000_000_000L));
        Files.createSymbolicLink(file, secret);
        getUntil(404, "/ours-cached/file");
    }

    @Test
    void aCachedFileIsAskedForAllButItsKind() throws IOException {
        Path file = root.resolve("file");
        Resource resource = ResourceFactory.of(server).newResource(root).resolve("file");
        CachedFile cached = new CachedFile(resource, KnownFile.look(resource));
        Files.writeString(file, "it is longer now");
        Files.setLastModifiedTime(file, FileTime.fromMillis(1_000_000_000_000L));
        assertEquals(1_000_000_000_000L, cached.lastModified().toEpochMilli());
        assertEquals("it is longer now".length(), cached.length());
        Files.delete(file);
        assertFalse(cached.exists());
        Files.createDirectory(file);
        assertTrue(cached.exists());
        assertFalse(cached.isDirectory());
    }

    @Test
    void aBoundedNumberOfPlainFilesIsRemembered() throws IOException {
        ByteBufferPool.Sized pool = new ByteBufferPool.Sized(null, true, 4096);
        KnownFiles known = new KnownFiles(ResourceFactory.of(server).newResource(root), new MimeTypes(), pool);
        assertNull(known.getContent("/nothing"));
        assertNotNull(known.getContent("/folder/"));
        Files.createSymbolicLink(root.resolve("link"), root.resolve("file"));
        assertTrue(known.getContent("/link").getResource().isAlias());
        assertEquals(0, known.count());
        assertSame(known.getContent("/file"), known.getContent("/file"));
        assertEquals(1, known.count());
        for (int i = 0; i < 2 * KnownFiles.PATHS_MAX + 10; i++) {
            Files.write(root.resolve("f" + i), Integer.toString(i).getBytes(StandardCharsets.US_ASCII));
            assertNotNull(known.getContent("/f" + i));
            assertTrue(known.count() <= KnownFiles.PATHS_MAX);
        }
        assertTrue(known.count() > 0);
    }
}
