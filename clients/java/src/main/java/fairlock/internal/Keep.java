package fairlock.internal;

import fairlock.FairlockException;
import fairlock.Hooks;
import fairlock.LockEvent;
import fairlock.LockInfo;
import fairlock.LockLostException;
import fairlock.LockLostException.Cause;
import fairlock.NotReplicatedException;
import fairlock.RefusedException;
import fairlock.UnavailableException;
import fairlock.internal.Backend.Line;
import java.lang.System.Logger.Level;
import java.lang.ref.Reference;
import java.lang.ref.WeakReference;
import java.time.Duration;
import java.util.Map;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.TimeUnit;

/**
 * The package's side of a held lock: its renewal, the detection of its loss, and its release. It has only weak
 * references to the user's side, {@link HeldLock}, and to the thread: when either is gone, no one can release the lock,
 * and renewing would hold it for ever.
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
    /** The server where it was held last. */
    private volatile Address at;
    /** Whether the lock may be gone. */
    private volatile boolean isDoubted;
    private boolean isChecking;
    /** Whether its last hold is being given up: a renewal could find it gone. */
    private boolean isEnding;
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
        at = grant.at();
        lease = options.lease();
        acquired = grant.received();
        this.entered = entered;
        core.begin(this);
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
    }

    /** Of a session, the server renews the lease as long as its connection is open. */
    private void begin(Ask.Grant grant) {
        long length = Options.nanos(lease);
        synchronized (this) {
            end = (line != null ? grant.received() : grant.sent()) + length;
        }
        arm(grant.sent() + length / 3 - System.nanoTime());
    }

    // --------------------------------------------------------------------------- reentrancy

    /** The user's side: the existing one, or a new one if it was collected. */
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

    /** Schedules the next renewal, or the end of the lease if that comes first. */
    private synchronized void arm(long due) {
        timer.run();
        long left = end - System.nanoTime();
        long next = options.renew() || line != null || isDoubted ? Math.min(due, left) : left;
        timer = isRenewable() ? core.clock.later(Math.max(0, next), this::due) : () -> {};
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
            if (!isRenewable()) {
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
            checkSession(line, third);
        } else {
            check(third);
        }
    }

    /** One check at a time; the lease may end while the answer does not come. */
    private void check(long third) {
        boolean wasDoubted;
        synchronized (this) {
            wasDoubted = isDoubted;
            arm(Waits.EVER);
            if (isChecking) {
                return;
            }
            isChecking = true;
            isDoubted = false;
        }
        long next = nextAfterCheck(wasDoubted, third);
        synchronized (this) {
            isChecking = false;
            arm(isDoubted ? Math.min(next, tenth(third)) : next);
        }
    }

    private static long tenth(long third) {
        return Math.max(third * 3 / 10, SOON);
    }

    boolean isAt(Address address) {
        return at.equals(address);
    }

    boolean isDoubted() {
        return isDoubted;
    }

    /** The master has changed, or the connection to it has ended: it is checked at once. A session knows. */
    void doubt() {
        if (line == null) {
            isDoubted = true;
            arm(0);
        }
    }

    private void abandon() {
        leave();
        if (line != null) {
            core.lines.drop(line);
        }
    }

    /** When it is to be checked again. */
    private long nextAfterCheck(boolean wasDoubted, long third) {
        try {
            if (options.renew()) {
                renew(null);
            } else if (wasDoubted) {
                lookUp();
            }
            return third;
        } catch (LockLostException error) {
            return Waits.EVER;
        } catch (NotReplicatedException error) {
            return tenth(third); // Until the lease is over.
        } catch (UnavailableException error) {
            isDoubted = true;
        } catch (FairlockException error) {
            if (isRenewable()) {
                Settings.LOG.log(Level.WARNING, "the lock cannot be renewed: " + name, error);
            }
        }
        return tenth(third);
    }

    /** Checks without a renewal. With several holders, the server shows only one. */
    private void lookUp() {
        LockInfo info;
        try {
            info = core.info(name, 0);
        } catch (Failure failure) {
            throw failure.translated(name);
        }
        boolean isOurs = owner.equals(info.owner()) && info.token() != null && info.token() == token;
        if (!isOurs && info.holders() <= 1) {
            lose(Cause.NOTHELD);
        }
    }

    private synchronized boolean isRenewable() {
        return state == State.HELD && !isEnding;
    }

    /** A session lives as long as its connection, which is asked whether the lock is still there. */
    private void checkSession(Line own, long third) {
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

    /** Sets the lease anew; only this moves the end that this process knows. */
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
        Map.Entry<Address, Confirm.Outcome> done;
        try {
            done = core.renew(name, owner, Options.ms(length), options.need());
        } catch (Failure failure) {
            if (failure.is("NOTHELD") && isRenewable() && lose(Cause.NOTHELD)) {
                throw loss();
            }
            throw failure.translated(name);
        }
        at = done.getKey();
        if (!done.getValue().isConfirmed()) {
            throw new NotReplicatedException(name + ": " + at + ": no replica has confirmed the renewal", null, null);
        }
        synchronized (this) {
            lease = length;
            end = sent + Options.nanos(length);
        }
        arm(Options.nanos(length) / 3);
        return Duration.ofMillis(done.getValue().lease());
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
        lost.complete(new LockLostException(name, at.toString(), cause));
        stopTimer();
        core.kept.remove(this);
        if (line != null) {
            core.lines.drop(line);
        }
        Duration length = Duration.ofNanos(System.nanoTime() - acquired);
        core.settings.tell(Hooks::onLost, new LockEvent(name, owner, token, null, length, cause));
        return true;
    }

    /** A new one for each caller, with its stack. */
    LockLostException loss() {
        return new LockLostException(name, at.toString(), lost.join().cause());
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

    /** One of the holds that the server counts is gone; returns whether it was the last. */
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

    synchronized void stopRenewing() {
        isEnding = true;
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
                throw new LockLostException(name, at.toString(), Cause.NOTHELD);
            }
            throw failure.translated(name);
        } finally {
            if (line != null) {
                core.lines.drop(line);
            }
        }
    }

    /** The lease is over perhaps only by this process's clock. */
    private void releaseIfStillOurs() {
        try {
            core.control(name, 0, words());
        } catch (FairlockException | Failure error) {
            Settings.LOG.log(Level.DEBUG, "a lost lock was not there to release: " + name, error);
        }
    }
}
