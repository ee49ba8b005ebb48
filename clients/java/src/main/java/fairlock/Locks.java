package fairlock;

import fairlock.FairlockException.LockLost.Cause;
import io.lettuce.core.RedisClient;
import io.lettuce.core.RedisURI;
import io.lettuce.core.cluster.RedisClusterClient;
import java.lang.System.Logger.Level;
import java.time.Duration;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.Set;
import java.util.UUID;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.CompletionException;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.TimeoutException;
import java.util.function.Consumer;
import java.util.function.Supplier;

/**
 * Takes fair locks at one server, at the master that Sentinels name, or at a cluster, by connections that a client of Lettuce makes. Make one for the
 * process, and keep it.
 */
public final class Locks implements AutoCloseable {
    final Timer timer = new Timer();
    final Wire wire;
    final Ears ears;
    final Set<Asker> askers = ConcurrentHashMap.newKeySet();
    final Set<Keeper> keepers = ConcurrentHashMap.newKeySet();
    final long commandFor;
    final long retryFor;
    final long releaseFor;
    private final LockOptions defaults;
    private final Hooks hooks;
    private final String ownerId;
    private final ThreadLocal<Map<String, Keeper>> mine = ThreadLocal.withInitial(ConcurrentHashMap::new);
    /** Of each name the newest acquisition whose first ask is not answered: the next one asks after it. */
    private final Map<String, Asker> asking = new ConcurrentHashMap<>();
    private volatile boolean isClosed;

    private Locks(Servers servers, LockOptions options) {
        defaults = LockOptions.range("options", options != null, "there", options);
        hooks = options.get("hooks", null);
        ownerId = options.get("ownerId", UUID.randomUUID().toString());
        commandFor = options.nanos("commandTimeout", 5);
        retryFor = options.nanos("retryTimeout", 30);
        releaseFor = options.nanos("releaseTimeout", 5);
        wire = new Wire(servers, timer, commandFor, options.get("module", LockOptions.Module.AUTO) == LockOptions.Module.REQUIRED);
        ears = new Ears(wire);
        timer.scheduleWithFixedDelay(ears::sweep, 1, 1, TimeUnit.SECONDS);
    }

    /** Locks with default options, at the server of the URI, or the master that its Sentinels name. */
    public static Locks of(RedisClient client, RedisURI uri) {
        return of(client, uri, LockOptions.options());
    }

    /** The same with options for all its locks. */
    public static Locks of(RedisClient client, RedisURI uri, LockOptions options) {
        LockOptions.range("the client", client != null, "a RedisClient of Lettuce", client);
        LockOptions.range("the URI", uri != null, "a RedisURI of Lettuce", uri);
        return new Locks(new Servers(client, uri, null), options);
    }

    /** Locks with default options, at a cluster. */
    public static Locks of(RedisClusterClient client) {
        return of(client, LockOptions.options());
    }

    /** The same with options for all its locks. */
    public static Locks of(RedisClusterClient client, LockOptions options) {
        LockOptions.range("the client", client != null, "a RedisClusterClient of Lettuce", client);
        return new Locks(new Servers(null, null, client), options);
    }

    /** The lock, with the options of this Locks. */
    public Held acquire(String name) throws InterruptedException {
        return acquire(name, LockOptions.options());
    }

    /** The lock. NotInTime: not within the wait. An interrupt leaves the queue. */
    public Held acquire(String name, LockOptions options) throws InterruptedException {
        return new Held(acquire(name, checked(name, options), true, false));
    }

    /** The lock if it is available at once, with the options of this Locks. */
    public Optional<Held> tryAcquire(String name) throws InterruptedException {
        return tryAcquire(name, LockOptions.options());
    }

    /** The lock if it is available at once. */
    public Optional<Held> tryAcquire(String name, LockOptions options) throws InterruptedException {
        try {
            return Optional.of(acquire(name, options.wait(Duration.ZERO)));
        } catch (FairlockException.NotReplicated error) {
            throw error;
        } catch (FairlockException.NotInTime error) {
            return Optional.empty();
        }
    }

    /** A {@link java.util.concurrent.locks.Lock}, with the options of this Locks. */
    public FairLock get(String name) {
        return get(name, LockOptions.options());
    }

    /** A {@link java.util.concurrent.locks.Lock}. It has owners of its own, and is not shared. */
    public FairLock get(String name, LockOptions options) {
        LockOptions all = checked(name, options);
        boolean isPlain = all.get("owner", null) == null && all.get("limit", null) == null && !all.get("shared", false) && !all.get("session", false);
        LockOptions.range("the options of get", isPlain, "without owner, session, shared and limit", name);
        return new FairLock(this, name, all.reentrant(true));
    }

    /** The holder of the lock, and how many wait for it. */
    public LockInfo info(String name) {
        checked(name, LockOptions.options());
        return finished(again(() -> wire.info(name), Timer.now() + retryFor));
    }

    /** Whether the server has the module; false: locks are taken by scripts. Empty: it was not asked yet. */
    public Optional<Boolean> isNative() {
        return Optional.ofNullable(wire.isNative);
    }

    private LockOptions checked(String name, LockOptions options) {
        LockOptions.range("the name", name != null && !name.isEmpty(), "there", name);
        LockOptions.range("the options", options != null, "there", options);
        if (isClosed) {
            throw new FairlockException.Closed(where(name) + ": Locks is closed");
        }
        return options.within(defaults);
    }

    /** What FairLock does. A lock that the thread holds through Redisson gets one more hold: then nothing may be sent twice. */
    void lock(String name, LockOptions options, boolean isDeaf) throws InterruptedException {
        String owner = ownerId + ":" + Thread.currentThread().getId();
        boolean isShared = defaults.get("ownerId", null) != null && !mine.get().containsKey(name) && owner.equals(info(name).owner());
        acquire(name, options.owner(owner), !isShared, isDeaf);
    }

    Map<String, Keeper> mine() {
        return mine.get();
    }

    private Keeper acquire(String name, LockOptions options, boolean isOnce, boolean isDeaf) throws InterruptedException {
        boolean isReentrant = options.get("reentrant", false);
        Keeper known = isReentrant ? mine.get().get(name) : null;
        if (known != null && known.holdAgain()) {
            return known;
        } else if (!isDeaf && Thread.interrupted()) {
            throw new InterruptedException();
        }
        long began = Timer.now();
        Asker asker = begun(name, options, isOnce);
        boolean wasInterrupted = false;
        if (hooks != null) {
            wasInterrupted = awaited(asker, asker.waiting, isDeaf);
            if (asker.ask.isWaiting) {
                tell(each -> each.onWait(new LockEvent(name, asker.ear.owner, null, null, null, null)));
            }
        }
        wasInterrupted |= awaited(asker, asker.decided, isDeaf);
        if (!asker.ask.isHeld) {
            asker.over.copy().completeOnTimeout(null, 1, TimeUnit.SECONDS).join(); // It goes on leaving in the background.
        }
        if (wasInterrupted && isDeaf) {
            Thread.currentThread().interrupt();
        }
        if (!asker.ask.isHeld) {
            if (asker.ask.refusal instanceof InterruptedException error) {
                throw error;
            }
            throw (FairlockException) asker.ask.refusal.fillInStackTrace();
        }
        Keeper keeper = new Keeper(this, asker, options, isOnce, isReentrant ? mine.get() : new ConcurrentHashMap<>());
        if (wasInterrupted && !isDeaf) {
            background(keeper::release);
            throw new InterruptedException();
        }
        tell(each -> each.onAcquired(new LockEvent(name, keeper.owner, keeper.token, Duration.ofNanos(Timer.now() - began), null, null)));
        return keeper;
    }

    private Asker begun(String name, LockOptions options, boolean isOnce) {
        Asker asker = new Asker(this, name, options, isOnce);
        askers.add(asker);
        Asker before = asking.put(name, asker);
        asker.asked.thenRun(() -> asking.remove(name, asker));
        if (isClosed) {
            asker.leave(new FairlockException.Closed(where(name) + ": Locks was closed"));
        } else if (before == null) {
            asker.go();
        } else {
            before.asked.thenRun(asker::go);
        }
        return asker;
    }

    /** Waits, and takes the acquisition back at an interrupt. True: there was one. */
    private boolean awaited(Asker asker, CompletableFuture<Void> what, boolean isDeaf) {
        boolean wasInterrupted = false;
        while (!what.isDone()) {
            try {
                what.get(Math.max(Timer.MS, asker.ask.deadline - Timer.now()), TimeUnit.NANOSECONDS);
            } catch (TimeoutException error) {
                asker.go();
            } catch (InterruptedException error) {
                wasInterrupted = true;
                if (!isDeaf) {
                    asker.leave(error);
                }
            } catch (ExecutionException error) {
                throw new IllegalStateException(error);
            }
        }
        return wasInterrupted;
    }

    /** Ends all waits with Closed, and the connections. Locks that are held are lost; the client stays open. */
    @Override
    public void close() {
        isClosed = true;
        List<Asker> leaving = List.copyOf(askers);
        leaving.forEach(asker -> asker.leave(new FairlockException.Closed(where(asker.ear.name) + ": Locks was closed")));
        keepers.forEach(keeper -> keeper.lose(Cause.CLOSED));
        CompletableFuture.allOf(leaving.stream().map(asker -> asker.over).toArray(CompletableFuture<?>[]::new))
                .completeOnTimeout(null, commandFor, TimeUnit.NANOSECONDS).join();
        wire.close();
        timer.shutdownNow();
    }

    String where(String name) {
        return name + ": " + wire.servers.where(name);
    }

    /** Does it until it succeeds, again after passing failures. */
    <T> CompletableFuture<T> again(Supplier<CompletableFuture<T>> work, long end) {
        return again(work, new Protocol.Tries(Timer.EVER), end);
    }

    private <T> CompletableFuture<T> again(Supplier<CompletableFuture<T>> work, Protocol.Tries tries, long end) {
        return CompletableFuture.completedFuture(work).thenCompose(Supplier::get).exceptionallyCompose(error -> {
            FairlockException failure = FairlockException.of("", error, true);
            long next = tries.next(failure, Timer.now());
            return next < 0 || next > end ? CompletableFuture.failedFuture(failure) : timer.pause(next).thenCompose(now -> again(work, tries, end));
        });
    }

    /** Its result; what failed is thrown. An interrupt waits. */
    static <T> T finished(CompletableFuture<T> work) {
        try {
            return work.join();
        } catch (CompletionException error) {
            throw (FairlockException) FairlockException.of("", error, true).fillInStackTrace();
        }
    }

    void tell(Consumer<Hooks> what) {
        try {
            if (hooks != null) {
                what.accept(hooks);
            }
        } catch (RuntimeException error) {
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
