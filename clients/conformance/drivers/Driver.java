import com.google.gson.*;
import fairlock.*;
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
        boolean fail, ping;
        Duration lease, wait;
        Client client;
        Request inner;
        transient Locks made;
        transient AbstractRedisClient user;
        transient volatile Held hold;
        /** Its wait, or its block. */
        transient volatile Runnable end;
    }

    private record Client(String kind, String url, Duration readTimeout, Map<String, String> tls, Map<String, String> map) {}
    private record Answer(int id, Object ok, Failure failed) {}
    private record Failure(String type, String code, String text, FairlockException.LockLost.Cause cause, String because, List<String> also) {}
    private static final class Body extends RuntimeException {}

    private static LockOptions options(Request r) throws ReflectiveOperationException {
        LockOptions all = LockOptions.options();
        for (Method each : LockOptions.class.getMethods()) {
            if (each.getReturnType() == LockOptions.class && r.options.containsKey(each.getName())) {
                all = (LockOptions) each.invoke(all, (Object) GSON.fromJson(r.options.get(each.getName()), each.getParameterTypes()[0]));
            }
        }
        return r.hooks == null ? all : all.hooks((Hooks) Proxy.newProxyInstance(Driver.class.getClassLoader(), new Class<?>[] {Hooks.class}, (self, hook, events) -> {
            if (r.hooks.equals("fail")) {
                throw new AssertionError("a hook");
            }
            System.out.println(GSON.toJson(Map.of("event", "hook", "locks", r.id, "hook", hook.getName(), "with", events[0])));
            return null;
        }));
    }

    private static void make(Request r, Client to) throws ReflectiveOperationException {
        RedisURI at = RedisURI.create(to.url);
        at.setTimeout(to.readTimeout == null ? RedisURI.DEFAULT_TIMEOUT_DURATION : to.readTimeout);
        SslOptions ssl = to.tls == null ? SslOptions.create() : SslOptions.builder().trustManager(new File(to.tls.get("ca")))
                .keyManager(new File(to.tls.get("cert")), new File(to.tls.get("key")), new char[0]).build();
        ClusterClientOptions how = ClusterClientOptions.builder().sslOptions(ssl).build();
        ClientResources resources = to.map == null ? RESOURCES : RESOURCES.mutate().socketAddressResolver(MappingSocketAddressResolver.create(
                DnsResolver.unresolved(), each -> HostAndPort.parse(to.map.get(each.toString())))).build();
        if (to.kind.equals("cluster")) {
            RedisClusterClient client = RedisClusterClient.create(resources, at);
            client.setOptions(how);
            r.made = Locks.of(client, options(r));
            r.user = client;
        } else {
            RedisClient client = RedisClient.create(resources, at);
            client.setOptions(how);
            r.made = Locks.of(client, at, options(r));
            r.user = client;
        }
    }

    private static Object inside(Request r, Held held) {
        r.hold = held;
        return Map.of("event", "inside", "id", r.id, "token", held.token(), "owner", held.owner());
    }

    private static void block(Request r, Locks locks) throws Exception {
        try (Held held = locks.acquire(r.name, options(r))) {
            CountDownLatch left = new CountDownLatch(1);
            r.end = left::countDown;
            System.out.println(GSON.toJson(inside(r, held)));
            Optional.ofNullable(r.inner).ifPresent(Driver::answer);
            left.await();
            if (r.fail) {
                throw new Body();
            }
        }
    }

    private static Object operate(Request r) throws Exception {
        Request of = REQUESTS.get(r.of);
        Object ok = null;
        switch (r.op) {
            case "new" -> make(r, r.client);
            case "acquire", "abandon" -> ok = inside(r, of.made.acquire(r.name, options(r)));
            case "tryAcquire" -> ok = of.made.tryAcquire(r.name, options(r)).map(held -> inside(r, held)).orElse(null);
            case "block" -> block(r, of.made);
            case "renew" -> ok = Map.of("lease", r.lease == null ? of.hold.renew() : of.hold.renew(r.lease));
            case "release" -> of.hold.release();
            case "lost" -> ok = of.hold.lost().copy().completeOnTimeout(null, r.wait.toMillis(), TimeUnit.MILLISECONDS)
                    .thenApply(lost -> Map.of("cause", lost == null ? "" : lost.cause().name())).get();
            case "end" -> of.end.run();
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
        r.end = Thread.currentThread()::interrupt;
        REQUESTS.put(r.id, r);
        Object ok = null;
        Failure failed = null;
        try {
            ok = operate(r);
        } catch (Throwable thrown) {
            Throwable error = thrown instanceof InvocationTargetException ? thrown.getCause() : thrown;
            failed = new Failure(error.getClass().getSimpleName(), error instanceof FairlockException ours ? ours.code() : null,
                    String.valueOf(error.getMessage()), error instanceof FairlockException.LockLost lost ? lost.cause() : null,
                    error.getCause() == null ? null : String.valueOf(error.getCause().getMessage()),
                    Arrays.stream(error.getSuppressed()).map(Throwable::getMessage).toList());
        }
        System.out.println(GSON.toJson(new Answer(r.id, ok, failed)));
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
