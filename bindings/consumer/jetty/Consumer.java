import java.nio.charset.StandardCharsets;
import org.cci.ServiceId;
import org.cci.jetty.ServiceConnector;
import org.cci.jetty.ServiceTransport;
import org.eclipse.jetty.client.ContentResponse;
import org.eclipse.jetty.client.HttpClient;
import org.eclipse.jetty.io.Content;
import org.eclipse.jetty.server.Handler;
import org.eclipse.jetty.server.Request;
import org.eclipse.jetty.server.Response;
import org.eclipse.jetty.server.Server;
import org.eclipse.jetty.util.Callback;

/** A program that has the dependency which the guide shows, and nothing else: serves by a service, and fetches from it. */
public final class Consumer {
    private Consumer() {}

    public static void main(String[] arguments) throws Exception {
        String name = "consumer-" + ProcessHandle.current().pid();
        Server server = new Server();
        server.addConnector(new ServiceConnector(server, name));
        server.setHandler(new Handler.Abstract() {
            @Override
            public boolean handle(Request request, Response response, Callback callback) {
                Content.Sink.write(response, true, "hello", callback);
                return true;
            }
        });
        server.start();
        HttpClient client = new HttpClient();
        client.start();
        try (ServiceTransport transport = new ServiceTransport()) {
            ContentResponse response = client.newRequest("http://" + name + "/")
                    .transport(transport.to(ServiceId.of(name)))
                    .send();
            System.out.println("consumer: " + new String(response.getContent(), StandardCharsets.UTF_8));
        } finally {
            client.stop();
            server.stop();
        }
    }
}
