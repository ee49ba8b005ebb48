package fairlock.internal;

import fairlock.ClosedException;
import fairlock.FairlockException;
import fairlock.LockLostException.Cause;
import fairlock.internal.Backend.Ears;
import fairlock.internal.Backend.Line;
import java.util.ArrayDeque;
import java.util.ArrayList;
import java.util.Deque;
import java.util.HashMap;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.TimeUnit;
import java.util.function.Supplier;

/** The connections of a Locks, the commands on them that no waiter can hold up, and its end. */
final class Core {
    private static final int MAX_IDLE = 16;
    private static final long ALONE_FOR = TimeUnit.SECONDS.toNanos(1);

    /** Connections that all threads share. */
    enum Kind { ASK, CONTROL }

    private record Key(Kind kind, Address address) {}

    /** What a command came to, and whether an earlier try of it may have been done. */
    record Answer(List<Object> reply, boolean mayBeDone) {
        Object only() {
            return reply.get(0);
        }
    }

    final Backend backend;
    final Settings settings;
    final Clock clock = new Clock();
    final Set<Keep> kept = ConcurrentHashMap.newKeySet();
    /** For the fake: why locks were lost whose holders may not know of them yet, by token. */
    private final Map<Long, Cause> gone = new ConcurrentHashMap<>();
    /** What this thread holds and may hold again, by name. */
    final ThreadLocal<Map<String, Keep>> mine = ThreadLocal.withInitial(ConcurrentHashMap::new);
    /** The same for locks that the server counts. */
    final ThreadLocal<Map<String, Keep>> counted = ThreadLocal.withInitial(ConcurrentHashMap::new);

    private final Map<Key, CompletableFuture<Line>> shared = new HashMap<>();
    private final Map<Address, CompletableFuture<Ears>> ears = new HashMap<>();
    private final Map<Address, Deque<Line>> idle = new HashMap<>();
    private final Set<Line> busy = new HashSet<>();
    private final Set<Ask> asking = new HashSet<>();
    private final Map<String, Long> alone = new ConcurrentHashMap<>();
    /** Done when closing begins: the end of every pause. */
    final CompletableFuture<Void> closing = new CompletableFuture<>();
    private boolean isClosed;

    Core(Backend backend, Settings settings) {
        this.backend = backend;
        this.settings = settings;
    }

    void checkOpen() {
        if (closing.isDone()) {
            throw new ClosedException("Locks is closed", null, null);
        }
    }

    synchronized void begin(Ask ask) {
        checkOpen();
        asking.add(ask);
    }

    synchronized void end(Ask ask) {
        asking.remove(ask);
        notifyAll();
    }

    // ------------------------------------------------------------------------- connections

    /** The node that has the lock; null: there is one server. */
    Address address(String name, boolean isDeaf) throws Failure, InterruptedException {
        Route route;
        try {
            route = backend.route();
        } catch (RuntimeException error) {
            throw Failure.broken(error.getMessage(), error);
        }
        if (route.isCluster && route.address(name) == null) {
            readSlots(route, isDeaf);
            if (route.address(name) == null) {
                throw Failure.refusal("CLUSTERDOWN no node has the slot");
            }
        }
        return route.address(name);
    }

    private void readSlots(Route route, boolean isDeaf) throws Failure, InterruptedException {
        Failure last = Failure.broken("no node of the cluster is known", null);
        for (Address node : route.nodes()) {
            try {
                route.learn(call(Kind.CONTROL, node, isDeaf, "CLUSTER", "SLOTS"), node);
                return;
            } catch (Failure failure) {
                last = failure;
            }
        }
        throw last;
    }

    /** The connection of this kind that all threads share; made if it is not there. */
    CompletableFuture<Line> line(Kind kind, Address address) {
        Key key = new Key(kind, address);
        CompletableFuture<Line> made;
        synchronized (this) {
            if (isClosed) {
                throw new ClosedException("Locks is closed", null, null);
            }
            CompletableFuture<Line> there = shared.get(key);
            if (there != null) {
                return there;
            }
            made = new CompletableFuture<>();
            shared.put(key, made);
        }
        backend.open(address).whenComplete((line, error) -> {
            if (error != null) {
                forget(shared, key, made);
                made.completeExceptionally(error.getCause() == null ? error : error.getCause());
                return;
            }
            line.onClosed(() -> forget(shared, key, made));
            made.complete(line);
            closeIfLate(line::close);
        });
        return made;
    }

    /** The connection for wake-ups; made if it is not there. */
    CompletableFuture<Ears> ears(Address address) {
        CompletableFuture<Ears> made;
        synchronized (this) {
            CompletableFuture<Ears> there = ears.get(address);
            if (there != null) {
                return there;
            }
            made = new CompletableFuture<>();
            ears.put(address, made);
        }
        backend.listen(address).whenComplete((one, error) -> {
            if (error != null) {
                forget(ears, address, made);
                made.completeExceptionally(error.getCause() == null ? error : error.getCause());
                return;
            }
            made.complete(one);
            closeIfLate(one::close);
        });
        return made;
    }

    private void closeIfLate(Runnable close) {
        synchronized (this) {
            if (!isClosed) {
                return;
            }
        }
        close.run();
    }

    private synchronized <K, V> void forget(Map<K, V> map, K key, V value) {
        map.remove(key, value);
    }

    /** After a failure: what is shared may be of the past. Closing it tells all who wait on it. */
    void distrust(Kind kind, Address address, CompletableFuture<Line> line) {
        CompletableFuture<Ears> deaf = null;
        synchronized (this) {
            if (!shared.remove(new Key(kind, address), line)) {
                return; // Another has done so.
            }
            deaf = kind == Kind.ASK ? ears.remove(address) : null;
        }
        line.thenAccept(Line::close);
        if (deaf != null) {
            deaf.thenAccept(Ears::close);
        }
        backend.route().forget();
    }

    /** A subscription that has ended makes room for another. */
    void distrust(Address address, CompletableFuture<Ears> one) {
        forget(ears, address, one);
        one.thenAccept(Ears::close);
    }

    /** A command on a shared connection, once. */
    List<Object> call(Kind kind, Address address, boolean isDeaf, Object... words) throws Failure, InterruptedException {
        CompletableFuture<Line> line = line(kind, address);
        try {
            return Waits.on(line.thenCompose(each -> each.call(words)), settings.commandNanos(), isDeaf);
        } catch (Failure failure) {
            if (failure.isBroken() || failure.is("READONLY")) {
                distrust(kind, address, line);
            } else if (failure.is("CLUSTERDOWN")) {
                backend.route().forget();
            }
            throw failure;
        }
    }

    /** A connection for one thread, until it is given back or dropped. */
    Line take(Address address, boolean isDeaf) throws Failure, InterruptedException {
        synchronized (this) {
            checkOpen();
            Deque<Line> there = idle.get(address);
            if (there != null && !there.isEmpty()) {
                Line line = there.pop();
                busy.add(line);
                return line;
            }
        }
        CompletableFuture<Line> opening = backend.open(address);
        try {
            Line line = Waits.on(opening, settings.commandNanos(), isDeaf);
            synchronized (this) {
                busy.add(line);
                checkOpen();
            }
            return line;
        } catch (Failure | InterruptedException | FairlockException error) {
            opening.thenAccept(this::drop);
            throw error;
        }
    }

    void give(Address address, Line line) {
        synchronized (this) {
            Deque<Line> there = idle.computeIfAbsent(address, any -> new ArrayDeque<>());
            if (!isClosed && there.size() < MAX_IDLE) {
                busy.remove(line);
                there.push(line);
                return;
            }
        }
        drop(line);
    }

    void drop(Line line) {
        synchronized (this) {
            busy.remove(line);
        }
        line.close();
    }

    /** After a failure, those that are idle may have ended, too. */
    void dropIdle(Address address) {
        Deque<Line> stale;
        synchronized (this) {
            stale = idle.remove(address);
        }
        if (stale != null) {
            stale.forEach(Line::close);
        }
    }

    boolean isAlone(Address address) {
        Long until = alone.get(String.valueOf(address));
        return until != null && until - System.nanoTime() > 0;
    }

    void setAlone(Address address) {
        alone.put(String.valueOf(address), System.nanoTime() + ALONE_FOR);
    }

    // ---------------------------------------------------------------------------- commands

    /**
     * A command on a connection that no waiter can hold up, tried for so long. A refusal that does not pass is a Failure;
     * UnavailableException: it has been long enough. Interrupts wait until it is over.
     */
    Answer control(String name, long longest, Object... words) throws Failure {
        Tries tries = new Tries(longest);
        Address asking = null;
        boolean mayBeDone = false;
        while (true) {
            Address address = null;
            try {
                address = asking != null ? asking : address(name, true);
                List<Object> reply =
                        asking != null ? once(address, words) : call(Kind.CONTROL, address, true, words);
                return new Answer(reply, mayBeDone);
            } catch (Failure failure) {
                asking = null;
                failure.mayBeDone = mayBeDone;
                if ((failure.is("MOVED") || failure.is("ASK")) && tries.mayRedirect()) {
                    Address named = backend.route().redirect(failure, address);
                    asking = failure.is("ASK") ? named : null;
                    continue;
                }
                if (!failure.isPassing()) {
                    throw failure;
                }
                mayBeDone = mayBeDone || failure.isBroken();
                quietly(new CompletableFuture<>(), tries.after(failure, Waits.EVER));
            } catch (InterruptedException error) {
                throw new IllegalStateException(error);
            }
        }
    }

    /** A command at the node that an ASK has named, on a connection where nothing comes between ASKING and it. */
    List<Object> once(Address address, Object... words) throws Failure, InterruptedException {
        Line line = Waits.on(backend.open(address), settings.commandNanos(), true);
        try {
            Waits.on(line.call("ASKING"), settings.commandNanos(), true);
            return Waits.on(line.call(words), settings.commandNanos(), true);
        } finally {
            line.close();
        }
    }

    /** The same as {@link #control} for those that have no use for a Failure. */
    Answer controlled(String name, long longest, Object... words) {
        try {
            return control(name, longest, words);
        } catch (Failure failure) {
            throw translated(name, failure);
        }
    }

    FairlockException translated(String name, Failure failure) {
        Address address = backend.route().address(name);
        return failure.translated(backend.describe(address));
    }

    /** Pauses; an interrupt waits. */
    static void quietly(CompletableFuture<?> end, long nanos) {
        try {
            Waits.pause(end, nanos, true);
        } catch (InterruptedException error) {
            throw new IllegalStateException(error);
        }
    }

    // -------------------------------------------------------------------------------- fake

    /** The locks with these tokens are lost, at once or as soon as their holders know of them. */
    void lose(List<Long> tokens, Cause cause) {
        for (Long token : tokens) {
            gone.put(token, cause);
            kept.stream().filter(keep -> keep.token == token).forEach(this::loseIfGone);
        }
    }

    /** For a holder that has just learned that it has the lock. */
    void loseIfGone(Keep keep) {
        Cause cause = gone.remove(keep.token);
        if (cause != null) {
            keep.lose(cause);
        }
    }

    // --------------------------------------------------------------------------------- end

    /** Ends all waits, which leave their queues; then all connections. Held locks are lost to us. */
    void close() {
        closing.complete(null);
        List<Ask> waiting;
        List<Line> blocked;
        synchronized (this) {
            waiting = new ArrayList<>(asking);
            blocked = new ArrayList<>(busy);
        }
        kept.forEach(keep -> keep.lose(Cause.CLOSED));
        blocked.forEach(Line::close);
        waiting.forEach(Ask::wake);
        awaitAsks();
        List<Supplier<CompletableFuture<Void>>> all = new ArrayList<>();
        synchronized (this) {
            isClosed = true;
            shared.values().forEach(line -> all.add(() -> line.thenAccept(Line::close)));
            ears.values().forEach(one -> all.add(() -> one.thenAccept(Ears::close)));
            idle.values().forEach(lines -> lines.forEach(line -> all.add(() -> {
                line.close();
                return null;
            })));
            busy.forEach(line -> all.add(() -> {
                line.close();
                return null;
            }));
        }
        all.forEach(Supplier::get);
        clock.close();
        backend.close();
    }

    synchronized boolean isClosed() {
        return isClosed;
    }

    private synchronized void awaitAsks() {
        long end = System.nanoTime() + settings.commandNanos();
        boolean wasInterrupted = false;
        while (!asking.isEmpty() && end - System.nanoTime() > 0) {
            try {
                TimeUnit.NANOSECONDS.timedWait(this, Math.max(1_000_000, end - System.nanoTime()));
            } catch (InterruptedException error) {
                wasInterrupted = true;
            }
        }
        if (wasInterrupted) {
            Thread.currentThread().interrupt();
        }
    }
}
