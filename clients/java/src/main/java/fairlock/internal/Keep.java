package fairlock.internal;

import fairlock.FairlockException;
import fairlock.Hooks;
import fairlock.LockEvent;
import fairlock.LockLostException;
import fairlock.LockLostException.Cause;
import fairlock.RefusedException;
import fairlock.UnavailableException;
import fairlock.internal.Backend.Line;
import java.lang.System.Logger.Level;
import java.lang.ref.Reference;
import java.lang.ref.WeakReference;
import java.time.Duration;
import java.util.List;
import java.util.Map;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.TimeUnit;

/**
 * The package's side of a held lock: its renewal, how it is noticed that it was lost, and its release. It refers to the
 * user's side, {@link HeldLock}, and to the thread only weakly: where nobody has the one, or the other has ended, nobody can
 * release, and renewing would hold the lock for ever.
 */
final class Keep {
    private static final long SOON = TimeUnit.MILLISECONDS.toNanos(50);

    private enum State { HELD, LOST, RELEASED }

    final Core core;
    final String name;
    final String owner;
    final long token;
    final CompletableFuture<LockLostException> lost = new CompletableFuture<>();
    private final Options options;
    /** A session's own connection, or null. */
    private final Line line;
    /** Where the thread that holds it finds it again, or null. */
    private final Map<String, Keep> entered;
    private final long acquired;

    private Reference<HeldLock> held;
    private volatile Reference<Thread> holder = new WeakReference<>(Thread.currentThread());
    private State state = State.HELD;
    private int holds = 1;
    private Duration lease;
    private long end;
    private Runnable timer = () -> {};

    Keep(Ask ask, Ask.Grant grant, Map<String, Keep> entered) {
        core = ask.core;
        name = ask.name;
        owner = ask.owner;
        options = ask.options;
        token = grant.token();
        line = grant.line();
        lease = options.lease();
        acquired = grant.received();
        this.entered = entered;
        core.kept.add(this);
        if (entered != null) {
            entered.put(name, this);
        }
        begin(grant);
        if (line != null) {
            line.onClosed(() -> core.clock.start(() -> lose(Cause.CONNECTION)));
        }
        if (core.closing.isDone()) {
            lose(Cause.CLOSED);
        }
        Duration waited = Duration.ofNanos(acquired - ask.started);
        core.settings.tell(Hooks::onAcquired, new LockEvent(name, owner, token, waited, null, null));
        core.loseIfGone(this);
    }

    /** A process that was stopped while it waited may have lost the lock before it read that it has it. */
    private void begin(Ask.Grant grant) {
        long length = Options.nanos(lease);
        boolean isQuick = grant.received() - grant.sent() < length / 3;
        synchronized (this) {
            end = (isQuick ? grant.sent() : grant.received()) + length;
        }
        arm(isQuick ? length / 3 : 0);
    }

    // --------------------------------------------------------------------------- reentrancy

    /** The user's side: the one there is, or another if nobody has it any more. */
    synchronized HeldLock held() {
        HeldLock there = held == null ? null : held.get();
        if (there == null) {
            there = new HeldLock(this);
            held = new WeakReference<>(there);
        }
        return there;
    }

    synchronized HeldLock enterAgain() {
        if (state == State.LOST) {
            throw loss();
        }
        holds++;
        return held();
    }

    /** The server has counted another hold, and set the lease. */
    void countedAgain(Ask.Grant grant) {
        synchronized (this) {
            holds++;
        }
        begin(grant);
    }

    synchronized int holds() {
        return state == State.HELD ? holds : 0;
    }

    synchronized boolean isLost() {
        return state == State.LOST;
    }

    private void leave() {
        stopTimer();
        core.kept.remove(this);
        if (entered != null) {
            entered.remove(name, this);
        }
    }

    // ------------------------------------------------------------------------------ renewal

    private synchronized void stopTimer() {
        timer.run();
    }

    /** Sees to the next renewal, or to the end of the lease if that comes first. */
    private synchronized void arm(long due) {
        timer.run();
        boolean isTime = core.backend.hasLeases();
        long left = end - System.nanoTime();
        long next = options.renew() || line != null ? Math.min(due, left) : left;
        timer = state == State.HELD && isTime ? core.clock.later(Math.max(0, next), this::due) : () -> {};
    }

    private boolean isAbandoned() {
        Thread thread = holder.get();
        Reference<HeldLock> user;
        synchronized (this) {
            user = held;
        }
        return thread == null || !thread.isAlive() || (user != null && user.get() == null);
    }

    private void due() {
        long left;
        long third;
        synchronized (this) {
            if (state != State.HELD) {
                return;
            }
            left = end - System.nanoTime();
            third = Options.nanos(lease) / 3;
        }
        if (left <= 0) {
            lose(Cause.LEASE);
        } else if (isAbandoned()) {
            abandon();
        } else if (line != null) {
            check(line, third);
        } else if (!options.renew()) {
            arm(Waits.EVER);
        } else {
            arm(Waits.EVER); // The lease may end while the answer does not come.
            renewInTheBackground();
        }
    }

    private void abandon() {
        leave();
        if (line != null) {
            core.drop(line);
        }
    }

    private void renewInTheBackground() {
        try {
            renew(null);
        } catch (LockLostException error) {
            return;
        } catch (FairlockException error) {
            if (!(error instanceof UnavailableException)) {
                Settings.LOG.log(Level.WARNING, "the lock cannot be renewed: " + name, error);
            }
            long tenth;
            synchronized (this) {
                tenth = Options.nanos(lease) / 10;
            }
            arm(Math.max(tenth, SOON));
        }
    }

    /** A session lives as long as its connection, which is asked whether the lock is still there. */
    private void check(Line own, long third) {
        long sent = System.nanoTime();
        Duration length;
        long left;
        synchronized (this) {
            length = lease;
            left = end - sent;
        }
        try {
            Waits.deaf(own.call("FAIRLOCK.RENEW", name, owner, "LEASE", Options.ms(length)), Math.max(SOON, left));
            synchronized (this) {
                end = sent + Options.nanos(length);
            }
            arm(third);
        } catch (Failure failure) {
            lose(failure.is("NOTHELD") ? Cause.NOTHELD : Cause.CONNECTION);
        }
    }

    /** Called by the user: the thread that renews is the one that holds. */
    Duration renewByHand(Duration other) {
        holder = new WeakReference<>(Thread.currentThread());
        return renew(other);
    }

    /** Sets the lease anew; the end as far as this process knows moves only by this. */
    private Duration renew(Duration other) {
        Duration length;
        synchronized (this) {
            if (state == State.LOST) {
                throw loss();
            }
            if (state == State.RELEASED) {
                throw new RefusedException(name + ": the lock was released", null, null);
            }
            length = other == null ? lease : other;
        }
        long sent = System.nanoTime();
        List<Object> reply;
        try {
            reply = core.control(name, 0, "FAIRLOCK.RENEW", name, owner, "LEASE", Options.ms(length)).reply();
        } catch (Failure failure) {
            if (!failure.is("NOTHELD") || !lose(Cause.NOTHELD)) {
                throw core.translated(name, failure);
            }
            throw loss();
        }
        synchronized (this) {
            lease = length;
            end = sent + Options.nanos(length);
        }
        arm(Options.nanos(length) / 3);
        return Duration.ofMillis((Long) reply.get(0));
    }

    // --------------------------------------------------------------------------------- loss

    /** Whether it is lost now. */
    boolean lose(Cause cause) {
        synchronized (this) {
            if (state != State.HELD) {
                return state == State.LOST;
            }
            state = State.LOST;
        }
        lost.complete(new LockLostException(name, cause));
        stopTimer();
        core.kept.remove(this);
        if (line != null) {
            core.drop(line);
        }
        Duration length = Duration.ofNanos(System.nanoTime() - acquired);
        core.settings.tell(Hooks::onLost, new LockEvent(name, owner, token, null, length, cause));
        return true;
    }

    /** A new one for each that is told, with the stack of the caller. */
    LockLostException loss() {
        return new LockLostException(name, lost.join().cause());
    }

    // ------------------------------------------------------------------------------ release

    void release() {
        boolean wasLost;
        synchronized (this) {
            if (state == State.RELEASED) {
                return;
            }
            if (holds > 1) {
                holds--;
                return;
            }
            wasLost = state == State.LOST;
            state = State.RELEASED;
        }
        leave();
        if (wasLost) {
            if (lost.join().cause() == Cause.LEASE) {
                releaseIfStillOurs();
            }
            throw loss();
        }
        releaseNow();
        released();
    }

    /** One of the holds that the server counts is gone; whether it was the last. */
    boolean countedDown() {
        synchronized (this) {
            if (--holds > 0) {
                return false;
            }
            state = State.RELEASED;
        }
        leave();
        released();
        return true;
    }

    /** Before a last hold is given up there must be no renewal that would find it gone. */
    void stopRenewing() {
        stopTimer();
    }

    void forget() {
        leave();
    }

    private void released() {
        Duration length = Duration.ofNanos(System.nanoTime() - acquired);
        core.settings.tell(Hooks::onReleased, new LockEvent(name, owner, token, null, length, null));
    }

    private Object[] words() {
        return new Object[] {"FAIRLOCK.RELEASE", name, owner, "TOKEN", token};
    }

    private void releaseNow() {
        long left;
        synchronized (this) {
            left = Math.max(0, end - System.nanoTime());
        }
        try {
            core.control(name, Math.min(Options.nanos(core.settings.releaseTimeout()), left), words());
        } catch (UnavailableException error) {
            if (line == null) {
                throw error;
            } // The end of its connection frees the lock as well.
        } catch (Failure failure) {
            // If only the reply was lost, an earlier try has released it.
            if (failure.is("NOTHELD") && failure.mayBeDone) {
                return;
            }
            if (failure.is("NOTHELD")) {
                throw new LockLostException(name, Cause.NOTHELD);
            }
            throw core.translated(name, failure);
        } finally {
            if (line != null) {
                core.drop(line);
            }
        }
    }

    /** The lease is over by our clock only, perhaps. */
    private void releaseIfStillOurs() {
        try {
            core.control(name, 0, words());
        } catch (FairlockException | Failure error) {
            Settings.LOG.log(Level.DEBUG, "a lost lock was not there to release: " + name, error);
        }
    }
}
