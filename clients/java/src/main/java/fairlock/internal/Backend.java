package fairlock.internal;

import java.util.List;
import java.util.concurrent.CompletableFuture;

/** Where connections come from: Lettuce, or the fake. Futures fail with a {@link Failure}, or an Error of the program. */
public interface Backend extends AutoCloseable {
    /** A connection to a server, or to a Sentinel. */
    CompletableFuture<Line> open(Address address);

    /** A connection for wake-ups. */
    CompletableFuture<Ears> listen(Address address);

    /** Which server is the master of which lock. */
    Route route();

    /** Completes as soon as the route has guides, if it is to have any. */
    default CompletableFuture<Void> ready() {
        return CompletableFuture.completedFuture(null);
    }

    /** Whether leases end, so that they have to be renewed. */
    boolean hasLeases();

    /** Whether all waits block. Otherwise only those with a connection of their own do. */
    boolean isBlocking();

    @Override
    void close();

    /** A connection of ours, for any number of threads. */
    interface Line {
        /** Sends a command; a reply that is no array comes as a list of one. */
        CompletableFuture<List<Object>> call(Object... words);

        /** Runs this once when the connection has ended, or at once if it has. */
        void onClosed(Runnable work);

        /** Ends the connection, and with it what is waited for on it. */
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
