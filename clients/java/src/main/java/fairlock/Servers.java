package fairlock;

import static fairlock.Time.EVER;
import static fairlock.Time.now;
import static java.util.concurrent.CompletableFuture.completedFuture;
import static java.util.concurrent.CompletableFuture.failedFuture;

import io.lettuce.core.*;
import io.lettuce.core.api.StatefulConnection;
import io.lettuce.core.api.StatefulRedisConnection;
import io.lettuce.core.cluster.RedisClusterClient;
import io.lettuce.core.cluster.SlotHash;
import io.lettuce.core.cluster.api.StatefulRedisClusterConnection;
import io.lettuce.core.cluster.models.partitions.Partitions;
import io.lettuce.core.cluster.models.partitions.RedisClusterNode;
import io.lettuce.core.cluster.pubsub.StatefulRedisClusterPubSubConnection;
import io.lettuce.core.codec.StringCodec;
import io.lettuce.core.output.NestedMultiOutput;
import io.lettuce.core.output.StatusOutput;
import io.lettuce.core.protocol.*;
import io.lettuce.core.pubsub.StatefulRedisPubSubConnection;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.*;
import java.util.concurrent.*;
import java.util.function.Function;

/** What the user's client reaches: one server or the master that Sentinels name ({@code one}, {@code uri}), or a cluster. The others are null. */
final class Servers {
    /** Whether it has sharded channels: a cluster before Redis 7.0 has none. */
    volatile boolean isSharded;
    /** Nanoseconds for an answer that is given at once. */
    final long longest;
    /** For a connection: a cluster's topology, and each Sentinel that is down, take their time. */
    private final long connecting;
    private final RedisClient one;
    private final RedisURI uri;
    private final RedisClusterClient cluster;
    /** The connection for commands, the one for what replicas confirm, and the one that listens. */
    private final Map<String, Line> lines = new HashMap<>();
    /** Of each connection that is open: completes when it is closed. */
    private final Set<CompletableFuture<Void>> open = ConcurrentHashMap.newKeySet();
    private boolean isClosed;
    private volatile Partitions partitions = new Partitions();
    private long refreshedAt;
    private CompletableFuture<?> refresh = completedFuture(null);

    Servers(RedisClient one, RedisURI uri, RedisClusterClient cluster, long longest) {
        this.one = one;
        this.uri = uri;
        this.cluster = cluster;
        this.longest = longest;
        connecting = uri != null && uri.getSentinels().isEmpty() ? longest : Math.min(EVER, 4 * longest);
        isSharded = cluster != null;
    }

    /** Sends a command by one connection. */
    interface Call { CompletableFuture<Object> send(List<String> words); }

    /** Lettuce asks for a name up to 7, and deprecates it. */
    @SuppressWarnings("deprecation")
    private record Keyword(String name) implements ProtocolKeyword {
        @Override
        public byte[] getBytes() {
            return name.getBytes(StandardCharsets.US_ASCII);
        }
    }

    /** For all; {@code ears} is told of messages, and of the end; null: for commands. */
    synchronized Line shared(String use, Ears ears) {
        if (isClosed) {
            throw new FairlockException.Closed("Locks is closed");
        }
        return lines.compute(use, (key, line) -> line == null || line.ended.isDone() ? new Line(ears) : line);
    }

    /** Completes when all connections are closed. */
    synchronized CompletableFuture<Void> close() {
        isClosed = true;
        lines.values().forEach(Line::end);
        return CompletableFuture.allOf(open.toArray(CompletableFuture<?>[]::new));
    }

    /**
     * A connection that the client makes, in a cluster one to all nodes, until it is disconnected or silent. Then it is closed, with all that is on
     * its way, which Lettuce would send again unseen; the next command has another one made.
     */
    final class Line implements RedisConnectionStateListener {
        final CompletableFuture<Void> ended = new CompletableFuture<>();
        /** Whether a session depends on it: silence may end. */
        volatile boolean isKept;
        private final CompletableFuture<StatefulConnection<String, String>> opened;
        private final Ears ears;
        private final Set<Object> watched = ConcurrentHashMap.newKeySet();
        private volatile Object address;

        Line(Ears ears) {
            this.ears = ears;
            var opening = (cluster != null && partitions.isEmpty() ? refreshed() : completedFuture(null)).thenCompose(known -> open());
            opened = opening.copy();
            ended.thenRun(() -> opened.completeExceptionally(new RedisException("the connection has ended"))); // Who waits for it has another made.
            CompletableFuture<Void> closed = ended.thenCompose(over -> opening).thenCompose(StatefulConnection::closeAsync);
            open.add(closed);
            closed.whenComplete((over, error) -> open.remove(closed));
            opened.exceptionally(error -> {
                end();
                return null;
            });
            if (ears != null) {
                ended.thenRun(ears::ended);
            }
        }

        private CompletionStage<StatefulConnection<String, String>> open() {
            if (cluster != null) {
                var opening = ears != null ? cluster.connectPubSubAsync(StringCodec.UTF8) : cluster.connectAsync(StringCodec.UTF8);
                return opening.thenApply(made -> made);
            }
            var opening = ears != null ? one.connectPubSubAsync(StringCodec.UTF8, uri) : one.connectAsync(StringCodec.UTF8, uri);
            return opening.thenApply(made -> {
                address = opening.getRemoteAddress();
                return made;
            });
        }

        void end() {
            ended.complete(null);
        }

        @Override
        public void onRedisDisconnected(RedisChannelHandler<?, ?> connection) {
            end();
        }

        /** The library's name for the lock's server. */
        Object server(String name) {
            return cluster == null ? address : node(name).orElseThrow().getNodeId();
        }

        /** The connection to the lock's server, or to another node of the cluster. */
        CompletableFuture<StatefulRedisConnection<String, String>> to(String name, String node) {
            return checked(name, false, connecting, opened.thenCompose(made -> nodeOf(made, name, node))).thenApply(connection -> {
                if (watched.add(connection)) {
                    if (connection instanceof StatefulRedisPubSubConnection<String, String> heard) {
                        heard.addListener(ears);
                    }
                    connection.setTimeout(Duration.ZERO); // The client's own is for its own commands.
                    connection.addListener(this);
                }
                return connection;
            });
        }

        private CompletionStage<? extends StatefulRedisConnection<String, String>> nodeOf(
                StatefulConnection<String, String> made, String name, String node) {
            String id = cluster == null || node != null ? node
                    : node(name).orElseThrow(() -> new IllegalStateException("no node of the cluster has the slot")).getNodeId();
            return made instanceof StatefulRedisClusterPubSubConnection<String, String> ears ? ears.getConnectionAsync(id)
                    : made instanceof StatefulRedisClusterConnection<String, String> nodes ? nodes.getConnectionAsync(id)
                    : completedFuture((StatefulRedisConnection<String, String>) made);
        }

        /**
         * Does the work at the lock's server. Where its slot is elsewhere, or on its way, the other masters are asked one by one: each but the right
         * one points elsewhere, too.
         */
        <T> CompletableFuture<T> at(String name, long nanos, Function<Call, CompletableFuture<T>> work) {
            return to(name, null).thenCompose(node -> work.apply(words -> call(node, name, nanos, words, false))).exceptionallyCompose(error -> {
                CompletableFuture<T> done = failedFuture(error);
                for (RedisClusterNode each : partitions) {
                    done = !each.is(RedisClusterNode.NodeFlag.UPSTREAM) ? done : done.exceptionallyCompose(before ->
                            !FairlockException.of("", before).isElsewhere() ? failedFuture(before)
                                    : to(name, each.getNodeId()).thenCompose(node -> work.apply(words -> call(node, name, nanos, words, true))));
                }
                return done;
            });
        }

        private CompletableFuture<Object> call(
                StatefulRedisConnection<String, String> to, String name, long nanos, List<String> words, boolean isAsking) {
            var output = new NestedMultiOutput<>(StringCodec.UTF8) {
                @Override
                public void set(boolean value) {
                    set(value ? 1 : 0); // INFO has one in RESP3.
                }
            };
            CommandArgs<String, String> arguments = new CommandArgs<>(StringCodec.UTF8).addValues(words.subList(1, words.size()));
            var command = new AsyncCommand<>(new Command<>(new Keyword(words.get(0)), output, arguments));
            if (isAsking) {
                to.dispatch(List.of(new Command<>(CommandType.ASKING, new StatusOutput<>(StringCodec.UTF8)), command));
            } else {
                to.dispatch(command);
            }
            return checked(name, true, nanos, command).thenApply(values -> values.size() == 1 ? values.get(0) : values);
        }

        <T> CompletableFuture<T> checked(String name, boolean wasSent, long nanos, CompletionStage<? extends T> work) {
            CompletableFuture<T> answer = work.<T>thenApply(value -> value).toCompletableFuture();
            if (!answer.isDone()) {
                long alarm = Time.at(now() + nanos, () -> answer.completeExceptionally(new TimeoutException()));
                answer.whenComplete((value, error) -> Time.cancel(alarm));
            }
            return answer.exceptionallyCompose(error -> {
                FairlockException failure = FairlockException.of(where(name), error);
                failure.isUnheard &= wasSent;
                boolean isSilent = failure.getCause() instanceof TimeoutException || failure.getCause() instanceof RedisCommandTimeoutException;
                if (isSilent && !isKept || failure.is("READONLY")) {
                    end();
                }
                if (failure.isPassing() && !failure.is("BUSY")) {
                    refreshed();
                }
                return failedFuture(failure);
            });
        }
    }

    private Optional<RedisClusterNode> node(String name) {
        return Optional.ofNullable(partitions.getMasterBySlot(SlotHash.getSlot(name.getBytes(StandardCharsets.UTF_8))));
    }

    /** The lock and its server. */
    String where(String name) {
        return name + ": " + (cluster == null ? uri : node(name).<Object>map(RedisClusterNode::getUri).orElse("the cluster"));
    }

    /** After a failure a cluster is asked for its slots, not all the time: the client does so by itself only if its options say so. */
    private synchronized CompletableFuture<?> refreshed() {
        if (cluster != null && refresh.isDone() && (partitions.isEmpty() || now() - refreshedAt > 200 * Time.MS)) {
            refreshedAt = now();
            refresh = cluster.refreshPartitionsAsync().toCompletableFuture().thenRun(() -> partitions = cluster.getPartitions());
        }
        return refresh;
    }
}
