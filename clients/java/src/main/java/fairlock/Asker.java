package fairlock;

import fairlock.Protocol.Ask;
import fairlock.Protocol.Step;
import fairlock.Protocol.Wish;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.Future;
import java.util.concurrent.ThreadLocalRandom;
import java.util.function.Consumer;
import java.util.function.Supplier;

/** Carries an acquisition out, on threads of the client and of the timer. */
final class Asker implements Consumer<Boolean> {
    final Ears.Ear ear;
    final Ask ask;
    /** The first ask is answered; it waits in the queue; it has the lock, or leaves; it is over. */
    final CompletableFuture<Void> asked = new CompletableFuture<>();
    final CompletableFuture<Void> waiting = new CompletableFuture<>();
    final CompletableFuture<Void> decided = new CompletableFuture<>();
    final CompletableFuture<Void> over = new CompletableFuture<>();
    private final Locks locks;
    private final boolean isSession;
    private final boolean isOwnerGiven;
    private volatile Wire.Way way;
    private volatile Keeper keeper;
    private Future<?> pause;

    Asker(Locks locks, String name, LockOptions options, boolean isOnce) {
        this.locks = locks;
        isSession = options.get("session", false);
        boolean isShared = options.get("shared", false);
        Integer limit = options.get("limit", null);
        String owner = options.get("owner", null);
        isOwnerGiven = owner != null;
        String byModule = isSession ? "session" : isShared ? "shared" : limit != null ? "limit" : null;
        way = new Wire.Way(name, null, byModule, options.get("minReplicas", null), options.nanos("syncTimeout", 1));
        List<String> words = new ArrayList<>();
        if (isShared || limit != null) {
            words.add("SHARED");
            words.addAll(limit == null ? List.of() : List.of(limit.toString()));
        }
        words.addAll(isSession ? List.of("SESSION") : List.of());
        words.addAll(isOnce ? List.of("ONCE") : List.of());
        ear = locks.ears.take(name, owner, this);
        long wait = options.get("wait", null) == null ? Timer.EVER : options.nanos("wait", 0);
        Wish wish = new Wish(name, ear.owner, words, wait == 0, options.nanos("lease", 30), options.nanos("patience", 10),
                wait == 0 ? locks.commandFor : wait, locks.retryFor, ThreadLocalRandom.current().nextDouble(1, 1.1), () -> locks.where(name));
        ask = new Ask(wish, ear.listens(), Timer.now());
    }

    /** A message has come (true), or the subscription has ended. */
    @Override
    public void accept(Boolean listens) {
        if (ask == null) {
            return; // It is being made: its first ask is yet to come.
        }
        synchronized (this) {
            ask.woken(listens);
        }
        go();
    }

    boolean leave(Exception why) {
        synchronized (this) {
            if (!ask.leave(why, Timer.now())) {
                return false;
            }
        }
        go();
        return true;
    }

    void go() {
        Step step;
        synchronized (this) {
            step = ask.next(Timer.now());
            if (pause != null) {
                pause.cancel(false);
            }
            switch (step.act()) {
                case BUSY, OVER -> { }
                case PAUSE -> pause = locks.timer.at(step.until(), this::go);
                case LISTEN -> run(() -> locks.ears.listen(ear), nothing -> ask.listening(Timer.now()));
                default -> run(() -> locks.wire.send(renewedWay(), step.words()),
                        reply -> ask.replied(reply.values(), reply.isConfirmed(), Timer.now()));
            }
        }
        if (step.act() == Protocol.Act.OVER) {
            finish();
        }
        if (ask.refusal != null) {
            waiting.complete(null);
            decided.complete(null);
        }
    }

    private <T> void run(Supplier<CompletableFuture<T>> work, Consumer<T> then) {
        CompletableFuture.completedFuture(work).thenCompose(Supplier::get).thenAccept(value -> {
            synchronized (this) {
                then.accept(value);
            }
        }).whenComplete((nothing, error) -> {
            if (error != null) {
                synchronized (this) {
                    ask.failed(FairlockException.of(locks.where(ear.name), error, true), Timer.now());
                }
            }
            asked.complete(null);
            if (ask.isWaiting) {
                waiting.complete(null);
            }
            go();
        });
    }

    /** A session that waits has a new connection if its own has ended. */
    private Wire.Way renewedWay() {
        if (isSession && (way.own() == null || way.own().isOver())) {
            way = new Wire.Way(way.name(), locks.wire.link(false, this::disconnected), way.byModule(), way.replicas(), way.syncTimeout());
        }
        return way;
    }

    Wire.Way way() {
        return way;
    }

    /** It is held: tells the keeper when the session's connection ends. */
    void keep(Keeper held) {
        keeper = held;
        if (isSession) {
            way.own().isKept = true;
            if (way.own().isOver()) {
                disconnected();
            }
        }
    }

    private void disconnected() {
        if (keeper != null) {
            keeper.lose(FairlockException.LockLost.Cause.CONNECTION);
        }
    }

    /** Closes the session's connection. */
    void end() {
        if (way.own() != null) {
            way.own().end();
        }
    }

    /** Whether the server will get nothing more from the owner. */
    boolean isClean() {
        return !isOwnerGiven && !ask.isUnheard;
    }

    private void finish() {
        if (over.complete(null)) {
            locks.ears.leave(ear, this);
            locks.askers.remove(this);
            if (!ask.isHeld) {
                locks.ears.reuse(ear, ask.hasLeft && isClean());
                end();
            }
        }
        List.of(asked, waiting, decided).forEach(each -> each.complete(null));
    }
}
