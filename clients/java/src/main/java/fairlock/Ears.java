package fairlock;

import static fairlock.Time.now;

import io.lettuce.core.pubsub.RedisPubSubAdapter;
import io.lettuce.core.pubsub.StatefulRedisPubSubConnection;
import java.net.InetAddress;
import java.net.UnknownHostException;
import java.util.*;
import java.util.concurrent.CompletableFuture;
import java.util.stream.Stream;

/** The wake-ups of all waiters, by one connection. */
final class Ears extends RedisPubSubAdapter<String, String> {
    private static final String PROCESS = host() + ":" + ProcessHandle.current().pid() + ":";

    /** An owner's name and its subscription. */
    static final class Ear {
        final String name;
        final String owner;
        /** The last token that the owner has released. */
        volatile long released;
        private final String channel;
        private final Set<Ask> users = new HashSet<>();
        private volatile StatefulRedisPubSubConnection<String, String> connection;
        /** If nobody uses it, it ends a minute later. */
        private long idle;

        private Ear(String name, String owner, String channels) {
            this.name = name;
            this.owner = owner;
            channel = channels + owner;
        }

        boolean listens() {
            return connection != null;
        }
    }

    private final Servers servers;
    /** By channel, so that those of one lock stand together. */
    private final NavigableMap<String, Ear> ears = new TreeMap<>();

    Ears(Servers servers) {
        this.servers = servers;
    }

    private static String host() {
        try {
            String name = InetAddress.getLocalHost().getHostName().replaceAll("[^A-Za-z0-9._-]", "-");
            return name.substring(0, Math.min(200, name.length()));
        } catch (UnknownHostException error) {
            return "unknown";
        }
    }

    /** For an acquisition; owner null: by a name that ended cleanly, or a new one. */
    synchronized Ear take(String name, String owner, Ask user) {
        String channels = Wire.key("redisson_lock__channel", name) + ":";
        Stream<Ear> unused = ears.tailMap(channels).values().stream().takeWhile(ear -> ear.name.equals(name)).filter(ear -> ear.users.isEmpty());
        Ear made = new Ear(name, owner == null ? PROCESS + UUID.randomUUID() : owner, channels);
        Ear ear = owner != null ? made : unused.findFirst().orElse(made);
        ear = ears.merge(ear.channel, ear, (known, other) -> known);
        Time.cancel(ear.idle);
        ear.users.add(user);
        return ear;
    }

    /** Whether there are others with its owner that stay: the place, or the lock, is theirs, too, and the last one gives it up. */
    synchronized boolean leaveToOthers(Ear ear, Ask user) {
        user.isLeaving = true;
        List<Ask> others = ear.users.stream().filter(each -> !each.isLeaving).toList();
        others.forEach(each -> each.unanswered.incrementAndGet());
        return !others.isEmpty();
    }

    /** {@code isClean}: the server knows nothing of its owner, and will not learn of it any more. Else its name is not used again. */
    synchronized void give(Ear ear, Ask user, boolean isClean) {
        boolean isUnused = ear.users.remove(user) && ear.users.isEmpty();
        if (isUnused && isClean && ear.listens()) {
            ear.idle = Time.at(now() + 60_000 * Time.MS, () -> end(ear));
        } else if (isUnused) {
            end(ear);
        }
    }

    private synchronized void end(Ear ear) {
        if (ear.users.isEmpty() && ears.remove(ear.channel, ear)) {
            unsubscribe(ear);
        }
    }

    private void unsubscribe(Ear ear) {
        if (ear.listens()) {
            var commands = ear.connection.async();
            ear.connection = null;
            (servers.isSharded ? commands.sunsubscribe(ear.channel) : commands.unsubscribe(ear.channel)).exceptionally(error -> null);
        }
    }

    /** Until the subscription is confirmed. */
    CompletableFuture<Void> listen(Ear ear) {
        Servers.Line line = servers.shared("ears", this);
        boolean isSharded = servers.isSharded;
        return line.to(ear.name, null).thenCompose(made -> {
            var connection = (StatefulRedisPubSubConnection<String, String>) made;
            var commands = connection.async();
            var subscribed = isSharded ? commands.ssubscribe(ear.channel) : commands.subscribe(ear.channel);
            return line.checked(ear.name, true, servers.longest, subscribed).thenRun(() -> stands(ear, line, connection));
        }).exceptionallyCompose(error -> {
            if (!isSharded || !FairlockException.of("", error).isUnknown()) {
                return CompletableFuture.failedFuture(error);
            }
            servers.isSharded = false;
            return listen(ear);
        });
    }

    private synchronized void stands(Ear ear, Servers.Line line, StatefulRedisPubSubConnection<String, String> connection) {
        ear.connection = line.ended.isDone() ? null : connection;
        if (!ears.containsKey(ear.channel)) { // Its users have left meanwhile.
            unsubscribe(ear);
        }
    }

    /** The connection has ended. */
    synchronized void ended() {
        ears.values().forEach(ear -> tell(ear, false));
    }

    /** A message has come; or the subscription has ended. */
    private static void tell(Ear ear, boolean listens) {
        if (ear != null) {
            ear.connection = listens ? ear.connection : null;
            ear.users.forEach(each -> each.wake(true));
        }
    }

    @Override
    public synchronized void message(String channel, String message) {
        tell(ears.get(channel), true);
    }

    @Override
    public void smessage(String channel, String message) {
        message(channel, message);
    }

    /** The slot has moved. */
    @Override
    public synchronized void sunsubscribed(String channel, long count) {
        tell(ears.get(channel), false);
    }
}
