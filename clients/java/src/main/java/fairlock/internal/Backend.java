package fairlock.internal;

import java.util.List;
import java.util.concurrent.CompletableFuture;

/** Where connections come from. Futures fail with a {@link Failure}, or an Error of the program. */
public interface Backend extends AutoCloseable {
    /** A connection to a server, or to a Sentinel. */
    CompletableFuture<Line> open(Address address);

    /** A connection for wake-ups. */
    CompletableFuture<Ears> listen(Address address);

    /** Which server is the master of which lock. */
    Route route();

    /** Completes as soon as the route has its guides, if any. */
    CompletableFuture<Void> ready();

    @Override
    void close();

    /** A connection of the package, for any number of threads. */
    interface Line {
        /** Sends a command; a reply that is not an array becomes a list of one. */
        CompletableFuture<List<Object>> call(Object... words);

        /** The same to a node that was named by an ASK; nothing may come between. */
        default CompletableFuture<List<Object>> asking(Object... words) {
            call("ASKING");
            return call(words);
        }

        /** Whether the server has the module: otherwise commands are sent as scripts, and perhaps twice. */
        default boolean isNative() {
            return true;
        }

        /** Runs this once when the connection has ended, or at once if it has. */
        void onClosed(Runnable work);

        /** Ends the connection, and all waits on it. */
        void close();
    }

    /** A subscription to any number of channels. */
    interface Ears {
        /** Runs this for each message and when the subscription ends; completes when it has begun. */
        CompletableFuture<Void> add(String channel, Runnable wake);

        /** Ends it. */
        void remove(String channel);

        /** Whether messages of the channel would be heard. */
        boolean hears(String channel);

        /** Ends the connection. */
        void close();
    }
}
