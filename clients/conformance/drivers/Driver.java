import com.google.gson.*;
import com.google.gson.annotations.SerializedName;
import fairlock.*;
import fairlock.FairlockException.LockLost;
import io.lettuce.core.*;
import io.lettuce.core.cluster.ClusterClientOptions;
import io.lettuce.core.cluster.RedisClusterClient;
import io.lettuce.core.internal.HostAndPort;
import io.lettuce.core.resource.*;
import java.io.*;
import java.lang.reflect.*;
import java.time.Duration;
import java.util.*;
import java.util.concurrent.*;

/** The driver of the Java package: README.md beside has the lines. Each operation runs in a thread of its own. */
final class Driver {
    private static final Gson GSON = new GsonBuilder()
            .registerTypeAdapter(Duration.class, (JsonDeserializer<Duration>) (json, type, context) -> Duration.ofMillis(json.getAsLong()))
            .registerTypeAdapter(Duration.class, (JsonSerializer<Duration>) (time, type, context) -> new JsonPrimitive(time.toNanos() / 1e6))
            .registerTypeAdapter(LockOptions.Module.class, (JsonDeserializer<LockOptions.Module>) (json, type, context) -> LockOptions.Module.REQUIRED)
            .create();
    private static final ClientResources RESOURCES = ClientResources.builder().ioThreadPoolSize(2).computationThreadPoolSize(2).build();
    private static final Map<Integer, Request> REQUESTS = new ConcurrentHashMap<>();

    /** A request, with the fields of all operations, and what came of it. */
    private static final class Request {
        int id, locks, held, block, call;
        String op, name, hooks;
        Map<String, JsonElement> options;
        @SerializedName("try") boolean isTry;
        boolean fail;
        Duration lease, wait;
        Client client;
        transient Locks made;
        transient Runnable disconnect;
        transient volatile Held hold;
        transient Thread thread;
        final transient BlockingQueue<Request> inside = new LinkedBlockingQueue<>();
        final transient CompletableFuture<Void> released = new CompletableFuture<>();
    }

    private record Client(String kind, List<String> at, String user, String password, Integer timeout, Map<String, String> tls, Map<String, String> map) {}

    private record Answer(int id, Object ok, Failure failed) {}

    private record Failure(String type, String code, String text, LockLost.Cause cause, String because, List<String> also) {}

    private record Inside(String event, int id, long token, String owner) {}

    private record Hook(String event, int locks, String hook, Object with) {}

    private static final class Body extends RuntimeException {}

    private static final class Unknown extends RuntimeException {}

    private static synchronized void say(Object line) {
        System.out.println(GSON.toJson(line));
    }

    private static LockOptions options(Request r) throws ReflectiveOperationException {
        LockOptions all = LockOptions.options();
        for (Method each : LockOptions.class.getMethods()) {
            if (each.getReturnType() == LockOptions.class && r.options.containsKey(each.getName())) {
                all = (LockOptions) each.invoke(all, (Object) GSON.fromJson(r.options.get(each.getName()), each.getParameterTypes()[0]));
            }
        }
        return r.hooks == null ? all : all.hooks(hooks(r));
    }

    private static Hooks hooks(Request r) {
        return (Hooks) Proxy.newProxyInstance(Driver.class.getClassLoader(), new Class<?>[] {Hooks.class}, (self, hook, arguments) -> {
            if (r.hooks.equals("fail")) {
                throw new Body();
            }
            say(new Hook("hook", r.id, hook.getName().substring("on".length()).toLowerCase(), arguments[0]));
            return null;
        });
    }

    private static void make(Request r) throws ReflectiveOperationException {
        Client given = r.client;
        LockOptions options = options(r);
        if (given.kind.equals("nothing")) {
            Locks.of((RedisClient) null, RedisURI.create("redis://localhost"), options);
        }
        boolean isSentinel = given.kind.equals("sentinel");
        String access = given.password == null ? "" : (given.user == null ? "" : given.user) + ":" + given.password + "@";
        String address = (given.tls == null ? "redis" : "rediss") + (isSentinel ? "-sentinel://" : "://") + access
                + (isSentinel ? String.join(",", given.at) + "#locks" : given.at.get(0));
        RedisURI at = RedisURI.create(address);
        if (given.timeout != null) {
            at.setTimeout(Duration.ofMillis(given.timeout));
        }
        SslOptions.Builder ssl = SslOptions.builder().jdkSslProvider();
        if (given.tls != null) {
            ssl.trustManager(new File(given.tls.get("ca"))).keyManager(new File(given.tls.get("cert")), new File(given.tls.get("key")), new char[0]);
        }
        ClientResources resources = given.map == null ? RESOURCES : RESOURCES.mutate().socketAddressResolver(MappingSocketAddressResolver.create(
                DnsResolver.unresolved(), each -> HostAndPort.parse(given.map.getOrDefault(each.toString(), each.toString())))).build();
        if (given.kind.equals("cluster")) {
            RedisClusterClient client = RedisClusterClient.create(resources, at);
            client.setOptions(ClusterClientOptions.builder().sslOptions(ssl.build()).build());
            r.made = Locks.of(client, options);
            r.disconnect = () -> disconnect(client, () -> client.connect().sync().ping());
        } else {
            RedisClient client = RedisClient.create(resources, at);
            client.setOptions(ClientOptions.builder().sslOptions(ssl.build()).build());
            r.made = Locks.of(client, at, options);
            r.disconnect = () -> disconnect(client, () -> client.connect(at).sync().ping());
        }
    }

    /** As a user who goes on with the client, and then closes it. */
    private static void disconnect(AbstractRedisClient client, Runnable ping) {
        try {
            ping.run();
        } catch (RedisException e) { // Its server may be down.
            if (String.valueOf(e.getMessage()).contains("closed")) {
                throw e;
            }
        }
        client.shutdown();
    }

    /** What is asked for inside runs in this thread. */
    private static void block(Request r) throws Exception {
        try (Held held = REQUESTS.get(r.locks).made.acquire(r.name, options(r))) {
            r.hold = held;
            say(new Inside("inside", r.id, held.token(), held.owner()));
            Request inner;
            do {
                inner = r.inside.take();
                answer(inner);
            } while (!inner.op.equals("leave"));
            if (inner.fail) {
                throw new Body();
            }
        }
    }

    private static Object operate(Request r) throws Exception {
        Locks locks = r.locks == 0 ? null : REQUESTS.get(r.locks).made;
        Held held = r.held == 0 ? null : REQUESTS.get(r.held).hold;
        switch (r.op) {
            case "new" -> make(r);
            case "acquire", "abandon" -> {
                r.hold = r.isTry ? locks.tryAcquire(r.name, options(r)).orElse(null) : locks.acquire(r.name, options(r));
                return r.hold == null ? null : Map.of("token", r.hold.token(), "owner", r.hold.owner());
            }
            case "block" -> block(r);
            case "leave" -> { }
            case "renew" -> {
                return Map.of("lease", r.lease == null ? held.renew() : held.renew(r.lease));
            }
            case "release" -> {
                held.release();
                REQUESTS.get(r.held).released.complete(null);
            }
            case "lost" -> {
                LockLost lost = held.lost().copy().completeOnTimeout(null, r.wait.toMillis(), TimeUnit.MILLISECONDS).get();
                return lost == null ? null : Map.of("cause", lost.cause());
            }
            case "cancel" -> REQUESTS.get(r.call).thread.interrupt();
            case "info" -> {
                return locks.info(r.name);
            }
            case "native" -> {
                return locks.isNative().map(is -> Map.of("native", is)).orElse(null);
            }
            case "close" -> {
                locks.close();
                REQUESTS.get(r.locks).disconnect.run();
            }
            default -> throw new Unknown();
        }
        return null;
    }

    private static void answer(Request r) {
        try {
            say(new Answer(r.id, operate(r), null));
        } catch (Throwable thrown) {
            Throwable error = thrown instanceof InvocationTargetException ? thrown.getCause() : thrown;
            say(new Answer(r.id, null, new Failure(error.getClass().getSimpleName(), error instanceof FairlockException ours ? ours.code() : null,
                    String.valueOf(error.getMessage()), error instanceof LockLost lost ? lost.cause() : null,
                    error.getCause() == null ? null : String.valueOf(error.getCause().getMessage()),
                    Arrays.stream(error.getSuppressed()).map(Throwable::getMessage).toList())));
        }
    }

    /** A lock is renewed as long as the thread lives that acquired it, or renewed it last. */
    private static void live(Request r) {
        answer(r);
        if (r.op.equals("acquire") && r.hold != null || r.op.equals("renew")) {
            REQUESTS.get(r.op.equals("renew") ? r.held : r.id).released.join();
        }
    }

    public static void main(String[] arguments) throws Exception {
        BufferedReader lines = new BufferedReader(new InputStreamReader(System.in));
        for (String line = lines.readLine(); line != null; line = lines.readLine()) {
            Request request = GSON.fromJson(line, Request.class);
            REQUESTS.put(request.id, request);
            if (request.block != 0) {
                REQUESTS.get(request.block).inside.put(request);
                continue;
            }
            request.thread = new Thread(() -> live(request));
            request.thread.setDaemon(true);
            request.thread.start();
        }
        System.exit(0);
    }
}
