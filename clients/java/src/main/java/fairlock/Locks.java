package fairlock;

import fairlock.internal.LettuceBackend;
import io.lettuce.core.RedisClient;
import io.lettuce.core.RedisURI;
import io.lettuce.core.cluster.RedisClusterClient;
import java.util.Optional;

/**
 * Takes fair locks at one server, at Sentinel's master, or at a cluster. It has connections of its own, and leaves the
 * client it was made from alone. Make one for the process, and keep it.
 */
public interface Locks extends AutoCloseable {
    /** Locks with default options, at the server or the sentinels of the URI. */
    static Locks of(RedisClient client, RedisURI uri) {
        return builder(client, uri).build();
    }

    /** Locks with default options, at a cluster. */
    static Locks of(RedisClusterClient client) {
        return builder(client).build();
    }

    /** Locks with options, at the server or the sentinels of the URI. */
    static LocksBuilder builder(RedisClient client, RedisURI uri) {
        return new LocksBuilder(longest -> new LettuceBackend(client, uri, longest));
    }

    /** Locks with options, at a cluster. */
    static LocksBuilder builder(RedisClusterClient client) {
        return new LocksBuilder(longest -> new LettuceBackend(client, longest));
    }

    /** The lock. NotInTimeException: not within the wait. An interrupt leaves the queue. */
    Held acquire(String name, LockOptions options) throws InterruptedException;

    /** The lock, with the options of this Locks. */
    default Held acquire(String name) throws InterruptedException {
        return acquire(name, LockOptions.options());
    }

    /** The lock if it is available at once. */
    Optional<Held> tryAcquire(String name, LockOptions options) throws InterruptedException;

    /** The lock if it is available at once, with the options of this Locks. */
    default Optional<Held> tryAcquire(String name) throws InterruptedException {
        return tryAcquire(name, LockOptions.options());
    }

    /**
     * A {@link java.util.concurrent.locks.Lock}. It has its own owners, and no session. It uses the options lease,
     * renew, patience, syncTimeout and, in {@code lock} and {@code lockInterruptibly}, wait.
     */
    FairLock get(String name, LockOptions options);

    /** A {@link java.util.concurrent.locks.Lock}, with the options of this Locks. */
    default FairLock get(String name) {
        return get(name, LockOptions.options());
    }

    /** The holder of the lock, and how many wait for it. */
    LockInfo info(String name);

    /** Whether the server has the module; false: locks are taken by scripts. Empty: no server has answered yet. */
    Optional<Boolean> isNative();

    /** Ends all waits (ClosedException) and closes the connections; locks that are held are lost. */
    @Override
    void close();
}
