package fairlock;

import static fairlock.Protocol.now;

import io.lettuce.core.pubsub.RedisPubSubAdapter;
import io.lettuce.core.pubsub.StatefulRedisPubSubConnection;
import java.net.InetAddress;
import java.net.UnknownHostException;
import java.util.*;
import java.util.concurrent.CompletableFuture;

/** The wake-ups of all waiters, by one connection. */
final class Ears extends RedisPubSubAdapter<String, String> {
    private static final String PROCESS = host() + ":" + ProcessHandle.current().pid() + ":";

    /** An owner's name and its subscription. */
    static final class Ear {
        final String name;
        final String owner;
        private final String channel;
        private final Set<Asker> users = new HashSet<>();
        private volatile StatefulRedisPubSubConnection<String, String> connection;
        /** If nobody uses it, it ends a minute later. */
        private CompletableFuture<Void> idle;

        private Ear(String name, String owner) {
            this.name = name;
            this.owner = owner;
            channel = Wire.key("redisson_lock__channel", name) + ":" + owner;
        }

        boolean listens() {
            return connection != null;
        }
    }

    private final Wire wire;
    private final Map<String, Ear> ears = new HashMap<>();
    /** For each lock those whose names ended cleanly, for its next waits. */
    private final Map<String, Deque<Ear>> unused = new HashMap<>();
    private Servers.Line line;

    Ears(Wire wire) {
        this.wire = wire;
    }

    private static String host() {
        try {
            String name = InetAddress.getLocalHost().getHostName().replaceAll("[^A-Za-z0-9._-]", "-");
            return name.substring(0, Math.min(200, name.length()));
        } catch (UnknownHostException error) {
            return "unknown";
        }
    }

    /** For an acquisition; owner null: by a name that no other has. */
    synchronized Ear take(String name, String owner, Asker user) {
        Ear spare = owner == null && unused.containsKey(name) ? unused.get(name).peek() : null;
        if (spare != null) {
            spare.idle.cancel(false);
            forget(spare);
        }
        Ear made = spare != null ? spare : new Ear(name, owner == null ? PROCESS + UUID.randomUUID() : owner);
        Ear ear = ears.computeIfAbsent(made.channel, channel -> made);
        ear.users.add(user);
        return ear;
    }

    private boolean forget(Ear ear) {
        Deque<Ear> all = unused.get(ear.name);
        boolean was = all != null && all.remove(ear);
        if (was && all.isEmpty()) {
            unused.remove(ear.name);
        }
        return was;
    }

    /** {@code isClean}: the server knows nothing of its owner, and will not learn of it any more. Else its name is not used again. */
    synchronized void give(Ear ear, Asker user, boolean isClean) {
        if (!ear.users.remove(user) || !ear.users.isEmpty()) {
            return;
        } else if (isClean && ear.listens()) {
            unused.computeIfAbsent(ear.name, name -> new ArrayDeque<>()).push(ear);
            ear.idle = Protocol.at(now() + 60_000 * Protocol.MS);
            ear.idle.thenRun(() -> end(ear));
        } else {
            ears.remove(ear.channel);
            unsubscribe(ear);
        }
    }

    private synchronized void end(Ear ear) {
        if (forget(ear)) {
            ears.remove(ear.channel);
            unsubscribe(ear);
        }
    }

    private void unsubscribe(Ear ear) {
        if (ear.listens()) {
            var commands = ear.connection.async();
            ear.connection = null;
            (wire.servers.isSharded ? commands.sunsubscribe(ear.channel) : commands.unsubscribe(ear.channel)).exceptionally(error -> null);
        }
    }

    CompletableFuture<Void> listen(Ear ear) {
        Servers.Line current = line();
        boolean isSharded = wire.servers.isSharded;
        return current.to(ear.name).thenCompose(made -> {
            var connection = (StatefulRedisPubSubConnection<String, String>) made;
            return current.sent(ear.name, isSharded ? connection.async().ssubscribe(ear.channel) : connection.async().subscribe(ear.channel))
                    .thenRun(() -> stands(ear, current, connection));
        }).exceptionallyCompose(error -> {
            if (!isSharded || !Wire.isUnknown(error)) {
                return CompletableFuture.failedFuture(error);
            }
            wire.servers.isSharded = false;
            return listen(ear);
        });
    }

    private synchronized void stands(Ear ear, Servers.Line current, StatefulRedisPubSubConnection<String, String> connection) {
        ear.connection = current.isOver() ? null : connection;
    }

    private synchronized Servers.Line line() {
        if (line == null || line.isOver()) {
            line = wire.line(this);
            line.ended.thenRun(this::ended);
        }
        return line;
    }

    private synchronized void ended() {
        ears.values().forEach(ear -> tell(ear, false));
    }

    /** A message has come; or the subscription has ended. */
    private static void tell(Ear ear, boolean listens) {
        if (ear != null) {
            ear.connection = listens ? ear.connection : null;
            ear.users.forEach(each -> each.wake(listens));
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
