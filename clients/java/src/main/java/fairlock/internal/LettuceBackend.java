package fairlock.internal;

import io.lettuce.core.AbstractRedisClient;
import io.lettuce.core.ClientOptions;
import io.lettuce.core.RedisChannelHandler;
import io.lettuce.core.RedisClient;
import io.lettuce.core.RedisCommandExecutionException;
import io.lettuce.core.RedisConnectionStateListener;
import io.lettuce.core.RedisException;
import io.lettuce.core.RedisURI;
import io.lettuce.core.SocketOptions;
import io.lettuce.core.TimeoutOptions;
import io.lettuce.core.api.StatefulConnection;
import io.lettuce.core.api.StatefulRedisConnection;
import io.lettuce.core.cluster.RedisClusterClient;
import io.lettuce.core.codec.StringCodec;
import io.lettuce.core.output.NestedMultiOutput;
import io.lettuce.core.protocol.CommandArgs;
import io.lettuce.core.protocol.ProtocolKeyword;
import io.lettuce.core.protocol.ProtocolVersion;
import io.lettuce.core.pubsub.RedisPubSubAdapter;
import io.lettuce.core.pubsub.RedisPubSubListener;
import io.lettuce.core.pubsub.StatefulRedisPubSubConnection;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.CompletionException;
import java.util.concurrent.CompletionStage;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicBoolean;
import java.util.stream.Stream;

/**
 * Connections by Lettuce, as the user's client makes them: its resources, socket and TLS options, and the addresses,
 * credentials and database of the URI. They never connect again by themselves: the package asks again with the same owner.
 */
public final class LettuceBackend implements Backend {
    private final RedisClient own;
    private final RedisClusterClient cluster;
    private final Duration longest;
    private final Route route;
    /** The URI of the one server, or of a node, the model for the others; null: the cluster was not asked yet. */
    private volatile RedisURI uri;
    private final Map<Address, RedisURI> sentinels = new ConcurrentHashMap<>();
    /** Connections that are being closed. */
    private final Set<CompletableFuture<Void>> ending = ConcurrentHashMap.newKeySet();

    /** One server, or the master that Sentinels name. */
    public LettuceBackend(RedisClient client, RedisURI theirs, Duration longest) {
        this(longest, given("a RedisClient", client), null, routeOf(given("a RedisURI", theirs)));
        uri = ours(theirs);
        theirs.getSentinels().forEach(each -> sentinels.put(address(each), ours(each)));
    }

    /** The nodes of a cluster. */
    public LettuceBackend(RedisClusterClient client, Duration longest) {
        this(longest, given("a RedisClusterClient", client), client, Route.cluster());
    }

    private LettuceBackend(Duration longest, AbstractRedisClient client, RedisClusterClient cluster, Route route) {
        checkVersion();
        this.cluster = cluster;
        this.longest = longest;
        this.route = route;
        own = RedisClient.create(client.getResources());
        ClientOptions theirs = client.getOptions();
        own.setOptions(ClientOptions.builder()
                .sslOptions(theirs.getSslOptions())
                .socketOptions(SocketOptions.builder()
                        .connectTimeout(longest)
                        .keepAlive(true)
                        .tcpNoDelay(true)
                        .build())
                .protocolVersion(ProtocolVersion.RESP2)
                .autoReconnect(false)
                .timeoutOptions(TimeoutOptions.builder().timeoutCommands(false).build())
                .build());
    }

    private static <T> T given(String what, T value) {
        if (value == null) {
            throw new IllegalArgumentException("Locks is made from " + what + " of Lettuce; this is null");
        }
        return value;
    }

    private static Route routeOf(RedisURI uri) {
        if (!uri.getSentinels().isEmpty() && uri.getSentinelMasterId() != null) {
            List<Address> all = uri.getSentinels().stream().map(LettuceBackend::address).toList();
            return Route.sentinels(all, uri.getSentinelMasterId());
        }
        if (uri.getSocket() == null && uri.getHost() == null) {
            throw new IllegalArgumentException("the RedisURI has neither a host, nor Sentinels and the name of their master");
        }
        return Route.one(address(uri));
    }

    private static Address address(RedisURI uri) {
        return uri.getSocket() != null ? new Address(uri.getSocket(), 0) : new Address(uri.getHost(), uri.getPort());
    }

    /** Older releases have no sharded subscriptions. A program's other dependencies may have chosen one. */
    private static void checkVersion() {
        boolean isOld =
                Stream.of(RedisPubSubListener.class.getMethods()).noneMatch(each -> each.getName().equals("smessage"));
        if (isOld) {
            String version = RedisClient.class.getPackage().getImplementationVersion();
            throw new IllegalStateException("fairlock needs Lettuce 6.4 or newer; on the class path is " + version);
        }
    }

    /** The same, with a connect timeout of its own: the user's read timeout does not apply. */
    private RedisURI ours(RedisURI theirs) {
        if (theirs.getSocket() != null) {
            return theirs;
        }
        // A URI with Sentinels has no host, and needs one.
        String host = theirs.getHost() == null ? "localhost" : theirs.getHost();
        return RedisURI.builder(theirs).withTimeout(longest).withHost(host).withPort(theirs.getPort()).build();
    }

    @Override
    public CompletableFuture<Line> open(Address address) {
        return failing(own.connectAsync(StringCodec.UTF8, at(address)))
                .thenApply(line -> new LettuceLine(this, line, new AtomicBoolean()));
    }

    @Override
    public CompletableFuture<Ears> listen(Address address) {
        return failing(own.connectPubSubAsync(StringCodec.UTF8, at(address)))
                .thenApply(connection -> new LettuceEars(this, connection, route.isCluster));
    }

    private RedisURI at(Address address) {
        RedisURI like = sentinels.getOrDefault(address, uri);
        return address.port() == 0
                ? like
                : RedisURI.builder(like).withHost(address.host()).withPort(address.port()).build();
    }

    @Override
    public Route route() {
        return route;
    }

    /** The nodes as the user's client finds them: a cluster may be starting. */
    @Override
    public CompletableFuture<Void> ready() {
        if (cluster == null || uri != null) {
            return CompletableFuture.completedFuture(null);
        }
        return failing(cluster.refreshPartitionsAsync()).thenRun(() -> cluster.getPartitions().forEach(node -> {
            uri = ours(node.getUri());
            route.addGuide(address(uri));
        }));
    }

    /** Connections end first: Lettuce would close them once more, and warn of it. */
    @Override
    public void close() {
        CompletableFuture<Void> all = CompletableFuture.allOf(ending.toArray(new CompletableFuture<?>[0]));
        // Only for a moment, if this thread itself has to do the closing.
        all.completeOnTimeout(null, 1, TimeUnit.SECONDS).exceptionally(error -> null).join();
        own.shutdownAsync(0, 0, TimeUnit.SECONDS);
    }

    /** Translates a failure of Lettuce. */
    private static Failure failure(Throwable error) {
        Throwable cause = error;
        // A refusal while connecting (WRONGPASS, LOADING) is the cause of Lettuce's exception, and so is an error of
        // the program, such as an incompatible class.
        for (Throwable each = error; each != null; each = each.getCause()) {
            if (each instanceof Error bug) {
                throw bug;
            }
            if (each instanceof RedisCommandExecutionException) {
                return Failure.refusal(each.getMessage());
            }
            cause = each;
        }
        return Failure.broken(cause.getMessage() == null ? cause.toString() : cause.getMessage(), error);
    }

    private static <T> CompletableFuture<T> failing(CompletionStage<T> stage) {
        return stage.handle((value, error) -> {
                    if (error != null) {
                        throw new CompletionException(failure(error));
                    }
                    return value;
                })
                .toCompletableFuture();
    }

    private static void onClosed(StatefulConnection<String, String> connection, Runnable work) {
        connection.addListener(new RedisConnectionStateListener() {
            @Override
            public void onRedisDisconnected(RedisChannelHandler<?, ?> which) {
                work.run();
            }
        });
        if (!connection.isOpen()) {
            work.run();
        }
    }

    /** Once: Lettuce warns of more. */
    private void close(StatefulConnection<String, String> connection, AtomicBoolean isClosed) {
        if (isClosed.compareAndSet(false, true)) {
            CompletableFuture<Void> end = connection.closeAsync();
            ending.add(end);
            end.whenComplete((nothing, error) -> ending.remove(end));
        }
    }

    private record LettuceLine(
            LettuceBackend home, StatefulRedisConnection<String, String> connection, AtomicBoolean isClosed)
            implements Line {
        @Override
        public CompletableFuture<List<Object>> call(Object... words) {
            CommandArgs<String, String> arguments = new CommandArgs<>(StringCodec.UTF8);
            for (int index = 1; index < words.length; index++) {
                arguments.add(words[index].toString());
            }
            ProtocolKeyword command = new Keyword(words[0].toString().getBytes(StandardCharsets.US_ASCII));
            try {
                return failing(connection.async()
                        .dispatch(command, new NestedMultiOutput<>(StringCodec.UTF8), arguments));
            } catch (RedisException error) {
                return CompletableFuture.failedFuture(failure(error));
            }
        }

        @Override
        public void onClosed(Runnable work) {
            LettuceBackend.onClosed(connection, work);
        }

        @Override
        public void close() {
            home.close(connection, isClosed);
        }
    }

    private record Keyword(byte[] bytes) implements ProtocolKeyword {
        @Override
        public byte[] getBytes() {
            return bytes;
        }

        /** Lettuce 6.4 asks for it. */
        @Override
        @Deprecated
        public String name() {
            return toString();
        }

        @Override
        public String toString() {
            return new String(bytes, StandardCharsets.US_ASCII);
        }
    }

    /** One connection for the wake-ups of all callers. */
    private static final class LettuceEars extends RedisPubSubAdapter<String, String> implements Ears {
        private record Ear(Runnable wake, CompletableFuture<Void> begun) {}

        private final LettuceBackend home;
        private final StatefulRedisPubSubConnection<String, String> connection;
        private final boolean isSharded;
        private final AtomicBoolean isClosed = new AtomicBoolean();
        private final Map<String, Ear> ears = new ConcurrentHashMap<>();

        LettuceEars(
                LettuceBackend home, StatefulRedisPubSubConnection<String, String> connection, boolean isSharded) {
            this.home = home;
            this.connection = connection;
            this.isSharded = isSharded;
            connection.addListener(this);
            LettuceBackend.onClosed(connection, () -> ears.keySet().forEach(this::end));
        }

        @Override
        public CompletableFuture<Void> add(String channel, Runnable wake) {
            Ear ear = new Ear(wake, new CompletableFuture<>());
            ears.put(channel, ear);
            try {
                failing(isSharded ? connection.async().ssubscribe(channel) : connection.async().subscribe(channel))
                        .whenComplete((nothing, error) -> {
                            if (error != null) {
                                ears.remove(channel, ear);
                                ear.begun.completeExceptionally(error.getCause() == null ? error : error.getCause());
                            }
                        });
            } catch (RedisException error) {
                ears.remove(channel, ear);
                ear.begun.completeExceptionally(failure(error));
            }
            if (!connection.isOpen()) {
                end(channel);
            }
            return ear.begun;
        }

        @Override
        public void remove(String channel) {
            if (ears.remove(channel) != null && connection.isOpen()) {
                try {
                    if (isSharded) {
                        connection.async().sunsubscribe(channel);
                    } else {
                        connection.async().unsubscribe(channel);
                    }
                } catch (RedisException error) {
                    // The connection has ended, and the subscription with it.
                }
            }
        }

        @Override
        public boolean hears(String channel) {
            return ears.containsKey(channel) && connection.isOpen();
        }

        @Override
        public void close() {
            home.close(connection, isClosed);
        }

        private void end(String channel) {
            Ear ear = ears.remove(channel);
            if (ear != null) {
                ear.begun.completeExceptionally(Failure.broken("the subscription has ended", null));
                ear.wake.run();
            }
        }

        private void begin(String channel) {
            Ear ear = ears.get(channel);
            if (ear != null) {
                ear.begun.complete(null);
            }
        }

        private void hear(String channel) {
            Ear ear = ears.get(channel);
            if (ear != null) {
                ear.wake.run();
            }
        }

        @Override
        public void message(String channel, String message) {
            hear(channel);
        }

        @Override
        public void smessage(String channel, String message) {
            hear(channel);
        }

        @Override
        public void subscribed(String channel, long count) {
            begin(channel);
        }

        @Override
        public void ssubscribed(String channel, long count) {
            begin(channel);
        }

        /** The server does so when the slot moves: the waiter asks, and learns where it is now. */
        @Override
        public void sunsubscribed(String channel, long count) {
            end(channel);
        }
    }
}
