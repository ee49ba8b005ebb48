package fairlock;

import static fairlock.Protocol.now;

import fairlock.Protocol.Act;
import fairlock.Protocol.Ask;
import fairlock.Protocol.Step;
import java.util.concurrent.*;
import java.util.function.Consumer;
import java.util.function.Supplier;

/** Carries an acquisition out, in the thread of its caller. What comes from others are events, which that thread takes one by one. */
final class Asker {
    final Ears.Ear ear;
    final Ask ask;
    /** Its first ask is answered, so that the next one for this lock may be sent; it is over. */
    final CompletableFuture<Void> asked = new CompletableFuture<>(), over = new CompletableFuture<>();
    /** A session's own connection. */
    Servers.Line own;
    final Locks locks;
    final LockOptions options;
    private final BlockingQueue<Runnable> events = new LinkedBlockingQueue<>();
    private boolean isTold;

    Asker(Locks locks, String name, LockOptions options, boolean isOnce) {
        this.locks = locks;
        this.options = options;
        ear = locks.ears.take(name, options.get("owner", null), this);
        ask = new Ask(name, ear.owner, options, isOnce, ear.listens(), () -> locks.where(name), now());
        ask.released = ear.released;
        Asker before = locks.asking.put(name, this);
        asked.thenRun(() -> locks.asking.remove(name, this));
        (before == null ? CompletableFuture.<Void>completedFuture(null) : before.asked).thenRun(() -> events.add(() -> ask.begun(now())));
    }

    /** A message has come, or the subscription has ended. */
    void wake(boolean listens) {
        events.add(() -> ask.woken(listens));
    }

    void leave(Exception why) {
        events.add(() -> ask.leave(why, now()));
    }

    /** Until it is over; or for a second after the lock is not wanted any more, and then in the background. */
    void run(boolean isDeaf) {
        boolean wasInterrupted = false;
        try {
            for (Step step = ask.next(now()); step.act() != Act.OVER; step = ask.next(now())) {
                try {
                    if (!goesOn(step)) {
                        Protocol.at(now() + Protocol.PAUSE).thenRun(() -> run(true));
                        return;
                    }
                } catch (InterruptedException error) {
                    wasInterrupted |= isDeaf || !ask.leave(error, now());
                }
            }
        } finally {
            if (wasInterrupted) {
                Thread.currentThread().interrupt();
            }
        }
        locks.askers.remove(this);
        if (!ask.isHeld) {
            end(ask.hasLeft);
        }
        asked.complete(null);
        over.complete(null);
    }

    /** False: the caller has waited long enough for what is left to do. */
    private boolean goesOn(Step step) throws InterruptedException {
        switch (step.act()) {
            case PAUSE, BUSY -> {
                long patience = ask.refusal == null ? Protocol.EVER : ask.refusedAt + 1000 * Protocol.MS;
                Runnable event = events.poll(Math.min(step.until(), patience) - now(), TimeUnit.NANOSECONDS);
                if (event != null) {
                    event.run();
                } else if (now() >= patience) {
                    return false;
                }
                if (ask.isWaiting && !isTold && ask.refusal == null) {
                    isTold = true;
                    locks.tell(each -> each.onWait(new LockEvent(ear.name, ear.owner, null, null, null, null)));
                }
            }
            case LISTEN -> send(() -> locks.ears.listen(ear), nothing -> ask.listening(ear.listens(), now()));
            default -> {
                if (options.get("session", false) && (own == null || own.isOver())) {
                    own = locks.wire.line(null);
                }
                send(() -> locks.wire.send(ear.name, options, own, step.words()), reply -> ask.replied(reply.values(), reply.isConfirmed(), now()));
            }
        }
        return true;
    }

    private <T> void send(Supplier<CompletableFuture<T>> work, Consumer<T> then) {
        CompletableFuture.completedFuture(work).thenCompose(Supplier::get).whenComplete((value, error) -> {
            asked.complete(null);
            events.add(error == null ? () -> then.accept(value) : () -> ask.failed(FairlockException.of(locks.where(ear.name), error, true), now()));
        });
    }

    /** Its owner's name can be used again if that ended well. A session's connection is closed. */
    void end(boolean isWell) {
        locks.ears.give(ear, this, isWell && !ask.isUnheard && options.get("owner", null) == null);
        if (own != null) {
            own.end();
        }
    }
}
