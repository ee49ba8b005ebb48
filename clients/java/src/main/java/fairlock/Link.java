package fairlock;

import static java.util.concurrent.CompletableFuture.completedFuture;
import static java.util.concurrent.CompletableFuture.failedFuture;

import io.lettuce.core.RedisChannelHandler;
import io.lettuce.core.RedisCommandTimeoutException;
import io.lettuce.core.RedisConnectionStateListener;
import io.lettuce.core.api.StatefulRedisConnection;
import io.lettuce.core.api.async.BaseRedisAsyncCommands;
import io.lettuce.core.cluster.api.StatefulRedisClusterConnection;
import io.lettuce.core.codec.StringCodec;
import io.lettuce.core.output.NestedMultiOutput;
import io.lettuce.core.protocol.CommandArgs;
import io.lettuce.core.protocol.ProtocolKeyword;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.List;
import java.util.Set;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.CompletionStage;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.TimeoutException;
import java.util.concurrent.atomic.AtomicBoolean;

/**
 * A connection that the user's client makes, until it is disconnected or silent. Then it is closed, with all that is on its way, which Lettuce
 * would send again unseen; the next command has another one made.
 */
final class Link {
    /** Lettuce asks for a name up to 7, and deprecates it. */
    @SuppressWarnings("deprecation")
    private record Keyword(String name) implements ProtocolKeyword {
        @Override
        public byte[] getBytes() {
            return name.getBytes(StandardCharsets.US_ASCII);
        }

        @Override
        public String toString() {
            return name;
        }
    }

    /** A flat reply. INFO has a boolean in RESP3. */
    private static final class Values extends NestedMultiOutput<String, String> {
        Values() {
            super(StringCodec.UTF8);
        }

        @Override
        public void set(boolean value) {
            set(value ? 1 : 0);
        }
    }

    private final Servers servers;
    private final Timer timer;
    private final long longest;
    private final Runnable onEnd;
    private final CompletableFuture<Servers.Opened> opening;
    private final CompletableFuture<Servers.Opened> opened;
    private final Set<Object> watched = ConcurrentHashMap.newKeySet();
    private final AtomicBoolean isOver = new AtomicBoolean();
    final CompletableFuture<Void> closed = new CompletableFuture<>();
    /** Whether a session depends on it: silence may end. */
    volatile boolean isKept;

    /** @param longest nanoseconds for an answer that is given at once */
    Link(Servers servers, Timer timer, long longest, boolean isPubSub, Runnable onEnd) {
        this.servers = servers;
        this.timer = timer;
        this.longest = longest;
        this.onEnd = onEnd;
        opening = completedFuture(isPubSub).thenCompose(servers::open);
        opened = timer.within(Math.min(Timer.EVER, 4 * longest), opening); // TLS and a cluster's topology take their time.
        opened.exceptionally(error -> {
            timer.at(Timer.now(), this::end); // Not here: whoever needs it may hold a monitor.
            return null;
        });
    }

    boolean isOver() {
        return isOver.get();
    }

    void end() {
        if (isOver.compareAndSet(false, true)) {
            opening.thenCompose(made -> made.connection().closeAsync()).whenComplete((nothing, error) -> closed.complete(null));
            onEnd.run();
        }
    }

    /** The connection to the lock's server. */
    CompletableFuture<StatefulRedisConnection<String, String>> to(String name) {
        var connecting = opened.thenCompose(made -> timer.within(Math.min(Timer.EVER, 4 * longest), servers.to(made, name)));
        return checked(name, false, connecting).thenApply(connection -> {
            if (watched.add(connection)) {
                connection.setTimeout(Duration.ZERO); // The client's own is for its own commands.
                connection.addListener(new RedisConnectionStateListener() {
                    @Override
                    public void onRedisDisconnected(RedisChannelHandler<?, ?> which) {
                        end();
                    }
                });
            }
            return connection;
        });
    }

    CompletableFuture<Object> server(String name) {
        return opened.thenApply(made -> servers.server(made, name));
    }

    /** A command by a connection to one server. {@code keysFrom}: the first word that is a key; 0: there is none. */
    CompletableFuture<List<Object>> call(BaseRedisAsyncCommands<String, String> commands, String name, long nanos, int keysFrom, List<String> words) {
        CommandArgs<String, String> arguments = new CommandArgs<>(StringCodec.UTF8);
        for (int at = 1; at < words.size(); at++) {
            if (keysFrom > 0 && at >= keysFrom) {
                arguments.addKey(words.get(at));
            } else {
                arguments.addValue(words.get(at));
            }
        }
        return checked(name, true, timer.within(nanos, commands.dispatch(new Keyword(words.get(0)), new Values(), arguments)));
    }

    <T> CompletableFuture<T> sent(String name, CompletionStage<T> command) {
        return checked(name, true, timer.within(longest, command));
    }

    /** The same by what follows MOVED and ASK in a cluster. */
    CompletableFuture<List<Object>> redirected(String name, int keysFrom, List<String> words) {
        return opened.thenCompose(made -> call(((StatefulRedisClusterConnection<String, String>) made.connection()).async(), name, longest,
                keysFrom, words));
    }

    private <T> CompletableFuture<T> checked(String name, boolean wasSent, CompletableFuture<T> work) {
        return work.exceptionallyCompose(error -> {
            FairlockException failure = FairlockException.of(name + ": " + servers.where(name), error, wasSent);
            boolean isSilent = failure.getCause() instanceof TimeoutException || failure.getCause() instanceof RedisCommandTimeoutException;
            if (isSilent && !isKept || failure.is("READONLY")) {
                end();
            }
            if (failure.isPassing() && !failure.is("BUSY")) {
                servers.refreshed();
            }
            return failedFuture(failure);
        });
    }
}
