package fairlock;

import io.lettuce.core.RedisClient;
import io.lettuce.core.RedisURI;
import io.lettuce.core.cluster.RedisClusterClient;
import java.lang.System.Logger.Level;
import java.time.Duration;
import java.util.*;
import java.util.concurrent.*;
import java.util.function.Consumer;

/**
 * Takes fair locks at one server, at the master that Sentinels name, or at a cluster, by connections that a client of Lettuce makes. Make one for the
 * process, and keep it. Options that are given for one lock change those of this Locks; of several the later ones count.
 */
public final class Locks implements AutoCloseable {
    final Servers servers;
    final Wire wire;
    final Ears ears;
    /** Until nothing is left to give back. */
    final Set<Ask> asks = ConcurrentHashMap.newKeySet();
    /** Of each name the newest acquisition whose first ask is not answered: the next one asks after it. */
    final Map<String, CompletableFuture<Void>> asking = new ConcurrentHashMap<>();
    private final LockOptions defaults;
    private final Hooks hooks;
    private final String ownerId;
    private final ThreadLocal<Map<String, Held>> mine = ThreadLocal.withInitial(ConcurrentHashMap::new);
    private volatile boolean isClosed;

    private Locks(RedisClient one, RedisURI uri, RedisClusterClient cluster, LockOptions[] options) {
        defaults = LockOptions.merged(null, options);
        hooks = defaults.get("hooks", null);
        ownerId = defaults.get("ownerId", UUID.randomUUID().toString());
        servers = new Servers(one, uri, cluster, defaults.nanos("commandTimeout", 5));
        wire = new Wire(servers, defaults);
        ears = new Ears(servers);
        Time.at(Time.now(), () -> {}); // The timer's thread starts now: later none may be left.
    }

    /** At the server of the URI, or the master that its Sentinels name. */
    public static Locks of(RedisClient client, RedisURI uri, LockOptions... options) {
        LockOptions.range("the client", client != null, "a RedisClient of Lettuce", client);
        LockOptions.range("the URI", uri != null, "a RedisURI of Lettuce", uri);
        return new Locks(client, uri, null, options);
    }

    /** At a cluster. */
    public static Locks of(RedisClusterClient client, LockOptions... options) {
        LockOptions.range("the client", client != null, "a RedisClusterClient of Lettuce", client);
        return new Locks(null, null, client, options);
    }

    /** The lock. NotInTime: not within the wait. An interrupt leaves the queue. */
    public Held acquire(String name, LockOptions... options) throws InterruptedException {
        return acquire(name, checked(name, options), true, false);
    }

    /** The lock if it is available at once. */
    public Optional<Held> tryAcquire(String name, LockOptions... options) throws InterruptedException {
        LockOptions all = checked(name, options).wait(Duration.ZERO);
        return inTime(() -> acquire(name, all, true, false));
    }

    /** What waits for a lock. */
    interface Acquiring<E extends Exception> { Held acquire() throws E; }

    /** Empty: not in time. */
    static <E extends Exception> Optional<Held> inTime(Acquiring<E> work) throws E {
        try {
            return Optional.of(work.acquire());
        } catch (FairlockException.NotReplicated error) {
            throw error;
        } catch (FairlockException.NotInTime error) {
            if (error.getCause() != null) throw error; // The server could not be reached.
            return Optional.empty();
        }
    }

    /** A {@link java.util.concurrent.locks.Lock}. It has owners of its own, and is not shared. */
    public FairLock get(String name, LockOptions... options) {
        LockOptions all = checked(name, options);
        LockOptions.range("the options of get", all.get("owner", null) == null && all.byModule() == null, "without owner, session, shared and limit", name);
        return new FairLock(this, name, all.reentrant(true));
    }

    /** The holder of the lock, and how many wait for it. */
    public LockInfo info(String name) {
        long longest = checked(name).nanos("retryTimeout", 30);
        var reply = Time.again(() -> wire.send(LockOptions.options(), null, List.of("FAIRLOCK.INFO", name)), longest);
        return LockInfo.of((List<?>) finished(reply).value());
    }

    /** Whether the server has the module; false: locks are taken by scripts. Empty: it was not asked yet. */
    public Optional<Boolean> isNative() {
        return Optional.ofNullable(wire.isNative.get());
    }

    private LockOptions checked(String name, LockOptions... options) {
        LockOptions.range("the name", name != null && !name.isEmpty(), "there", name);
        if (isClosed) {
            throw closed(name);
        }
        return LockOptions.merged(defaults, options);
    }

    /** What FairLock does. A lock that the thread holds through Redisson gets one more hold: then nothing may be sent twice. */
    Held lock(String name, LockOptions options, boolean isDeaf) throws InterruptedException {
        String owner = ownerId + ":" + Thread.currentThread().getId();
        boolean isShared = defaults.get("ownerId", null) != null && mine(name) == null && owner.equals(info(name).owner());
        return acquire(name, options.owner(owner), !isShared, isDeaf);
    }

    /** What the thread holds and may hold again, or null. */
    Held mine(String name) {
        return mine.get().get(name);
    }

    private Held acquire(String name, LockOptions options, boolean isOnce, boolean isDeaf) throws InterruptedException {
        boolean isReentrant = options.get("reentrant", false);
        Held known = isReentrant ? mine(name) : null;
        if (known != null && known.holdAgain()) {
            return known;
        } else if (!isDeaf && Thread.interrupted()) {
            throw new InterruptedException();
        }
        long began = Time.now();
        Ask ask = new Ask(this, name, options, isOnce, isDeaf);
        ask.run();
        Held held = new Held(ask, isReentrant ? mine.get() : new ConcurrentHashMap<>());
        tell(each -> each.onAcquired(new LockEvent(name, held.owner(), held.token(), Duration.ofNanos(Time.now() - began), null, null)));
        return held;
    }

    /** Ends all waits with Closed, and the connections. Locks that are held are lost; the client stays open. */
    @Override
    public void close() {
        isClosed = true;
        List<Ask> all = List.copyOf(asks);
        all.forEach(ask -> ask.close(closed(ask.ear.name)));
        // Some leave still, or are being released.
        CompletableFuture.allOf(all.stream().map(ask -> ask.over).toArray(CompletableFuture<?>[]::new))
                .completeOnTimeout(null, defaults.nanos("commandTimeout", 5), TimeUnit.NANOSECONDS).join();
        // A client that is shut down at once would find them half closed, and say so in the log.
        servers.close().exceptionally(error -> null).completeOnTimeout(null, 1, TimeUnit.SECONDS).join();
    }

    private FairlockException closed(String name) {
        return new FairlockException.Closed(servers.where(name) + ": Locks is closed");
    }

    /** Its result; what failed is thrown. An interrupt waits. */
    static <T> T finished(CompletableFuture<T> work) {
        try {
            return work.join();
        } catch (CompletionException error) {
            throw (FairlockException) FairlockException.of("", error).fillInStackTrace();
        }
    }

    void tell(Consumer<Hooks> what) {
        try {
            if (hooks != null) {
                what.accept(hooks);
            }
        } catch (RuntimeException | Error error) {
            Wire.LOG.log(Level.WARNING, "a hook has failed", error);
        }
    }

    /** Calls the user's code, which may block, on another thread; if none can be had, on this one. */
    static void background(Runnable work) {
        try {
            CompletableFuture.runAsync(work);
        } catch (RuntimeException | OutOfMemoryError error) {
            work.run();
        }
    }
}
