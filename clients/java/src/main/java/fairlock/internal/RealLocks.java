package fairlock.internal;

import fairlock.FairLock;
import fairlock.Held;
import fairlock.LockInfo;
import fairlock.LockOptions;
import fairlock.Locks;
import fairlock.NotInTimeException;
import fairlock.NotReplicatedException;
import java.time.Duration;
import java.util.Map;
import java.util.Optional;

/** Locks, by connections of any kind. */
public final class RealLocks implements Locks {
    private final Core core;

    /** Opens no connection yet. */
    public RealLocks(Backend backend, Settings settings) {
        core = new Core(backend, settings);
    }

    @Override
    public Held acquire(String name, LockOptions options) throws InterruptedException {
        return acquire(name, Options.of(options, core.settings.defaults()));
    }

    @Override
    public Optional<Held> tryAcquire(String name, LockOptions options) throws InterruptedException {
        Options all = Options.of(options, core.settings.defaults());
        try {
            return Optional.of(acquire(name, all.waiting(Duration.ZERO)));
        } catch (NotReplicatedException error) {
            throw error;
        } catch (NotInTimeException error) {
            return Optional.empty();
        }
    }

    private static String checked(String name) {
        if (name == null || name.isEmpty()) {
            throw new IllegalArgumentException("a lock has a name; this one is " + (name == null ? "null" : "empty"));
        }
        return name;
    }

    @Override
    public LockInfo info(String name) {
        core.checkOpen();
        try {
            return core.info(checked(name), core.settings.commandNanos());
        } catch (Failure failure) {
            throw failure.translated(name);
        }
    }

    private Held acquire(String name, Options options) throws InterruptedException {
        checked(name);
        Map<String, Keep> mine = options.reentrant() ? core.mine.get() : null;
        Keep there = mine == null ? null : mine.get(name);
        if (there != null) {
            core.checkOpen();
            return there.enterAgain();
        }
        String owner = options.owner() == null ? Options.newOwner() : options.owner();
        Ask ask = new Ask(core, name, owner, options, false, null);
        return new Keep(ask, ask.acquire(), mine).held();
    }

    @Override
    public FairLock get(String name, LockOptions options) {
        Options all = Options.of(options, core.settings.defaults());
        if (all.session() || all.owner() != null || all.shared() || all.limit() != null) {
            throw new IllegalArgumentException("a Lock has no session, owner, shared or limit");
        }
        return new ThreadLock(core, checked(name), all);
    }

    @Override
    public Optional<Boolean> isNative() {
        return Optional.ofNullable(core.lines.isNative());
    }

    @Override
    public void close() {
        core.close();
    }
}
