import com.google.gson.Gson;
import com.google.gson.GsonBuilder;
import com.google.gson.JsonParser;
import com.google.gson.annotations.SerializedName;
import fairlock.FairlockException;
import fairlock.Held;
import fairlock.Hooks;
import fairlock.LockEvent;
import fairlock.LockInfo;
import fairlock.LockLostException;
import fairlock.LockOptions;
import fairlock.Locks;
import fairlock.LocksBuilder;
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
import java.math.BigDecimal;
import java.time.Duration;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Locale;
import java.util.Map;
import java.util.Optional;
import java.util.concurrent.BlockingQueue;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.LinkedBlockingQueue;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.TimeoutException;
import java.util.function.Function;

/** The driver of the Java package: README.md beside has the lines. Each operation runs in a thread of its own. */
final class Driver {
    private static final Gson GSON = new GsonBuilder().serializeNulls().create();
    private static final Map<Integer, Made> LOCKS = new ConcurrentHashMap<>();
    private static final Map<Integer, Held> HOLDS = new ConcurrentHashMap<>();
    private static final Map<Integer, BlockingQueue<Boolean>> BLOCKS = new ConcurrentHashMap<>();
    private static final Map<Integer, Thread> CALLS = new ConcurrentHashMap<>();

    /** A Locks, and what its user does with the client. */
    private record Made(Locks locks, Runnable ping, Runnable shutdown) {}

    /** A request, with the fields of all operations. */
    private record Request(int id, String op, int locks, int held, int block, int call, Object name, Map<String, Object> options,
            Map<String, Object> inner, boolean fail, Double lease, @SerializedName("wait") double longest, String hooks, Client client) {}

    private record Client(String kind, List<String> at, String user, String password, Double timeout, Tls tls, Map<String, String> map) {}

    private record Tls(String ca, String cert, String key) {}

    private static final class NotApplicable extends RuntimeException {
        private static final long serialVersionUID = 1;

        NotApplicable(String why) {
            super(why);
        }
    }

    private static final class Body extends RuntimeException {
        private static final long serialVersionUID = 1;
    }

    private static synchronized void say(Map<String, Object> line) {
        System.out.println(GSON.toJson(line));
    }

    private static Duration seconds(Object number) {
        BigDecimal nanos = new BigDecimal(((Number) number).doubleValue()).movePointRight(9).setScale(0, java.math.RoundingMode.HALF_UP);
        BigDecimal[] parts = nanos.divideAndRemainder(BigDecimal.TEN.pow(9));
        BigDecimal most = BigDecimal.valueOf(Long.MAX_VALUE);
        return Duration.ofSeconds(parts[0].min(most).max(most.negate()).longValue(), parts[1].longValue());
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
        Runnable ping = () -> {};
        Runnable shutdown = () -> {};
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
                shutdown = client::shutdown;
            } else {
                RedisClient client = RedisClient.create(shared, uri.build());
                client.setOptions(ClientOptions.builder().sslOptions(ssl).build());
                builder = Locks.builder(client, uri.build());
                ping = () -> client.connect().sync().ping();
                shutdown = client::shutdown;
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
        return new Made(builder.build(), ping, shutdown);
    }

    private static Hooks hooks(Request r) {
        return new Hooks() {
            private void tell(String which, LockEvent event) {
                if (r.hooks.equals("fail")) {
                    throw new Body();
                }
                Map<String, Object> line = new HashMap<>(Map.of("event", "hook", "locks", r.id, "hook", which, "name", event.name(), "owner", event.owner()));
                line.put("token", event.token());
                line.put("waited", event.waited() == null ? null : event.waited().toNanos() / 1e9);
                line.put("held", event.held() == null ? null : event.held().toNanos() / 1e9);
                line.put("cause", event.cause() == null ? null : event.cause().name().toLowerCase(Locale.ROOT));
                say(line);
            }

            @Override
            public void onWait(LockEvent event) {
                tell("wait", event);
            }

            @Override
            public void onAcquired(LockEvent event) {
                tell("acquired", event);
            }

            @Override
            public void onLost(LockEvent event) {
                tell("lost", event);
            }

            @Override
            public void onReleased(LockEvent event) {
                tell("released", event);
            }
        };
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
            Map<String, Object> line = new HashMap<>(Map.of("event", "inside", "id", r.id, "token", held.token(), "owner", held.owner()));
            line.put("inner", inner);
            say(line);
            if (left.take()) {
                throw new Body();
            }
        }
    }

    private static Map<String, Object> operate(Request r) throws Exception {
        switch (r.op) {
            case "new":
                LOCKS.put(r.id, made(r));
                return Map.of();
            case "acquire", "abandon":
                return acquired(r, LOCKS.get(r.locks).locks.acquire((String) r.name, options(r.options)));
            case "try":
                Optional<Held> got = LOCKS.get(r.locks).locks.tryAcquire((String) r.name, options(r.options));
                return got.isPresent() ? acquired(r, got.get()) : Map.of();
            case "block":
                block(r);
                return Map.of();
            case "leave":
                BLOCKS.get(r.block).add(r.fail);
                return Map.of();
            case "renew":
                Held held = HOLDS.get(r.held);
                return Map.of("lease", (r.lease == null ? held.renew() : held.renew(seconds(r.lease))).toMillis() / 1000.0);
            case "release":
                HOLDS.get(r.held).release();
                CALLS.get(r.held).interrupt(); // It has no lock to live for.
                return Map.of();
            case "lost":
                Map<String, Object> loss = new HashMap<>();
                try {
                    LockLostException lost = HOLDS.get(r.held).lost().get((long) (r.longest * 1000), TimeUnit.MILLISECONDS);
                    loss.put("cause", lost.cause().name().toLowerCase(Locale.ROOT));
                } catch (TimeoutException e) {
                    loss.put("cause", null);
                }
                return loss;
            case "cancel":
                CALLS.get(r.call).interrupt();
                return Map.of();
            case "info":
                LockInfo info = LOCKS.get(r.locks).locks.info((String) r.name);
                Map<String, Object> fields = new HashMap<>(Map.of("holds", info.holds(), "session", info.session(),
                        "waiting", info.waiting(), "holders", info.holders()));
                fields.put("owner", info.owner());
                fields.put("token", info.token());
                fields.put("lease", info.lease() > 0 ? info.lease() / 1000.0 : null);
                fields.put("limit", info.limit() > 0 ? info.limit() : null);
                return fields;
            case "native":
                Map<String, Object> answer = new HashMap<>();
                answer.put("native", LOCKS.get(r.locks).locks.isNative().orElse(null));
                return answer;
            case "close":
                Made made = LOCKS.remove(r.locks);
                made.locks.close();
                try {
                    made.ping.run();
                } catch (RedisException e) { // Its server may be down.
                    if (e.getMessage() != null && e.getMessage().contains("closed")) {
                        throw e;
                    }
                }
                made.shutdown.run();
                return Map.of();
            default:
                return null;
        }
    }

    private static Map<String, Object> acquired(Request r, Held held) {
        HOLDS.put(r.id, held);
        return Map.of("token", held.token(), "owner", held.owner());
    }

    private static Map<String, Object> failed(Throwable error) {
        Map<String, Object> failed = new HashMap<>();
        String type = error.getClass().getSimpleName().replaceFirst("Exception$", "");
        failed.put("type", switch (type) {
            case "IllegalArgument", "NullPointer" -> "Argument";
            case "Interrupted" -> "Cancelled";
            default -> type;
        });
        failed.put("code", error instanceof FairlockException ours ? ours.code() : null);
        failed.put("text", String.valueOf(error.getMessage()));
        failed.put("cause", error instanceof LockLostException lost ? lost.cause().name().toLowerCase(Locale.ROOT) : null);
        failed.put("because", error.getCause() == null ? null : String.valueOf(error.getCause().getMessage()));
        List<String> also = new ArrayList<>();
        for (Throwable each : error.getSuppressed()) {
            also.add(String.valueOf(each.getMessage()));
        }
        failed.put("also", also);
        return failed;
    }

    private static void answer(Request r) {
        Map<String, Object> line = new HashMap<>(Map.of("id", r.id));
        try {
            Map<String, Object> ok = operate(r);
            line.put(ok == null ? "unknown" : "ok", ok == null ? r.op : ok);
        } catch (NotApplicable why) {
            line.put("na", why.getMessage());
        } catch (ClassCastException why) {
            line.put("na", "the package's types: " + why.getMessage());
        } catch (Throwable error) {
            line.put("failed", failed(error));
        }
        say(line);
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
            var fields = JsonParser.parseString(line).getAsJsonObject();
            if (fields.has("try") && fields.get("try").getAsBoolean()) {
                fields.addProperty("op", "try");
            }
            Request request = GSON.fromJson(fields, Request.class);
            Thread thread = new Thread(() -> answer(request));
            thread.setDaemon(true);
            CALLS.put(request.id, thread);
            thread.start();
        }
        System.exit(0);
    }
}
