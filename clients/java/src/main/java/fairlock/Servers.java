package fairlock;

import static java.util.concurrent.CompletableFuture.completedFuture;

import io.lettuce.core.ConnectionFuture;
import io.lettuce.core.RedisClient;
import io.lettuce.core.RedisURI;
import io.lettuce.core.api.StatefulConnection;
import io.lettuce.core.api.StatefulRedisConnection;
import io.lettuce.core.cluster.RedisClusterClient;
import io.lettuce.core.cluster.SlotHash;
import io.lettuce.core.cluster.api.StatefulRedisClusterConnection;
import io.lettuce.core.cluster.models.partitions.Partitions;
import io.lettuce.core.cluster.models.partitions.RedisClusterNode;
import io.lettuce.core.cluster.pubsub.StatefulRedisClusterPubSubConnection;
import io.lettuce.core.codec.StringCodec;
import java.nio.charset.StandardCharsets;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.CompletionStage;

/** What the user's client reaches: one server or the master that Sentinels name ({@code one}, {@code uri}), or a cluster. The others are null. */
final class Servers {
    /** A connection, and the library's name for its server. In a cluster it is one to all, and the name is null. */
    record Opened(StatefulConnection<String, String> connection, Object server) {}

    final RedisClusterClient cluster;
    /** Whether it has sharded channels: a cluster before Redis 7.0 has none. */
    volatile boolean isSharded;
    private final RedisClient one;
    private final RedisURI uri;
    private volatile Partitions partitions = new Partitions();
    private long refreshedAt;
    private CompletableFuture<?> refresh = completedFuture(null);

    Servers(RedisClient one, RedisURI uri, RedisClusterClient cluster) {
        this.one = one;
        this.uri = uri;
        this.cluster = cluster;
        isSharded = cluster != null;
    }

    CompletionStage<Opened> open(boolean isPubSub) {
        if (cluster != null) {
            CompletableFuture<?> known = partitions.isEmpty() ? refreshed() : completedFuture(null);
            return isPubSub ? known.thenCompose(done -> cluster.connectPubSubAsync(StringCodec.UTF8)).thenApply(made -> new Opened(made, null))
                    : known.thenCompose(done -> cluster.connectAsync(StringCodec.UTF8)).thenApply(made -> new Opened(made, null));
        }
        ConnectionFuture<? extends StatefulConnection<String, String>> opening =
                isPubSub ? one.connectPubSubAsync(StringCodec.UTF8, uri) : one.connectAsync(StringCodec.UTF8, uri);
        return opening.thenApply(connection -> new Opened(connection, uri.getSentinels().isEmpty() ? uri : opening.getRemoteAddress()));
    }

    /** The lock's server: a cluster's node has an id. */
    Object server(Opened opened, String name) {
        RedisClusterNode node = cluster == null ? null : node(name);
        if (cluster != null && node == null) {
            throw new IllegalStateException("no node of the cluster has the slot");
        }
        return cluster == null ? opened.server : node.getNodeId();
    }

    private RedisClusterNode node(String name) {
        return partitions.getMasterBySlot(SlotHash.getSlot(name.getBytes(StandardCharsets.UTF_8)));
    }

    /** The connection to the lock's server. */
    CompletionStage<? extends StatefulRedisConnection<String, String>> to(Opened opened, String name) {
        if (opened.connection instanceof StatefulRedisClusterPubSubConnection<String, String> ears) {
            return ears.getConnectionAsync((String) server(opened, name));
        }
        return opened.connection instanceof StatefulRedisClusterConnection<String, String> nodes
                ? nodes.getConnectionAsync((String) server(opened, name))
                : completedFuture((StatefulRedisConnection<String, String>) opened.connection);
    }

    /** As people write it. */
    String where(String name) {
        RedisClusterNode node = cluster == null ? null : node(name);
        if (cluster != null && node == null) {
            return "the cluster";
        }
        boolean isWatched = cluster == null && !uri.getSentinels().isEmpty();
        RedisURI shown = node != null ? node.getUri() : isWatched ? uri.getSentinels().get(0) : uri;
        String at = shown.getSocket() != null ? shown.getSocket() : shown.getHost() + ":" + shown.getPort();
        return isWatched ? uri.getSentinelMasterId() + " of the Sentinel " + at : at;
    }

    /** After a failure a cluster is asked for its slots, not all the time: the client does so by itself only if its options say so. */
    synchronized CompletableFuture<?> refreshed() {
        if (cluster != null && refresh.isDone() && (partitions.isEmpty() || Timer.now() - refreshedAt > 200 * Timer.MS)) {
            refreshedAt = Timer.now();
            refresh = cluster.refreshPartitionsAsync().toCompletableFuture().thenRun(() -> partitions = cluster.getPartitions());
        }
        return refresh;
    }
}
