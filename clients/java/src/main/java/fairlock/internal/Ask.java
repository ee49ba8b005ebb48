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
import java.util.concurrent.ThreadLocalRandom;
import java.util.concurrent.TimeUnit;

/**
 * One acquisition under way: asking, waiting, and leaving the queue if it fails.
 *
 * <p>It asks by ENQUEUE on a connection that all threads share, and is woken through a subscription. Sessions and given
 * owners wait blocked, on a connection of their own. A session lives on it. A given owner learns only there that
 * another process has taken over its place.
 */
final class Ask {
    private static final long SHORT_PAUSE = TimeUnit.MILLISECONDS.toNanos(500);
    private static final long WITHDRAW = TimeUnit.SECONDS.toNanos(1);
    /** Refusals that say that the owner neither waits nor holds, or that another caller has its place. */
    private static final Set<String> SETTLED = Set.of("TAKENOVER", "QUEUEFULL", "NOTALOCK", "WRONGTYPE", "CROSSSLOT");

    /** A lock that was granted. Times are System.nanoTime(). */
    record Grant(long token, Address at, long sent, long received, Line line) {}

    /** A thread's hold before the ask, if the server counts its holds; the token is 0 if it has none. */
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
    private boolean isByScripts;
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
        isBlocking = options.session() || options.owner() != null;
        // Without a wait there is still the time of one answer.
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
            } catch (Failure failure) {
                core.checkOpen();
                passed(failure.at(address), address);
            }
        }
    }

    // ----------------------------------------------------------------------------- asking

    private Grant askAt(Address address) throws Failure, InterruptedException {
        at = address;
        // Opens the connections for releases and renewals first: a full server, or waiters that use up all descriptors,
        // must not keep a holder from these.
        isByScripts = !Waits.on(core.lines.line(Kind.CONTROL, address), Waits.EVER, isDeaf).isNative();
        Waits.on(core.lines.line(Kind.CONFIRM, address), Waits.EVER, isDeaf);
        if (isByScripts) {
            if (options.beyondScripts() != null && core.lines.findsModule(address, isDeaf)) {
                return null;
            }
            core.byScripts(address, options);
        }
        if (!isBlocking || isByScripts) {
            return granted(tokenByTurns(address), address, null);
        }
        if (!options.session()) {
            List<Object> reply = ask(address, options.isPatient() ? enqueue() : words("NOWAIT"));
            if (reply.size() == 1) {
                return granted(tokenIn(reply), address, null);
            }
            beginToWait();
            mayBeKnown = true;
            if (core.lines.denied(address) != null) {
                return null;
            }
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

    /** The lock, if replicas have it; null: it was given back, or its lease was over. */
    private Grant granted(long token, Address address, Line line) throws Failure, InterruptedException {
        if (!isLasting(address, line)) {
            return null;
        }
        long received = System.nanoTime();
        if (!isConfirmed(address, line)) {
            giveBack();
            unconfirmed();
            return null;
        }
        return new Grant(token, address, sent, received, options.session() ? line : null);
    }

    /** Whether the lease goes on: the grant may have been on its way for longer. The server renews a session's. */
    private boolean isLasting(Address address, Line line) throws Failure, InterruptedException {
        if (options.session() || System.nanoTime() - sent < Options.nanos(options.lease()) / 3) {
            return true;
        }
        Object[] words = {"FAIRLOCK.RENEW", name, owner, "LEASE", Options.ms(options.lease())};
        try {
            if (line == null) {
                ask(address, words);
            } else {
                ask(line, core.settings.commandNanos(), words);
            }
            return true;
        } catch (Failure failure) {
            if (!failure.is("NOTHELD")) {
                throw failure;
            }
        }
        isReplyLost = false;
        mayBeKnown = false;
        if (isOver()) {
            throw notInTime();
        }
        return false;
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
            wake = new CompletableFuture<>(); // Before asking: from now on a message is a reason to ask again.
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
            Waits.pause(wake, Math.min(retryAfter((Long) reply.get(1)), left()), isDeaf);
            if (isOver()) {
                throw notInTime();
            }
        }
    }

    /** Nanoseconds. Without a hand-over by the server, waiters with the same time to ask must not all ask at once. */
    private long retryAfter(long milliseconds) {
        long most = Math.min(milliseconds / 10, 1000);
        long more = isByScripts || core.lines.denied(at) != null ? ThreadLocalRandom.current().nextLong(most + 1) : 0;
        return TimeUnit.MILLISECONDS.toNanos(milliseconds + more);
    }

    private long tokenBlocked(Line line) throws Failure, InterruptedException {
        if (!isWaiting) { // A session.
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

    /** On the shared connection; at a node that an ASK has named, on one of its own. */
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
        endLine = line::close;
        sent = System.nanoTime();
        asked = askingAt == null ? line.call(words) : line.asking(words);
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
            // If it fails from here on, the hold is there, and must not be asked for again.
            isReplyLost = before != null && reply.size() == 1 && mayBeKnown;
            return reply;
        } catch (Failure failure) {
            isReplyLost = before != null && (isReplyLost || failure.isBroken());
            if (failure.isBroken() || failure.is("READONLY")) {
                endLine.run();
            }
            if (!failure.isBroken()) {
                // A refusal changes nothing. A hold from an earlier ask whose reply was lost is still there, and so is
                // the place of a caller that asks again.
                boolean mayBeThere = wasKnown || (isWaiting && failure.isPassing());
                mayBeKnown = mayBeThere && !SETTLED.contains(failure.code);
            }
            throw failure;
        }
    }

    /** Where a repetition would add a hold: the token if the ask whose reply was lost has added it. */
    private Long tokenOfLostReply() throws Failure {
        long looked = System.nanoTime();
        ThreadLock.Holds now = ThreadLock.holds(core, name, owner, Options.nanos(core.settings.retryTimeout()));
        boolean isAdded = now.token() == before.token() ? now.holds() > before.holds() : now.holds() > 0;
        if (isAdded) {
            sent = looked - (Options.nanos(options.lease()) - TimeUnit.MILLISECONDS.toNanos(now.lease()));
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
        return Script.key("redisson_lock__channel", name) + ":" + owner;
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

    /** Returns if asking again may help; otherwise throws the caller's error. */
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
        // Without a wait, there is still the time of one answer for another try. Waiting for a descriptor counts as
        // waiting for the lock.
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
        // An ask that is still under way would arrive after the requests here.
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

    /** Whether the owner neither waits nor holds any more, if the server could be asked. */
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
            return false; // NOTHELD: it does not hold it.
        }
    }
}
