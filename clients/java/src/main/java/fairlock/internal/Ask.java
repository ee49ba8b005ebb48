package fairlock.internal;

import fairlock.ClosedException;
import fairlock.FairlockException;
import fairlock.Hooks;
import fairlock.LockEvent;
import fairlock.NotInTimeException;
import fairlock.NotReplicatedException;
import fairlock.internal.Backend.Ears;
import fairlock.internal.Backend.Line;
import fairlock.internal.Lines.Kind;
import java.util.ArrayList;
import java.util.List;
import java.util.Set;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.TimeUnit;

/**
 * One acquisition under way: asking, waiting, and leaving the queue if it comes to nothing.
 *
 * <p>It asks by ENQUEUE on a connection that all threads share, and is woken through a subscription. Sessions and owners
 * that were given wait blocked, on a connection of their own: those live on it, and with these only the server can tell that
 * another process has taken over the place.
 */
final class Ask {
    private static final long SHORT_PAUSE = TimeUnit.MILLISECONDS.toNanos(500);
    private static final long WITHDRAW = TimeUnit.SECONDS.toNanos(1);
    /** Refusals that say that the owner neither waits nor holds, or that another caller has its place. */
    private static final Set<String> SETTLED = Set.of("TAKENOVER", "QUEUEFULL", "NOTALOCK", "WRONGTYPE", "CROSSSLOT");

    /** A lock that was granted. Times are System.nanoTime(). */
    record Grant(long token, Address at, long sent, long received, Line line) {}

    /** How a thread holds the lock before, where the server counts its holds; the token is 0 if it does not. */
    record Before(long holds, long token) {}

    final Core core;
    final String name;
    final String owner;
    final Options options;
    final long started = System.nanoTime();
    private final boolean isDeaf;
    /** Null: ONCE makes a repetition harmless. */
    private final Before before;

    private final Tries tries;
    private final boolean isBlocking;
    private volatile CompletableFuture<Void> wake = new CompletableFuture<>();
    private boolean isWaiting;
    private boolean mayBeKnown;
    private boolean isReplyLost;
    private boolean isUnconfirmed;
    private Address askingAt;
    private Address at;
    private long sent;
    /** The last ask, and where, for one that is cancelled before the answer. */
    private CompletableFuture<List<Object>> asked = CompletableFuture.completedFuture(null);
    private Runnable endLine = () -> {};
    private CompletableFuture<Ears> ears;

    Ask(Core core, String name, String owner, Options options, boolean isDeaf, Before before) {
        this.core = core;
        this.name = name;
        this.owner = owner;
        this.options = options;
        this.isDeaf = isDeaf;
        this.before = before;
        isBlocking = core.backend.isBlocking() || options.session() || options.owner() != null;
        // With no time to wait there is that of one answer.
        tries = new Tries(name, options.isPatient()
                ? Options.nanos(core.settings.retryTimeout())
                : core.settings.commandNanos());
    }

    /** The lock; an exception leaves nothing of this behind. */
    Grant acquire() throws InterruptedException {
        core.begin(this);
        try {
            return untilGranted();
        } catch (Throwable error) {
            if (mayBeKnown) {
                withdraw();
            }
            throw error;
        } finally {
            stopListening();
            core.end(this);
        }
    }

    void wake() {
        wake.complete(null);
    }

    private Grant untilGranted() throws InterruptedException {
        while (true) {
            Address address = askingAt;
            try {
                core.checkOpen();
                address = address != null ? address : core.lines.address(name, isDeaf);
                Grant grant = askAt(address);
                if (grant != null) {
                    return grant;
                }
                unconfirmed();
            } catch (Failure failure) {
                core.checkOpen();
                passed(failure.at(address), address);
            }
        }
    }

    // ----------------------------------------------------------------------------- asking

    private Grant askAt(Address address) throws Failure, InterruptedException {
        at = address;
        // To release and renew by, before there is something to: a full server must not keep a holder from it, nor must
        // waiters that have taken all descriptors.
        Waits.on(core.lines.line(Kind.CONTROL, address), Waits.EVER, isDeaf);
        Waits.on(core.lines.line(Kind.CONFIRM, address), Waits.EVER, isDeaf);
        if (!isBlocking) {
            return granted(tokenByTurns(address), address, null);
        }
        if (!options.session() && !core.backend.isBlocking()) {
            List<Object> reply = ask(address, options.isPatient() ? enqueue() : words("NOWAIT"));
            if (reply.size() == 1) {
                return granted(tokenIn(reply), address, null);
            }
            beginToWait();
            mayBeKnown = true;
        }
        return askBlocked(address);
    }

    private Grant askBlocked(Address address) throws Failure, InterruptedException {
        Line line = ownLine(address);
        Grant grant = null;
        try {
            core.checkOpen();
            grant = granted(tokenBlocked(line), address, line);
            return grant;
        } finally {
            if (grant == null || grant.line() == null) {
                core.lines.drop(line);
            }
        }
    }

    /** Out of descriptors, a session keeps its place by the connection that all share. */
    private Line ownLine(Address address) throws Failure, InterruptedException {
        try {
            return core.lines.take(address, isDeaf);
        } catch (Failure failure) {
            if (failure.isShort() && options.session() && options.isPatient()) {
                ask(address, with(options.withoutSession(), "ENQUEUE", "PATIENCE", Options.ms(options.patience())));
                beginToWait();
                mayBeKnown = true;
            }
            throw failure;
        }
    }

    /** The lock, if replicas have it; null: it was given back. */
    private Grant granted(long token, Address address, Line line) throws Failure, InterruptedException {
        long received = System.nanoTime();
        if (!isConfirmed(address, line)) {
            giveBack();
            return null;
        }
        return new Grant(token, address, sent, received, options.session() ? line : null);
    }

    /** ENQUEUE, and a wake-up when it is this owner's turn. */
    private long tokenByTurns(Address address) throws Failure, InterruptedException {
        while (true) {
            core.checkOpen();
            if (isReplyLost) {
                Long token = tokenOfLostReply();
                if (token != null) {
                    return token;
                }
            }
            wake = new CompletableFuture<>(); // Before asking: what comes from now on is a reason to ask again.
            List<Object> reply = ask(address, options.isPatient() ? enqueue() : words("NOWAIT"));
            if (reply.size() == 1) {
                return tokenIn(reply);
            }
            beginToWait();
            mayBeKnown = true;
            if (!listens(address)) {
                listen(address); // And then ask again, so that no wake-up is missed.
                continue;
            }
            long retryAfter = TimeUnit.MILLISECONDS.toNanos((Long) reply.get(1));
            Waits.pause(wake, Math.min(retryAfter, left()), isDeaf);
            if (isOver()) {
                throw notInTime();
            }
        }
    }

    private long tokenBlocked(Line line) throws Failure, InterruptedException {
        if (!isWaiting) { // A session, or the fake.
            List<Object> reply = ask(line, core.settings.commandNanos(), words("NOWAIT"));
            if (reply.get(0) != null || !options.isPatient()) {
                return tokenIn(reply);
            }
            beginToWait();
        }
        if (isOver()) {
            throw notInTime();
        }
        if (options.longest() == null) {
            return tokenIn(ask(line, Waits.EVER, words()));
        }
        long left = left();
        Object[] words = words("WAIT", Options.ms(java.time.Duration.ofNanos(left)));
        return tokenIn(ask(line, left + core.settings.commandNanos(), words));
    }

    private void beginToWait() {
        if (!isWaiting) {
            isWaiting = true;
            core.settings.tell(Hooks::onWait, new LockEvent(name, owner, null, null, null, null));
        }
    }

    private long tokenIn(List<Object> reply) {
        if (reply.get(0) == null) {
            throw notInTime();
        }
        return (Long) reply.get(0);
    }

    private Object[] enqueue() {
        return words("ENQUEUE", "PATIENCE", Options.ms(options.patience()));
    }

    private Object[] words(Object... more) {
        return with(options, more);
    }

    private Object[] with(Options said, Object... more) {
        List<Object> words = new ArrayList<>(List.of("FAIRLOCK.ACQUIRE", name, owner));
        words.addAll(said.arguments(before == null));
        words.addAll(List.of(more));
        return words.toArray();
    }

    /** On the connection that all share; at the node that an ASK has named, on one that nobody else uses. */
    private List<Object> ask(Address address, Object[] words) throws Failure, InterruptedException {
        sent = System.nanoTime();
        if (askingAt != null) {
            return outcome(() -> core.lines.once(address, words));
        }
        CompletableFuture<Line> line = core.lines.line(Kind.ASK, address);
        endLine = () -> core.lines.distrust(Kind.ASK, address, line);
        asked = line.thenCompose(each -> each.call(words));
        return outcome(() -> Waits.on(asked, core.settings.commandNanos(), isDeaf));
    }

    private List<Object> ask(Line line, long longest, Object[] words) throws Failure, InterruptedException {
        if (askingAt != null) {
            Waits.on(line.call("ASKING"), core.settings.commandNanos(), isDeaf);
        }
        endLine = line::close;
        sent = System.nanoTime();
        asked = line.call(words);
        return outcome(() -> Waits.on(asked, longest, isDeaf));
    }

    private interface Asking {
        List<Object> get() throws Failure, InterruptedException;
    }

    private List<Object> outcome(Asking asking) throws Failure, InterruptedException {
        boolean wasKnown = mayBeKnown;
        mayBeKnown = true;
        try {
            List<Object> reply = asking.get();
            tries.succeeded();
            mayBeKnown = reply.get(0) != null;
            // If it fails from here on, the hold is there and not to be asked for again.
            isReplyLost = before != null && reply.size() == 1 && mayBeKnown;
            return reply;
        } catch (Failure failure) {
            isReplyLost = before != null && (isReplyLost || failure.isBroken());
            if (failure.isBroken() || failure.is("READONLY")) {
                endLine.run();
            }
            if (!failure.isBroken()) {
                // A refusal changes nothing: what an earlier ask brought is still there, though its reply was lost, and
                // so is the place of a caller that is to ask again.
                boolean mayBeThere = wasKnown || (isWaiting && failure.isPassing());
                mayBeKnown = mayBeThere && !SETTLED.contains(failure.code);
            }
            throw failure;
        }
    }

    /** Where a repetition would add a hold: the token if the ask whose reply was lost has added it. */
    private Long tokenOfLostReply() throws Failure {
        ThreadLock.Holds now = ThreadLock.holds(core, name, owner, Options.nanos(core.settings.retryTimeout()));
        boolean isAdded = now.token() == before.token() ? now.holds() > before.holds() : now.holds() > 0;
        if (isAdded) {
            sent = System.nanoTime() - (Options.nanos(options.lease()) - TimeUnit.MILLISECONDS.toNanos(now.lease()));
        }
        isReplyLost = isAdded;
        return isAdded ? now.token() : null;
    }

    /** Whether replicas have the acquisition, or need not. The shared connection must not be held up by asking. */
    private boolean isConfirmed(Address address, Line own) throws Failure, InterruptedException {
        Confirm confirm = core.lines.confirm(address);
        if (confirm.isNeedless(options.need())) {
            return true;
        }
        if (own != null) {
            return Waits.on(confirm.confirmed(own, options.need()), Waits.EVER, isDeaf);
        }
        try {
            long lease = Options.ms(options.lease());
            return core.confirmed(address, askingAt != null, options.need(), isDeaf, name, owner, lease).isConfirmed();
        } catch (Failure failure) {
            if (failure.is("NOTHELD")) {
                return false; // The lease was over before, or the server began anew.
            }
            throw failure;
        }
    }

    private void giveBack() throws Failure {
        try {
            core.control(name, 0, "FAIRLOCK.RELEASE", name, owner);
        } catch (Failure failure) {
            if (!failure.is("NOTHELD")) { // The lease was over before.
                throw failure;
            }
        }
    }

    private void unconfirmed() throws InterruptedException {
        isUnconfirmed = true;
        isReplyLost = false;
        mayBeKnown = false;
        if (!options.isPatient() || isOver()) {
            throw notInTime();
        }
        Waits.pause(core.closing, Math.min(Tries.FIRST_PAUSE, left()), isDeaf);
    }

    // ---------------------------------------------------------------------------- listening

    private String channel() {
        // Redisson's rule.
        return "redisson_lock__channel:" + (name.contains("{") ? name : "{" + name + "}") + ":" + owner;
    }

    private boolean listens(Address address) {
        CompletableFuture<Ears> now = core.lines.ears(address);
        return ears == now && now.isDone() && !now.isCompletedExceptionally() && now.join().hears(channel());
    }

    private void listen(Address address) throws Failure, InterruptedException {
        stopListening();
        CompletableFuture<Ears> there = core.lines.ears(address);
        try {
            Ears one = Waits.on(there, core.settings.commandNanos(), isDeaf);
            ears = there;
            Waits.on(one.add(channel(), this::wake), core.settings.commandNanos(), isDeaf);
        } catch (Failure failure) {
            if (failure.isBroken()) {
                core.lines.distrust(address, there);
            }
            throw failure;
        }
    }

    private void stopListening() {
        if (ears != null) {
            ears.thenAccept(each -> each.remove(channel()));
            ears = null;
        }
    }

    // ----------------------------------------------------------------------------- failing

    /** Returns if it is worth asking again; throws what the caller gets if not. */
    private void passed(Failure failure, Address address) throws InterruptedException {
        askingAt = null;
        boolean isRedirected = failure.is("MOVED") || failure.is("ASK") || failure.is("UNBLOCKED");
        if (isRedirected && tries.mayRedirect()) {
            Address named = core.lines.route().redirect(failure, address);
            askingAt = failure.is("ASK") ? named : null;
            if (named != null || failure.is("UNBLOCKED")) {
                return;
            }
        }
        if (!failure.isPassing()) {
            throw failure.translated(name);
        }
        if (failure.isBroken() || failure.is("CLUSTERDOWN") || failure.is("READONLY")) {
            core.lines.route().forget();
        }
        tries.failed(failure);
        if (isOver() && options.isPatient()) {
            throw notInTime();
        }
        // With no time to wait, the time of one answer is there for trying again. A descriptor is waited for as the lock is.
        long left = options.isPatient() ? left() : Waits.EVER;
        boolean isShort = failure.isShort() && options.isPatient();
        Waits.pause(core.closing, isShort ? Math.min(SHORT_PAUSE, left) : tries.after(failure, left), isDeaf);
    }

    /** Nanoseconds. */
    private long left() {
        return options.longest() == null ? Waits.EVER : started + Options.nanos(options.longest()) - System.nanoTime();
    }

    private boolean isOver() {
        return left() <= 0;
    }

    private NotInTimeException notInTime() {
        Failure first = tries.first();
        String time = options.isPatient() ? "within " + Options.said(options.longest()) : "at once";
        String where = first == null ? " at " + at : ": " + first.text();
        String code = first == null ? null : first.code;
        return isUnconfirmed
                ? new NotReplicatedException(name + ": not confirmed by a replica " + time + where, code, first)
                : new NotInTimeException(name + ": not acquired " + time + where, code, first);
    }

    /** For a caller that does not know whether it waits, holds the lock, or neither. */
    private void withdraw() {
        // An ask that is still under way would come after what is said here.
        Core.quietly(asked, core.closing.isDone() ? 0 : Math.min(WITHDRAW, core.settings.commandNanos()));
        if (!asked.isDone()) {
            endLine.run();
        }
        if (!leave(Math.min(WITHDRAW, core.settings.commandNanos())) && options.owner() == null && before == null) {
            // A network that comes back must not leave the lock to a caller that has gone. With an owner that is used
            // again, the caller may hold the lock again by then.
            core.clock.start(() -> leave(Options.nanos(options.lease())));
        }
    }

    /** Whether the owner neither waits nor holds any more, as far as the server could be asked. */
    private boolean leave(long longest) {
        try {
            if (isDone(longest, "FAIRLOCK.CANCEL") || (before != null && tokenOfLostReply() == null)) {
                return true;
            }
            isDone(longest, "FAIRLOCK.RELEASE");
            return true;
        } catch (ClosedException error) {
            return true;
        } catch (FairlockException | Failure error) {
            return core.lines.isClosed();
        }
    }

    private boolean isDone(long longest, String command) {
        try {
            return core.control(name, longest, command, name, owner).get(0).equals(1L);
        } catch (Failure refusal) {
            return false; // NOTHELD: it does not.
        }
    }
}
