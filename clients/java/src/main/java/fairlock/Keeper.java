package fairlock;

import fairlock.FairlockException.LockLost;
import fairlock.FairlockException.LockLost.Cause;
import fairlock.Protocol.Act;
import java.time.Duration;
import java.util.List;
import java.util.Map;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.Future;

/** A lock that is held: renews it, tells when it is lost, and releases it. */
final class Keeper {
    final String name;
    final String owner;
    final long token;
    final CompletableFuture<LockLost> lost = new CompletableFuture<>();
    private final Locks locks;
    private final Asker asker;
    /** What its thread holds. */
    private final Map<String, Keeper> mine;
    private final boolean isOnce;
    private final Protocol.Hold hold;
    private final long since = Timer.now();
    private volatile Thread holder = Thread.currentThread();
    private int count = 1;
    private boolean isEnding;
    private boolean isUnheard;
    private LockLost loss;
    private Future<?> next;

    Keeper(Locks locks, Asker asker, LockOptions options, boolean isOnce, Map<String, Keeper> mine) {
        this.locks = locks;
        this.asker = asker;
        this.isOnce = isOnce;
        this.mine = mine;
        name = asker.ear.name;
        owner = asker.ear.owner;
        token = asker.ask.token;
        hold = new Protocol.Hold(options.nanos("lease", 30), asker.ask.leaseFrom, options.get("renew", true) || options.get("session", false));
        mine.put(name, this);
        locks.keepers.add(this);
        asker.keep(this);
        tick();
    }

    /** Does what is due. */
    synchronized void tick() {
        Act act = hold.next(Timer.now());
        if (act == Act.OVER) {
            lose(Cause.LEASE);
        } else if (act == Act.RENEW && !isOver()) {
            hold.sent(Timer.now());
            if (holder.isAlive()) {
                renewed(hold.lease()).exceptionally(error -> null);
            }
        }
        schedule();
    }

    private synchronized void schedule() {
        if (next != null) {
            next.cancel(false);
        }
        next = isOver() ? null : locks.timer.at(hold.due(), this::tick);
    }

    private synchronized boolean isOver() {
        return isEnding || loss != null;
    }

    private CompletableFuture<Void> renewed(long lease) {
        long sentAt = Timer.now();
        List<String> words = Protocol.words(Act.RENEW, name, owner, "LEASE", Timer.ms(lease));
        return CompletableFuture.completedFuture(asker.way()).thenCompose(way -> locks.wire.send(way, words)).handle((reply, error) -> {
            FairlockException failure = error != null ? FairlockException.of(locks.where(name), error, true) : reply.isConfirmed() ? null
                    : new FairlockException.NotReplicated(locks.where(name) + ": too few replicas have confirmed the renewal", null);
            synchronized (this) {
                if (failure == null) {
                    hold.renewed(lease, sentAt);
                } else if (failure.is("NOTHELD")) {
                    lose(Cause.NOTHELD);
                    check();
                } else {
                    hold.failed(Timer.now());
                }
            }
            schedule();
            if (failure != null) {
                throw failure;
            }
            return null;
        });
    }

    Duration renew(Duration other) {
        check();
        holder = Thread.currentThread();
        long lease = other == null ? hold.lease() : Timer.nanos(other);
        Locks.finished(locks.again(() -> renewed(lease), hold.end()));
        return Duration.ofNanos(lease);
    }

    /** LockLost: it is lost. */
    private synchronized void check() {
        if (loss != null) {
            throw (LockLost) loss.fillInStackTrace();
        }
    }

    /** Holds it once more; false: it is not held any more. */
    synchronized boolean holdAgain() {
        boolean isHeld = !isOver() && hold.next(Timer.now()) != Act.OVER;
        count += isHeld ? 1 : 0;
        return isHeld;
    }

    synchronized int count() {
        return isOver() ? 0 : count;
    }

    void release() {
        synchronized (this) {
            if (--count > 0 && loss == null) {
                return;
            }
            mine.remove(name, this);
            check();
            isEnding = true;
        }
        schedule();
        try {
            // A hold that was counted must not be released twice.
            Locks.finished(locks.again(this::released, isOnce ? Math.min(hold.end(), Timer.now() + locks.releaseFor) : 0));
            locks.ears.reuse(asker.ear, asker.isClean());
            locks.tell(hooks -> hooks.onReleased(new LockEvent(name, owner, token, null, held(), null)));
        } catch (FairlockException error) {
            if (!error.is("NOTHELD")) {
                count = 1;
                mine.putIfAbsent(name, this);
                throw error;
            } else if (!isUnheard) {
                lost(Cause.NOTHELD);
                check();
            }
        }
        end();
    }

    private CompletableFuture<Wire.Reply> released() {
        Wire.Way way = new Wire.Way(name, null, asker.way().byModule(), 0, 0);
        return locks.wire.send(way, Protocol.words(Act.RELEASE, name, owner, "TOKEN", Long.toString(token)))
                .whenComplete((reply, error) -> isUnheard |= error != null && FairlockException.of("", error, true).isUnheard);
    }

    private Duration held() {
        return Duration.ofNanos(Timer.now() - since);
    }

    synchronized void lose(Cause cause) {
        if (!isOver()) {
            lost(cause);
            Locks.background(() -> lost.complete(loss));
            if (cause == Cause.LEASE) {
                locks.again(this::released, 0); // If the server can be reached now, the next one need not wait.
            }
        }
    }

    private void lost(Cause cause) {
        loss = new LockLost(locks.where(name), cause);
        end();
        Locks.background(() -> locks.tell(hooks -> hooks.onLost(new LockEvent(name, owner, token, null, held(), cause))));
    }

    private void end() {
        asker.end();
        locks.keepers.remove(this);
    }
}
