package org.cci.jetty;

import java.nio.file.Files;
import java.nio.file.Path;
import org.eclipse.jetty.server.Server;
import org.eclipse.jetty.server.ServerConnector;
import org.eclipse.jetty.util.resource.ResourceFactory;

/** The command that serves a folder over a service and TCP at once, also to {@code cci get}: {@code Serve SERVICE FOLDER [PORT]}. */
public final class Serve {
    private Serve() {}

    /**
     * Runs it, until it is killed.
     *
     * @param arguments the service's name, the folder, and perhaps the TCP port; 0 or none: any
     * @throws Exception if it fails
     */
    public static void main(String[] arguments) throws Exception {
        if (arguments.length < 2 || arguments.length > 3 || !Files.isDirectory(Path.of(arguments[1]))) {
            System.err.println("usage: Serve SERVICE FOLDER [PORT]");
            System.exit(2);
        }
        Server server = new Server();
        ServerConnector tcp = new ServerConnector(server);
        tcp.setHost("localhost");
        tcp.setPort(arguments.length > 2 ? Integer.parseInt(arguments[2]) : 0);
        server.addConnector(tcp);
        ServiceConnector services = new ServiceConnector(server, arguments[0]);
        services.setFolder(Path.of(arguments[1]));
        server.addConnector(services);
        ServiceResourceHandler files = new ServiceResourceHandler();
        files.setBaseResource(ResourceFactory.of(server).newResource(Path.of(arguments[1]).toRealPath()));
        files.setEtags(true);
        server.setHandler(files);
        server.setStopAtShutdown(true);
        try {
            server.start();
        } catch (Exception e) {
            System.err.println(e.getMessage());
            System.exit(1);
        }
        System.out.println("serving " + arguments[1] + " as the service " + arguments[0] + " and at http://localhost:"
                + tcp.getLocalPort() + "/");
        server.join();
    }
}
