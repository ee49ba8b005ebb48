import com.google.gson.*;
import fairlock.*;
import fairlock.FairlockException.LockLost;
import io.lettuce.core.*;
import io.lettuce.core.cluster.*;
import io.lettuce.core.internal.HostAndPort;
import io.lettuce.core.resource.*;
import java.io.*;
import java.lang.reflect.*;
import java.time.Duration;
import java.util.*;
import java.util.concurrent.*;

/** The driver of the Java package: README.md beside has the lines. */
final class Driver {
    private static final Gson GSON = new GsonBuilder()
            .registerTypeAdapter(Duration.class, (JsonDeserializer<Duration>) (json, type, context) -> Duration.ofMillis(json.getAsLong()))
            .registerTypeAdapter(Duration.class, (JsonSerializer<Duration>) (time, type, context) -> new JsonPrimitive(time.toNanos() / 1e6))
            .registerTypeAdapter(LockOptions.Module.class, (JsonDeserializer<LockOptions.Module>) (json, type, context) -> LockOptions.Module.REQUIRED)
            .create();
    private static final ClientResources RESOURCES = ClientResources.builder().ioThreadPoolSize(2).computationThreadPoolSize(2).build();
    private static final Map<Integer, Request> REQUESTS = new ConcurrentHashMap<>();
    /** A lock is renewed as long as the thread lives that acquired it: these live on. */
    private static final Executor THREADS = new ThreadPoolExecutor(0, Integer.MAX_VALUE, 1, TimeUnit.DAYS, new SynchronousQueue<>());

    /** A request, with the fields of all operations, and what came of it. */
    private static final class Request {
        int id, of;
        String op, name, hooks;
        Map<String, JsonElement> options;
        boolean isTry, fail, ping;
        Duration lease, wait;
        Client client;
        Request inner;
        transient Locks made;
        transient AbstractRedisClient user;
        transient volatile Held hold;
        transient volatile Thread thread;
        final transient CompletableFuture<Void> left = new CompletableFuture<>();
    }

    private record Client(String kind, List<String> addrs, List<String> urls, Duration readTimeout, Map<String, String> tls, Map<String, String> map) {}

    private record Answer(int id, Object ok, Failure failed) {}

    private record Failure(String type, String code, String text, LockLost.Cause cause, String because, List<String> also) {}

    private static final class Body extends RuntimeException {}

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
        return r.hooks == null ? all : all.hooks((Hooks) Proxy.newProxyInstance(Driver.class.getClassLoader(), new Class<?>[] {Hooks.class}, (self, hook, events) -> {
            if (r.hooks.equals("fail")) {
                throw new Body();
            }
            say(Map.of("event", "hook", "locks", r.id, "hook", hook.getName().substring("on".length()).toLowerCase(), "with", events[0]));
            return null;
        }));
    }

    private static void make(Request r) throws ReflectiveOperationException {
        Client to = r.client;
        LockOptions options = options(r);
        String url = to.urls.get(0);
        String sentinels = url.replace("://", "-sentinel://").replace(to.addrs.get(0), String.join(",", to.addrs)) + "#locks";
        RedisURI at = RedisURI.create(to.kind.equals("sentinel") ? sentinels : url);
        at.setTimeout(to.readTimeout == null ? RedisURI.DEFAULT_TIMEOUT_DURATION : to.readTimeout);
        SslOptions ssl = to.tls == null ? SslOptions.create() : SslOptions.builder().trustManager(new File(to.tls.get("ca")))
                .keyManager(new File(to.tls.get("cert")), new File(to.tls.get("key")), new char[0]).build();
        ClusterClientOptions how = ClusterClientOptions.builder().sslOptions(ssl).build();
        ClientResources resources = to.map == null ? RESOURCES : RESOURCES.mutate().socketAddressResolver(MappingSocketAddressResolver.create(
                DnsResolver.unresolved(), each -> HostAndPort.parse(to.map.getOrDefault(each.toString(), each.toString())))).build();
        if (to.kind.equals("cluster")) {
            RedisClusterClient client = RedisClusterClient.create(resources, at);
            client.setOptions(how);
            r.made = Locks.of(client, options);
            r.user = client;
        } else {
            RedisClient client = RedisClient.create(resources, at);
            client.setOptions(how);
            r.made = Locks.of(client, at, options);
            r.user = client;
        }
    }

    private static Object inside(Request r, Held held) {
        r.hold = held;
        return held == null ? null : Map.of("event", "inside", "id", r.id, "token", held.token(), "owner", held.owner());
    }

    private static void block(Request r, Locks locks) throws Exception {
        try (Held held = locks.acquire(r.name, options(r))) {
            say(inside(r, held));
            if (r.inner != null) {
                answer(r.inner);
            }
            r.left.get();
            if (r.fail) {
                throw new Body();
            }
        }
    }

    private static Object operate(Request r) throws Exception {
        Request of = REQUESTS.get(r.of);
        Object ok = null;
        switch (r.op) {
            case "new" -> make(r);
            case "acquire", "abandon" -> ok = inside(r, r.isTry ? of.made.tryAcquire(r.name, options(r)).orElse(null) : of.made.acquire(r.name, options(r)));
            case "block" -> block(r, of.made);
            case "leave" -> of.left.complete(null);
            case "renew" -> ok = Map.of("lease", r.lease == null ? of.hold.renew() : of.hold.renew(r.lease));
            case "release" -> of.hold.release();
            case "lost" -> ok = of.hold.lost().copy().completeOnTimeout(null, r.wait.toMillis(), TimeUnit.MILLISECONDS)
                    .thenApply(lost -> Map.of("cause", lost == null ? "" : lost.cause().name())).get();
            case "cancel" -> of.thread.interrupt();
            case "info" -> ok = of.made.info(r.name);
            case "native" -> ok = of.made.isNative().map(is -> Map.of("native", is)).orElse(null);
            case "close" -> {
                of.made.close();
                ok = !r.ping ? null : of.user instanceof RedisClient one ? one.connect().sync().ping() : ((RedisClusterClient) of.user).connect().sync().ping();
                of.user.shutdown();
            }
            default -> throw new UnsupportedOperationException(r.op);
        }
        return ok;
    }

    private static void answer(Request r) {
        r.thread = Thread.currentThread();
        REQUESTS.put(r.id, r);
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

    public static void main(String[] arguments) {
        new BufferedReader(new InputStreamReader(System.in)).lines().forEach(line -> {
            Request request = GSON.fromJson(line, Request.class);
            Executor threads = request.op.equals("abandon") ? work -> new Thread(work).start() : THREADS;
            threads.execute(() -> answer(request));
        });
        System.exit(0);
    }
}
