import com.google.gson.Gson;
import com.google.gson.GsonBuilder;
import com.google.gson.JsonPrimitive;
import com.google.gson.JsonSerializer;
import com.google.gson.annotations.SerializedName;
import fairlock.FairlockException;
import fairlock.FairlockException.LockLost;
import fairlock.FairlockException.LockLost.Cause;
import fairlock.Held;
import fairlock.Hooks;
import fairlock.LockEvent;
import fairlock.LockInfo;
import fairlock.LockOptions;
import fairlock.Locks;
import io.lettuce.core.AbstractRedisClient;
import io.lettuce.core.ClientOptions;
import io.lettuce.core.RedisClient;
import io.lettuce.core.RedisException;
import io.lettuce.core.RedisURI;
import io.lettuce.core.SslOptions;
import io.lettuce.core.cluster.ClusterClientOptions;
import io.lettuce.core.cluster.RedisClusterClient;
import io.lettuce.core.internal.HostAndPort;
import io.lettuce.core.resource.ClientResources;
import io.lettuce.core.resource.DnsResolver;
import io.lettuce.core.resource.MappingSocketAddressResolver;
import java.io.BufferedReader;
import java.io.File;
import java.io.InputStreamReader;
import java.lang.reflect.Proxy;
import java.time.Duration;
import java.util.Arrays;
import java.util.HashMap;
import java.util.List;
import java.util.Locale;
import java.util.Map;
import java.util.concurrent.BlockingQueue;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.LinkedBlockingQueue;
import java.util.concurrent.TimeUnit;
import java.util.function.Supplier;

/** The driver of the Java package: README.md beside has the lines. Each operation runs in a thread of its own. */
final class Driver {
    private static final Gson GSON = new GsonBuilder().serializeNulls()
            .registerTypeAdapter(Duration.class, (JsonSerializer<Duration>) (time, type, context) -> new JsonPrimitive(time.toNanos() / 1e9))
            .registerTypeAdapter(Cause.class, (JsonSerializer<Cause>) (cause, type, context) -> new JsonPrimitive(cause.name().toLowerCase(Locale.ROOT)))
            .create();
    private static final Map<Integer, Made> LOCKS = new ConcurrentHashMap<>();
    private static final Map<Integer, Held> HOLDS = new ConcurrentHashMap<>();
    private static final Map<Integer, BlockingQueue<Boolean>> BLOCKS = new ConcurrentHashMap<>();
    private static final Map<Integer, Thread> CALLS = new ConcurrentHashMap<>();

    private record Made(Locks locks, AbstractRedisClient user, Runnable ping) {}

    /** A request, with the fields of all operations. */
    private record Request(int id, String op, int locks, int held, int block, int call, Object name, Map<String, Object> options,
            Map<String, Object> inner, @SerializedName("try") boolean isTry, boolean fail, Double lease,
            @SerializedName("wait") double longest, String hooks, Client client) {}

    private record Client(String kind, List<String> at, String user, String password, Double timeout, Map<String, String> tls, Map<String, String> map) {}

    private static final class Body extends RuntimeException {}

    /** Names and their values in turn, which may be null. */
    private static Map<String, Object> fields(Object... pairs) {
        Map<String, Object> fields = new HashMap<>();
        for (int at = 0; at < pairs.length; at += 2) {
            fields.put((String) pairs[at], pairs[at + 1]);
        }
        return fields;
    }

    private static synchronized void say(Map<String, Object> line) {
        System.out.println(GSON.toJson(line));
    }

    private static Duration seconds(Object value) { // What is too long becomes the longest.
        return value == null ? null : Duration.ofSeconds(((Number) value).longValue(), Math.round(((Number) value).doubleValue() % 1 * 1e9));
    }

    /** What does not compile is a ClassCastException. */
    private static Integer whole(Object value) {
        if (value != null && (Double) value != ((Double) value).intValue()) {
            throw new ClassCastException("an Integer is not " + value);
        }
        return value == null ? null : ((Double) value).intValue();
    }

    private static LockOptions options(Map<String, Object> given) {
        LockOptions all = LockOptions.options();
        for (Map.Entry<String, Object> each : given == null ? Map.<String, Object>of().entrySet() : given.entrySet()) {
            Object value = each.getValue();
            all = switch (each.getKey()) {
                case "wait" -> all.wait(seconds(value));
                case "lease" -> all.lease(seconds(value));
                case "renew" -> all.renew((Boolean) value);
                case "session" -> all.session((Boolean) value);
                case "owner" -> all.owner((String) value);
                case "reentrant" -> all.reentrant((Boolean) value);
                case "shared" -> all.shared((Boolean) value);
                case "limit" -> all.limit(whole(value));
                case "min_replicas" -> all.minReplicas(whole(value));
                case "sync_timeout" -> all.syncTimeout(seconds(value));
                case "patience" -> all.patience(seconds(value));
                case "module" -> all.module(LockOptions.Module.valueOf(((String) value).toUpperCase(Locale.ROOT)));
                case "retry_timeout" -> all.retryTimeout(seconds(value));
                case "command_timeout" -> all.commandTimeout(seconds(value));
                case "release_timeout" -> all.releaseTimeout(seconds(value));
                default -> throw new ClassCastException("no such option compiles: " + each.getKey());
            };
        }
        return all;
    }

    private static Made made(Request r) {
        Client given = r.client;
        LockOptions options = r.hooks == null ? options(r.options) : options(r.options).hooks(hooks(r));
        if (given.at == null) {
            return new Made(Locks.of((RedisClient) (given.kind.equals("text") ? (Object) "text" : null), RedisURI.create("redis://localhost"), options), null, null);
        }
        List<HostAndPort> nodes = given.at.stream().map(HostAndPort::parse).toList();
        RedisURI.Builder uri = RedisURI.Builder.redis(nodes.get(0).getHostText(), nodes.get(0).getPort());
        if (given.kind.equals("sentinel")) {
            uri = RedisURI.builder().withSentinelMasterId("locks");
            for (HostAndPort each : nodes) {
                uri.withSentinel(each.getHostText(), each.getPort());
            }
        }
        if (given.password != null) {
            uri = given.user == null ? uri.withPassword(given.password.toCharArray()) : uri.withAuthentication(given.user, given.password.toCharArray());
        }
        if (given.timeout != null) {
            uri.withTimeout(seconds(given.timeout));
        }
        SslOptions.Builder ssl = SslOptions.builder().jdkSslProvider();
        if (given.tls != null) {
            ssl.trustManager(new File(given.tls.get("ca"))).keyManager(new File(given.tls.get("cert")), new File(given.tls.get("key")), new char[0]);
            uri.withSsl(true);
        }
        ClientResources.Builder resources = ClientResources.builder().ioThreadPoolSize(2).computationThreadPoolSize(2);
        if (given.map != null) {
            resources.socketAddressResolver(MappingSocketAddressResolver.create(DnsResolver.unresolved(),
                    at -> HostAndPort.parse(given.map.getOrDefault(at.toString(), at.toString()))));
        }
        if (given.kind.equals("cluster")) {
            RedisClusterClient client = RedisClusterClient.create(resources.build(), uri.build());
            client.setOptions(ClusterClientOptions.builder().sslOptions(ssl.build()).build());
            return made(client, () -> Locks.of(client, options), () -> client.connect().sync().ping());
        }
        RedisClient client = RedisClient.create(resources.build(), uri.build());
        client.setOptions(ClientOptions.builder().sslOptions(ssl.build()).build());
        RedisURI at = uri.build();
        return made(client, () -> Locks.of(client, at, options), () -> client.connect().sync().ping());
    }

    private static Made made(AbstractRedisClient client, Supplier<Locks> locks, Runnable ping) {
        try {
            return new Made(locks.get(), client, ping);
        } catch (RuntimeException refused) {
            shutDown(client);
            throw refused;
        }
    }

    private static Hooks hooks(Request r) {
        return (Hooks) Proxy.newProxyInstance(Driver.class.getClassLoader(), new Class<?>[] {Hooks.class}, (self, hook, arguments) -> {
            if (r.hooks.equals("fail")) {
                throw new Body();
            }
            LockEvent event = (LockEvent) arguments[0];
            say(fields("event", "hook", "locks", r.id, "hook", hook.getName().substring("on".length()).toLowerCase(Locale.ROOT), "name", event.name(),
                    "owner", event.owner(), "token", event.token(), "waited", event.waited(), "held", event.held(), "cause", event.cause()));
            return null;
        });
    }

    /** In a block of its own, which is left when the suite says so. */
    private static void block(Request r) throws InterruptedException {
        Locks locks = LOCKS.get(r.locks).locks;
        BLOCKS.put(r.id, new LinkedBlockingQueue<>());
        try (Held held = locks.acquire((String) r.name, options(r.options))) {
            HOLDS.put(r.id, held);
            Long inner = null;
            if (r.inner != null) {
                try (Held again = locks.acquire((String) r.name, options(r.inner))) {
                    inner = again.token();
                }
            }
            say(fields("event", "inside", "id", r.id, "token", held.token(), "owner", held.owner(), "inner", inner));
            if (BLOCKS.get(r.id).take()) {
                throw new Body();
            }
        }
    }

    /** The answer; null: there is no such operation. */
    private static Map<String, Object> operate(Request r) throws Exception {
        Made made = LOCKS.get(r.locks);
        Held held = HOLDS.get(r.held);
        switch (r.op) {
            case "new" -> LOCKS.put(r.id, made(r));
            case "acquire", "abandon" -> {
                LockOptions options = options(r.options);
                held = r.isTry ? made.locks.tryAcquire((String) r.name, options).orElse(null) : made.locks.acquire((String) r.name, options);
                if (held != null) {
                    HOLDS.put(r.id, held);
                    return fields("token", held.token(), "owner", held.owner());
                }
            }
            case "block" -> block(r);
            case "leave" -> BLOCKS.get(r.block).add(r.fail);
            case "renew" -> {
                return fields("lease", r.lease == null ? held.renew() : held.renew(seconds(r.lease)));
            }
            case "release" -> {
                held.release();
                CALLS.get(r.held).interrupt(); // It has no lock to live for.
            }
            case "lost" -> {
                LockLost lost = held.lost().copy().completeOnTimeout(null, (long) (r.longest * 1000), TimeUnit.MILLISECONDS).get();
                return fields("cause", lost == null ? null : lost.cause());
            }
            case "cancel" -> CALLS.get(r.call).interrupt();
            case "info" -> {
                LockInfo info = made.locks.info((String) r.name);
                return fields("owner", info.owner(), "holds", info.holds(), "lease", info.lease() > 0 ? info.lease() / 1000.0 : null,
                        "token", info.token(), "session", info.session(), "waiting", info.waiting(), "holders", info.holders(),
                        "limit", info.limit() > 0 ? info.limit() : null);
            }
            case "native" -> {
                return fields("native", made.locks.isNative().orElse(null));
            }
            case "close" -> close(LOCKS.remove(r.locks));
            default -> {
                return null;
            }
        }
        return Map.of();
    }

    /** As a user who goes on with the client. */
    private static void close(Made made) {
        made.locks.close();
        try {
            made.ping.run();
        } catch (RedisException e) { // Its server may be down.
            if (String.valueOf(e.getMessage()).contains("closed")) {
                throw e;
            }
        }
        shutDown(made.user);
    }

    private static void shutDown(AbstractRedisClient client) {
        client.shutdown();
        client.getResources().shutdown(); // They were made for it.
    }

    private static Map<String, Object> failed(Throwable error) {
        String type = error.getClass().getSimpleName().replaceFirst("Exception$", "");
        type = Map.of("IllegalArgument", "Argument", "Interrupted", "Cancelled").getOrDefault(type, type);
        return fields("type", type, "code", error instanceof FairlockException ours ? ours.code() : null, "text", String.valueOf(error.getMessage()),
                "cause", error instanceof LockLost lost ? lost.cause() : null,
                "because", error.getCause() == null ? null : String.valueOf(error.getCause().getMessage()),
                "also", Arrays.stream(error.getSuppressed()).map(Throwable::getMessage).toList());
    }

    private static void answer(Request r) {
        try {
            Map<String, Object> ok = operate(r);
            say(fields("id", r.id, ok == null ? "unknown" : "ok", ok == null ? r.op : ok));
        } catch (ClassCastException why) {
            say(fields("id", r.id, "na", "the package's types: " + why.getMessage()));
        } catch (Throwable error) {
            say(fields("id", r.id, "failed", failed(error)));
        }
        Held held = HOLDS.get(r.op.equals("renew") ? r.held : r.id);
        if (held != null && !r.op.equals("abandon")) { // A lock is renewed as long as the thread lives that acquired it, or renewed it last.
            try {
                held.lost().get();
            } catch (InterruptedException | ExecutionException e) {
                // Released.
            }
        }
    }

    public static void main(String[] arguments) throws Exception {
        BufferedReader lines = new BufferedReader(new InputStreamReader(System.in));
        for (String line = lines.readLine(); line != null; line = lines.readLine()) {
            Request request = GSON.fromJson(line, Request.class);
            Thread thread = new Thread(() -> answer(request));
            thread.setDaemon(true);
            CALLS.put(request.id, thread);
            thread.start();
        }
        System.exit(0);
    }
}
