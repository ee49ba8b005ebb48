package fairlock;

import io.lettuce.core.pubsub.RedisPubSubAdapter;
import io.lettuce.core.pubsub.StatefulRedisPubSubConnection;
import java.net.InetAddress;
import java.net.UnknownHostException;
import java.util.Deque;
import java.util.Map;
import java.util.Set;
import java.util.UUID;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.ConcurrentLinkedDeque;
import java.util.function.Consumer;

/**
 * The wake-ups of all waiters, by one connection. A subscription is kept for a minute, for the next wait for its lock; and so is its owner's name,
 * where that ended cleanly.
 */
final class Ears extends RedisPubSubAdapter<String, String> {
    private static final long KEPT = 60_000 * Timer.MS;
    private static final String PROCESS = host() + ":" + ProcessHandle.current().pid() + ":";

    /** An owner's name and its subscription. */
    static final class Ear {
        final String name;
        final String owner;
        private final String channel;
        /** They are told of each message (true), and of the end of the subscription (false). */
        private final Set<Consumer<Boolean>> waiting = ConcurrentHashMap.newKeySet();
        private volatile StatefulRedisPubSubConnection<String, String> connection;
        private volatile long since;

        private Ear(String name, String owner) {
            this.name = name;
            this.owner = owner;
            channel = Wire.key("redisson_lock__channel", name) + ":" + owner;
        }

        boolean listens() {
            return connection != null;
        }

        private void end() {
            connection = null;
            waiting.forEach(each -> each.accept(false));
        }
    }

    private final Wire wire;
    private final Map<String, Ear> ears = new ConcurrentHashMap<>();
    private final Map<String, Deque<Ear>> unused = new ConcurrentHashMap<>();
    private final Set<Object> heard = ConcurrentHashMap.newKeySet();
    private Link link;

    Ears(Wire wire) {
        this.wire = wire;
    }

    /** For a wait; owner null: by a name that no other has. */
    Ear take(String name, String owner, Consumer<Boolean> waiter) {
        Deque<Ear> free = owner == null ? unused.get(name) : null;
        Ear spare = free == null ? null : free.pollFirst();
        Ear ear = spare != null ? spare : new Ear(name, owner == null ? PROCESS + UUID.randomUUID() : owner);
        return ears.compute(ear.channel, (channel, known) -> {
            Ear taken = known == null ? ear : known;
            taken.waiting.add(waiter);
            return taken;
        });
    }

    /** The wait is over. */
    void leave(Ear ear, Consumer<Boolean> waiter) {
        ear.since = Timer.now();
        ears.computeIfPresent(ear.channel, (channel, known) -> {
            known.waiting.remove(waiter);
            return known.waiting.isEmpty() && !known.listens() ? null : known;
        });
    }

    /** The name may be used again: the server knows nothing of it, and will not learn of it any more. */
    void reuse(Ear ear, boolean isClean) {
        ear.since = Timer.now();
        if (isClean && ear.listens()) {
            unused.computeIfAbsent(ear.name, name -> new ConcurrentLinkedDeque<>()).addFirst(ear);
        }
    }

    private static String host() {
        try {
            String name = InetAddress.getLocalHost().getHostName().replaceAll("[^A-Za-z0-9._-]", "-");
            return name.substring(0, Math.min(200, name.length()));
        } catch (UnknownHostException error) {
            return "unknown";
        }
    }

    private synchronized Link link() {
        if (link == null || link.isOver()) {
            link = wire.link(true, this::linkEnded);
        }
        return link;
    }

    private void linkEnded() {
        heard.clear();
        ears.values().forEach(Ear::end);
    }

    CompletableFuture<Void> listen(Ear ear) {
        Link current = link();
        boolean isSharded = wire.servers.isSharded;
        return current.to(ear.name).thenCompose(made -> {
            var connection = (StatefulRedisPubSubConnection<String, String>) made;
            if (heard.add(connection)) {
                connection.addListener(this);
            }
            return current.sent(ear.name, isSharded ? connection.async().ssubscribe(ear.channel) : connection.async().subscribe(ear.channel))
                    .thenRun(() -> {
                        ear.connection = connection;
                        if (current.isOver()) {
                            ear.end();
                        }
                    });
        }).exceptionallyCompose(error -> {
            if (!isSharded || !Wire.isUnknown(error)) {
                return CompletableFuture.failedFuture(error);
            }
            wire.servers.isSharded = false;
            return listen(ear);
        });
    }

    @Override
    public void message(String channel, String message) {
        Ear ear = ears.get(channel);
        if (ear != null) {
            ear.waiting.forEach(each -> each.accept(true));
        }
    }

    @Override
    public void smessage(String channel, String message) {
        message(channel, message);
    }

    /** The slot has moved. */
    @Override
    public void sunsubscribed(String channel, long count) {
        Ear ear = ears.get(channel);
        if (ear != null) {
            ear.end();
        }
    }

    /** Ends what was not used for a minute. */
    void sweep() {
        long oldest = Timer.now() - KEPT;
        unused.values().removeIf(free -> free.removeIf(ear -> ear.since < oldest) && free.isEmpty());
        ears.keySet().forEach(each -> ears.computeIfPresent(each, (channel, ear) -> {
            if (!ear.waiting.isEmpty() || ear.since >= oldest) {
                return ear;
            } else if (ear.listens()) {
                var commands = ear.connection.async();
                ear.connection = null;
                (wire.servers.isSharded ? commands.sunsubscribe(channel) : commands.unsubscribe(channel)).exceptionally(error -> null);
            }
            return null;
        }));
    }
}
