package fairlock;

import static fairlock.Time.EVER;
import static fairlock.Time.now;

import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ThreadLocalRandom;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.concurrent.locks.LockSupport;
import java.util.function.BooleanSupplier;

/** An acquisition, in the thread of its caller. clients/protocol.md tells it in words. */
final class Ask {
    private final Thread caller = Thread.currentThread();
    final Locks locks;
    final Ears.Ear ear;
    final LockOptions options;
    /** False: an ask adds a hold to one of Redisson's. */
    final boolean isOnce;
    final long lease;
    /** When nothing is left to give back: it is released, lost or has left. */
    final CompletableFuture<Void> over = new CompletableFuture<>();
    /** What it has become; null: it is not held yet. */
    volatile Held held;
    /** Why it ends: Locks was closed. */
    volatile FairlockException closed;
    /** A session's own connection. */
    Servers.Line own;
    /** The fencing token; 0: it is not granted. */
    volatile long token;
    /** When the ask or renewal was sent that the lease counts from. */
    long sentAt;
    private final boolean isTry, isDeaf;
    private final long deadline;
    private final List<String> words = new ArrayList<>();
    /** When its first ask is answered, the next one for this lock may be sent. */
    private final CompletableFuture<Void> asked = new CompletableFuture<>();
    private final Time.Tries tries;
    private CompletableFuture<Wire.Reply> pending = CompletableFuture.completedFuture(null);
    /** Commands whose replies have not come, or were lost: the server may do them later. */
    final AtomicInteger unanswered = new AtomicInteger();
    /** The server has put the owner into the queue. */
    private volatile boolean isQueued;
    /** Guarded by {@code locks.ears}. */
    boolean isLeaving;
    private volatile boolean isWoken;
    private boolean isTold, isUnconfirmed, wasInterrupted;

    /** {@code isDeaf}: an interrupt waits until it is over. */
    Ask(Locks locks, String name, LockOptions options, boolean isOnce, boolean isDeaf) {
        this.locks = locks;
        this.options = options;
        this.isOnce = isOnce;
        this.isDeaf = isDeaf;
        ear = locks.ears.take(name, options.get("owner", null), this);
        long wait = options.get("wait", null) == null ? EVER : options.nanos("wait", 0);
        isTry = wait == 0;
        lease = options.nanos("lease", 30);
        tries = new Time.Tries(options.nanos("retryTimeout", 30));
        deadline = Math.min(EVER, now() + (isTry ? options.nanos("commandTimeout", 5) : wait));
        Integer limit = options.get("limit", null);
        words.addAll(limit != null ? List.of("SHARED", limit.toString()) : options.get("shared", false) ? List.of("SHARED") : List.of());
        words.addAll(List.of("LEASE", Time.ms(lease)));
        words.addAll(options.get("session", false) ? List.of("SESSION") : List.of());
        words.addAll(isOnce ? List.of("ONCE") : List.of());
        words.addAll(isTry ? List.of("NOWAIT") : List.of("ENQUEUE", "PATIENCE", Time.ms(options.nanos("patience", 10))));
    }

    /** Returns when the lock is held. Otherwise a second at most goes into leaving the queue, and the rest is done in the background. */
    void run() throws InterruptedException {
        locks.asks.add(this);
        CompletableFuture<Void> before = locks.asking.put(ear.name, asked);
        asked.thenRun(() -> locks.asking.remove(ear.name, asked));
        try {
            if (before != null) {
                await(before);
            }
            boolean isHeld = false;
            while (!isHeld) {
                isHeld = isGranted();
            }
        } catch (Throwable error) {
            leave();
            throw error;
        } finally {
            if (wasInterrupted) {
                Thread.currentThread().interrupt();
            }
        }
    }

    /** Asks once; and waits until it is time to ask again. */
    private boolean isGranted() throws InterruptedException {
        long began = now();
        try {
            isWoken = false;
            Wire.Reply reply = send("ACQUIRE", words);
            tries.first = null;
            if (reply.value() instanceof Long) {
                return isHeld(reply);
            } else if (reply.value() instanceof List<?> place) {
                waits((Long) place.get(1));
            } else {
                throw late();
            }
        } catch (FairlockException failure) {
            if (failure.is("NOTHELD")) {
                isGone();
            } else {
                pause(() -> false, tries.next(failure, began));
            }
        }
        return false;
    }

    /** What was long under way is renewed first. What too few replicas have confirmed is given back. */
    private boolean isHeld(Wire.Reply granted) throws InterruptedException {
        // A new master may not know of the release, nor of who held the lock since.
        boolean isOld = token <= ear.released, isLate = !isOld && granted.isConfirmed() && now() - sentAt >= lease / 3;
        isUnconfirmed = !(isLate ? send("RENEW", List.of("LEASE", Time.ms(lease))) : granted).isConfirmed();
        if (!isOld && !isUnconfirmed) {
            return now() - sentAt < lease;
        }
        send("RELEASE", List.of("TOKEN", Long.toString(token)));
        isGone();
        if (isUnconfirmed && isTry) {
            throw late();
        } else if (isUnconfirmed) {
            pause(() -> false, now() + Time.PAUSE);
        }
        return false;
    }

    private void isGone() {
        ear.released = token > ear.released ? token : 0; // A server that was told once knows.
        token = 0;
        isQueued = false;
    }

    private void waits(long retryAfter) throws InterruptedException {
        if (!isTold) {
            isTold = true;
            locks.tell(each -> each.onWait(new LockEvent(ear.name, ear.owner, null, null, null, null)));
        }
        if (ear.listens()) {
            // Some time more, so that the waiters of one lock do not all ask at once.
            double spread = ThreadLocalRandom.current().nextDouble(1, 1.1);
            pause(() -> isWoken, now() + (long) Math.min(EVER, retryAfter * spread * Time.MS));
            if (isWoken) {
                return;
            }
        }
        await(locks.ears.listen(ear)); // Without a message the connection may be dead.
    }

    private Wire.Reply send(String command, List<String> more) throws InterruptedException {
        if (options.get("session", false) && (own == null || own.ended.isDone())) {
            own = locks.servers.new Line(null);
        }
        sentAt = now();
        pending = sent(command, more).whenComplete((reply, error) -> {
            asked.complete(null);
            if (error == null && command.equals("ACQUIRE")) {
                isQueued |= reply.value() instanceof List;
                token = reply.value() instanceof Long number ? number : 0;
            }
        });
        return await(pending);
    }

    CompletableFuture<Wire.Reply> sent(String command, List<String> more) {
        List<String> message = new ArrayList<>(List.of("FAIRLOCK." + command, ear.name, ear.owner));
        message.addAll(more);
        unanswered.incrementAndGet();
        return CompletableFuture.completedFuture(message).thenCompose(it -> locks.wire.send(options, own, it)).whenComplete((reply, error) -> {
            if (error == null || !FairlockException.of("", error).isUnheard) {
                unanswered.decrementAndGet();
            }
        });
    }

    private <T> T await(CompletableFuture<T> work) throws InterruptedException {
        work.whenComplete((result, error) -> wake(false));
        pause(work::isDone, EVER);
        return Locks.finished(work);
    }

    /** Until then, or for a time; no longer than the wait, or than Locks is open. */
    private void pause(BooleanSupplier isOver, long until) throws InterruptedException {
        while (!isOver.getAsBoolean() && now() < until) {
            if (closed != null) {
                throw closed;
            } else if (now() >= deadline) {
                throw late();
            }
            LockSupport.parkNanos(this, Math.min(until, deadline) - now()); // Waiting for a monitor would pin a virtual thread.
            if (Thread.interrupted()) {
                if (!isDeaf) {
                    throw new InterruptedException();
                }
                wasInterrupted = true;
            }
        }
    }

    /** A message has come, or the subscription has ended; or what is waited for. */
    void wake(boolean isMessage) {
        if (isMessage) {
            isWoken = true;
        }
        LockSupport.unpark(caller);
    }

    void close(FairlockException why) {
        closed = why;
        wake(false);
        if (held != null) {
            held.lose(FairlockException.LockLost.Cause.CLOSED);
        }
    }

    private FairlockException late() {
        String text = locks.servers.where(ear.name) + ": not acquired in time" + (isUnconfirmed ? ": too few replicas have confirmed it" : "")
                + (tries.first == null ? "" : ": " + tries.first.getMessage());
        return isUnconfirmed ? new FairlockException.NotReplicated(text, tries.first) : new FairlockException.NotInTime(text, tries.first);
    }

    /** When the answer to what was sent last has come. */
    private void leave() {
        pending.handle((reply, error) -> (token > 0 || isQueued || unanswered.get() > 0) && !locks.ears.leaveToOthers(ear, this))
                .thenCompose(isToSay -> isToSay ? Time.again(this::left, lease) : CompletableFuture.completedFuture(true))
                .whenComplete((isClean, error) -> end(error == null && isClean));
        over.copy().completeOnTimeout(null, 1, TimeUnit.SECONDS).join();
    }

    /** Whether the server has said that it forgets the owner. */
    private CompletableFuture<Boolean> left() {
        return sent("CANCEL", List.of()).thenCompose(reply -> {
            boolean hasLeft = Long.valueOf(1).equals(reply.value());
            if (hasLeft || options.get("owner", null) != null && token == 0 && unanswered.get() == 0) {
                return CompletableFuture.completedFuture(hasLeft);
            }
            // It may have been granted meanwhile. By an owner that was given another caller may hold it.
            return sent("RELEASE", List.of()).thenApply(done -> false).exceptionallyCompose(error ->
                    FairlockException.of("", error).is("NOTHELD") ? CompletableFuture.completedFuture(false) : CompletableFuture.failedFuture(error));
        });
    }

    /** Its owner's name can be used again if that ended well. A session's connection is closed. */
    void end(boolean isWell) {
        if (!locks.asks.remove(this)) {
            return;
        }
        ear.released = Math.max(ear.released, token);
        locks.ears.give(ear, this, isWell && unanswered.get() == 0 && options.get("owner", null) == null);
        if (own != null) {
            own.end();
        }
        asked.complete(null);
        over.complete(null);
    }
}
