import com.google.gson.Gson;
import com.google.gson.GsonBuilder;
import com.google.gson.JsonPrimitive;
import com.google.gson.JsonSerializer;
import com.google.gson.annotations.SerializedName;
import fairlock.FairlockException;
import fairlock.Held;
import fairlock.Hooks;
import fairlock.LockEvent;
import fairlock.LockInfo;
import fairlock.LockLostException;
import fairlock.LockLostException.Cause;
import fairlock.LockOptions;
import fairlock.Locks;
import fairlock.LocksBuilder;
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
import java.util.function.Function;

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

    /** A Locks, and what its user does with the client; null: there is none. */
    private record Made(Locks locks, Runnable ping, AbstractRedisClient user) {}

    /** A request, with the fields of all operations. */
    private record Request(int id, String op, int locks, int held, int block, int call, Object name, Map<String, Object> options,
            Map<String, Object> inner, @SerializedName("try") boolean isTry, boolean fail, Double lease,
            @SerializedName("wait") double longest, String hooks, Client client) {}

    private record Client(String kind, List<String> at, String user, String password, Double timeout, Tls tls, Map<String, String> map) {}

    private record Tls(String ca, String cert, String key) {}

    private static final class NotApplicable extends RuntimeException {
        NotApplicable(String why) {
            super(why);
        }
    }

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
        double number = ((Number) value).doubleValue();
        return Duration.ofSeconds((long) number, Math.round(number % 1 * 1e9));
    }

    /** As an int. Another number does not compile. */
    private static Integer whole(Object number) {
        double value = (Double) number;
        if (value != Math.rint(value) || Math.abs(value) > Integer.MAX_VALUE) {
            throw new NotApplicable("an Integer is not " + value);
        }
        return (int) value;
    }

    private static LockOptions options(Map<String, Object> given) {
        LockOptions all = LockOptions.options();
        for (Map.Entry<String, Object> each : given == null ? Map.<String, Object>of().entrySet() : given.entrySet()) {
            Object value = each.getValue();
            all = switch (each.getKey()) {
                case "wait" -> all.wait(value == null ? null : seconds(value));
                case "lease" -> all.lease(seconds(value));
                case "renew" -> all.renew((Boolean) value);
                case "session" -> all.session((Boolean) value);
                case "owner" -> all.owner((String) value);
                case "reentrant" -> all.reentrant((Boolean) value);
                case "shared" -> all.shared((Boolean) value);
                case "limit" -> all.limit(value == null ? null : whole(value));
                case "min_replicas" -> all.minReplicas(value == null ? null : whole(value));
                case "sync_timeout" -> all.syncTimeout(seconds(value));
                case "patience" -> all.patience(seconds(value));
                case "module" -> all.module(module((String) value));
                default -> throw new NotApplicable("no such option compiles: " + each.getKey());
            };
        }
        return all;
    }

    private static LockOptions.Module module(String name) {
        try {
            return LockOptions.Module.valueOf(name.toUpperCase(Locale.ROOT));
        } catch (IllegalArgumentException e) {
            throw new NotApplicable("no such Module compiles: " + name);
        }
    }

    private static Made made(Request r) {
        Client given = r.client;
        LocksBuilder builder;
        Runnable ping = null;
        AbstractRedisClient user = null;
        if (given.kind.equals("nothing")) {
            builder = Locks.builder(null, RedisURI.create("redis://127.0.0.1"));
        } else if (given.kind.equals("text")) {
            throw new NotApplicable("a client that is a text does not compile");
        } else {
            List<HostAndPort> nodes = given.at.stream().map(HostAndPort::parse).toList();
            HostAndPort first = nodes.get(0);
            RedisURI.Builder uri = RedisURI.Builder.redis(first.getHostText(), first.getPort());
            if (given.kind.equals("sentinel")) {
                uri = RedisURI.builder().withSentinelMasterId("locks");
                for (HostAndPort each : nodes) {
                    uri.withSentinel(each.getHostText(), each.getPort());
                }
            }
            if (given.password != null) {
                uri = given.user == null ? uri.withPassword(given.password.toCharArray())
                        : uri.withAuthentication(given.user, given.password.toCharArray());
            }
            if (given.timeout != null) {
                uri.withTimeout(seconds(given.timeout));
            }
            SslOptions ssl = SslOptions.create();
            if (given.tls != null) {
                ssl = SslOptions.builder().jdkSslProvider().trustManager(new File(given.tls.ca))
                        .keyManager(new File(given.tls.cert), new File(given.tls.key), new char[0]).build();
                uri.withSsl(true);
            }
            ClientResources.Builder resources = ClientResources.builder();
            if (given.map != null) {
                resources.socketAddressResolver(MappingSocketAddressResolver.create(DnsResolver.unresolved(),
                        at -> HostAndPort.parse(given.map.getOrDefault(at.toString(), at.toString()))));
            }
            ClientResources shared = resources.ioThreadPoolSize(2).computationThreadPoolSize(2).build();
            if (given.kind.equals("cluster")) {
                RedisClusterClient client = RedisClusterClient.create(shared, uri.build());
                client.setOptions(ClusterClientOptions.builder().sslOptions(ssl).build());
                builder = Locks.builder(client);
                ping = () -> client.connect().sync().ping();
                user = client;
            } else {
                RedisClient client = RedisClient.create(shared, uri.build());
                client.setOptions(ClientOptions.builder().sslOptions(ssl).build());
                builder = Locks.builder(client, uri.build());
                ping = () -> client.connect().sync().ping();
                user = client;
            }
        }
        Map<String, Object> own = new HashMap<>(r.options);
        Map<String, Function<Duration, LocksBuilder>> timeouts = Map.of("retry_timeout", builder::retryTimeout,
                "command_timeout", builder::commandTimeout, "release_timeout", builder::releaseTimeout);
        timeouts.forEach((option, set) -> {
            if (own.containsKey(option)) {
                set.apply(seconds(own.remove(option)));
            }
        });
        builder.defaults(options(own));
        if (r.hooks != null) {
            builder.hooks(hooks(r));
        }
        return new Made(builder.build(), ping, user);
    }

    private static Hooks hooks(Request r) {
        return (Hooks) Proxy.newProxyInstance(Driver.class.getClassLoader(), new Class<?>[] {Hooks.class}, (self, hook, arguments) -> {
            if (r.hooks.equals("fail")) {
                throw new Body();
            }
            LockEvent event = (LockEvent) arguments[0];
            String which = hook.getName().substring("on".length()).toLowerCase(Locale.ROOT);
            say(fields("event", "hook", "locks", r.id, "hook", which, "name", event.name(), "owner", event.owner(), "token", event.token(),
                    "waited", event.waited(), "held", event.held(), "cause", event.cause()));
            return null;
        });
    }

    /** In a block of its own, which is left when the suite says so. */
    private static void block(Request r) throws InterruptedException {
        Locks locks = LOCKS.get(r.locks).locks;
        BlockingQueue<Boolean> left = new LinkedBlockingQueue<>();
        try (Held held = locks.acquire((String) r.name, options(r.options))) {
            HOLDS.put(r.id, held);
            BLOCKS.put(r.id, left);
            Long inner = null;
            if (r.inner != null) {
                try (Held again = locks.acquire((String) r.name, options(r.inner))) {
                    inner = again.token();
                }
            }
            say(fields("event", "inside", "id", r.id, "token", held.token(), "owner", held.owner(), "inner", inner));
            if (left.take()) {
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
                LockLostException lost = held.lost().copy().completeOnTimeout(null, (long) (r.longest * 1000), TimeUnit.MILLISECONDS).get();
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
            case "close" -> {
                LOCKS.remove(r.locks).locks.close();
                if (made.user != null) {
                    close(made);
                }
            }
            default -> {
                return null;
            }
        }
        return Map.of();
    }

    /** As a user who goes on with the client. */
    private static void close(Made made) {
        try {
            made.ping.run();
        } catch (RedisException e) { // Its server may be down.
            if (e.getMessage() != null && e.getMessage().contains("closed")) {
                throw e;
            }
        }
        made.user.shutdown();
    }

    private static Map<String, Object> failed(Throwable error) {
        String type = error.getClass().getSimpleName().replaceFirst("Exception$", "");
        type = Map.of("IllegalArgument", "Argument", "NullPointer", "Argument", "Interrupted", "Cancelled").getOrDefault(type, type);
        return fields("type", type, "code", error instanceof FairlockException ours ? ours.code() : null,
                "text", String.valueOf(error.getMessage()),
                "cause", error instanceof LockLostException lost ? lost.cause() : null,
                "because", error.getCause() == null ? null : String.valueOf(error.getCause().getMessage()),
                "also", Arrays.stream(error.getSuppressed()).map(Throwable::getMessage).toList());
    }

    private static void answer(Request r) {
        try {
            Map<String, Object> ok = operate(r);
            say(fields("id", r.id, ok == null ? "unknown" : "ok", ok == null ? r.op : ok));
        } catch (NotApplicable | ClassCastException why) {
            say(fields("id", r.id, "na", "the package's types: " + why.getMessage()));
        } catch (Throwable error) {
            say(fields("id", r.id, "failed", failed(error)));
        }
        Held held = HOLDS.get(r.op.equals("renew") ? r.held : r.id);
        if (held != null && !r.op.equals("abandon")) {
            live(held);
        }
    }

    /** A lock is renewed as long as the thread lives that acquired it, or renewed it last. */
    private static void live(Held held) {
        try {
            held.lost().get();
        } catch (InterruptedException | ExecutionException e) {
            // The driver need not know.
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
