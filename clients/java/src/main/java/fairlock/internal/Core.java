package fairlock.internal;

import fairlock.ClosedException;
import fairlock.LockInfo;
import fairlock.LockLostException.Cause;
import fairlock.LockOptions;
import fairlock.internal.Lines.Kind;
import java.lang.System.Logger.Level;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicBoolean;

/** The locks and acquisitions of a Locks, the commands that no waiter can delay, and closing. */
final class Core {
    final Backend backend;
    final Settings settings;
    final Clock clock = new Clock();
    final Set<Keep> kept = ConcurrentHashMap.newKeySet();
    /** What this thread holds and may hold again, by name. */
    final ThreadLocal<Map<String, Keep>> mine = ThreadLocal.withInitial(ConcurrentHashMap::new);
    /** The same for locks that the server counts. */
    final ThreadLocal<Map<String, Keep>> counted = ThreadLocal.withInitial(ConcurrentHashMap::new);

    final Lines lines;
    private final AtomicBoolean isWarned = new AtomicBoolean();
    private final Watch watch = new Watch(this);
    private final Set<Ask> asking = new HashSet<>();
    /** Done when closing begins: the end of every pause. */
    final CompletableFuture<Void> closing = new CompletableFuture<>();

    Core(Backend backend, Settings settings) {
        this.backend = backend;
        this.settings = settings;
        boolean isModuleRequired = settings.defaults().get("module", LockOptions.Module.AUTO) == LockOptions.Module.REQUIRED;
        lines = new Lines(backend, settings.commandNanos(), isModuleRequired, this::lost, this::warn);
    }

    void checkOpen() {
        if (closing.isDone()) {
            throw new ClosedException("Locks is closed", null, null);
        }
    }

    /** The server does not have the module, or denies it: what scripts cannot do is refused. */
    void byScripts(Address address, Options options) throws Failure {
        if (options.module() == LockOptions.Module.REQUIRED || options.beyondScripts() != null) {
            if (lines.denied(address) != null) {
                throw lines.denied(address);
            }
            throw Failure.noModule(address, options.beyondScripts());
        }
        warn(address);
    }

    private void warn(Address address) {
        if (isWarned.compareAndSet(false, true)) {
            boolean isDenied = lines.denied(address) != null;
            Settings.LOG.log(Level.WARNING, address + (isDenied
                    ? ": the user may not run the commands of the fairlock module"
                    : ": the server does not have the fairlock module") + ": locks are taken by scripts. "
                    + (isDenied ? "Allow them" : "Load it") + " for hand-off, sessions and shared locks, "
                    + "or set module to \"required\" to refuse");
        }
    }

    void begin(Ask ask) {
        synchronized (this) {
            checkOpen();
            asking.add(ask);
        }
        watch.begin();
    }

    synchronized void end(Ask ask) {
        asking.remove(ask);
        notifyAll();
    }

    void begin(Keep keep) {
        kept.add(keep);
        watch.begin();
    }

    /** Whether a change of master would affect nothing. */
    synchronized boolean isIdle() {
        return asking.isEmpty() && kept.isEmpty();
    }

    /** The connection has ended, and perhaps the server: are the locks still there? */
    private void lost(Address address) {
        if (!closing.isDone()) {
            kept.stream().filter(keep -> keep.isAt(address)).forEach(Keep::doubt);
        }
    }

    // ---------------------------------------------------------------------------- commands

    /** Sends a command. */
    private interface Way<T> {
        T send(Address address, boolean isAsking) throws Failure, InterruptedException;
    }

    /** Tries for a time; UnavailableException: the time is up. Interrupts take effect afterwards. */
    private <T> T tried(String name, long longest, Way<T> way) throws Failure {
        Tries tries = new Tries(name, longest);
        Address asking = null;
        boolean mayBeDone = false;
        while (true) {
            Address address = asking;
            try {
                address = asking != null ? asking : lines.address(name, true);
                return way.send(address, asking != null);
            } catch (Failure failure) {
                failure.at(address);
                asking = null;
                mayBeDone = mayBeDone || failure.isBroken();
                failure.mayBeDone = mayBeDone;
                if ((failure.is("MOVED") || failure.is("ASK")) && tries.mayRedirect()) {
                    Address named = lines.route().redirect(failure, address);
                    asking = failure.is("ASK") ? named : null;
                    continue;
                }
                if (!failure.isPassing()) {
                    throw failure;
                }
                quietly(new CompletableFuture<>(), tries.after(failure, Waits.EVER));
            } catch (InterruptedException error) {
                throw new IllegalStateException(error);
            }
        }
    }

    /** A command on a connection that no waiter can delay. A lasting refusal is a Failure. */
    List<Object> control(String name, long longest, Object... words) throws Failure {
        return tried(name, longest, (address, isAsking) -> isAsking
                ? lines.once(address, words)
                : lines.call(Kind.CONTROL, address, true, words));
    }

    /** Sets a lease, once; returns where it was set, and whether enough replicas have it. */
    Map.Entry<Address, Confirm.Outcome> renew(String name, String owner, long lease, Confirm.Need need) throws Failure {
        return tried(name, 0, (address, isAsking) ->
                Map.entry(address, confirmed(address, isAsking, need, true, name, owner, lease)));
    }

    /** The same at one server. */
    Confirm.Outcome confirmed(Address address, boolean isAsking, Confirm.Need need, boolean isDeaf, String name,
            String owner, long lease) throws Failure, InterruptedException {
        CompletableFuture<Confirm.Outcome> outcome =
                lines.confirm(address).renew(need, isAsking, "FAIRLOCK.RENEW", name, owner, "LEASE", lease);
        // Twice: the one before may be waiting for replicas.
        return Waits.on(outcome, 2 * (Options.nanos(need.timeout()) + settings.commandNanos()), isDeaf);
    }

    /** A lock's state. */
    LockInfo info(String name, long longest) throws Failure {
        List<Object> reply = control(name, longest, "FAIRLOCK.INFO", name);
        Map<String, Object> fields = new HashMap<>();
        for (int index = 0; index + 1 < reply.size(); index += 2) {
            fields.put((String) reply.get(index), reply.get(index + 1));
        }
        return new LockInfo((String) fields.get("owner"), (Long) fields.get("holds"), (Long) fields.get("lease"),
                (Long) fields.get("token"), fields.get("session").equals(1L), (Long) fields.get("waiting"),
                (Long) fields.get("holders"), (Long) fields.get("limit"));
    }

    /** Pauses; an interrupt waits. */
    static void quietly(CompletableFuture<?> end, long nanos) {
        try {
            Waits.pause(end, nanos, true);
        } catch (InterruptedException error) {
            throw new IllegalStateException(error);
        }
    }

    // --------------------------------------------------------------------------------- end

    /** Ends all waits, which leave their queues; then all connections. Held locks are lost. */
    void close() {
        closing.complete(null);
        List<Ask> waiting;
        synchronized (this) {
            waiting = new ArrayList<>(asking);
        }
        kept.forEach(keep -> keep.lose(Cause.CLOSED));
        lines.endOwn();
        waiting.forEach(Ask::wake);
        awaitAsks();
        lines.close();
        clock.close();
        backend.close();
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
