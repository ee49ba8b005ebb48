package fairlock;

import fairlock.internal.Backend;
import fairlock.internal.RealLocks;
import fairlock.internal.Settings;
import java.time.Duration;
import java.util.UUID;
import java.util.function.Function;

/** The options of a Locks; an argument out of range is an IllegalArgumentException. */
public final class LocksBuilder {
    private final Function<Duration, Backend> backend;
    private LockOptions defaults = LockOptions.options();
    private Duration retryTimeout = Duration.ofSeconds(30);
    private Duration commandTimeout = Duration.ofSeconds(5);
    private Duration releaseTimeout = Duration.ofSeconds(5);
    private Hooks hooks = new Hooks() {};
    private String ownerId = UUID.randomUUID().toString();
    private boolean isOwnerIdShared;

    /** See {@link Locks#builder}. */
    LocksBuilder(Function<Duration, Backend> backend) {
        this.backend = backend;
    }

    /** The default options of each lock. */
    public LocksBuilder defaults(LockOptions options) {
        defaults = given("defaults", options);
        return this;
    }

    /** How long a server that cannot be reached is asked again. Default: 30 s. */
    public LocksBuilder retryTimeout(Duration timeout) {
        retryTimeout = LockOptions.checked("retryTimeout", timeout, Duration.ZERO);
        return this;
    }

    /** The longest time for an answer to a command that does not block. Default: 5 s. */
    public LocksBuilder commandTimeout(Duration timeout) {
        commandTimeout = LockOptions.checked("commandTimeout", timeout, Duration.ofMillis(1));
        return this;
    }

    /** How long a release is sent again if its connection fails. Default: 5 s. */
    public LocksBuilder releaseTimeout(Duration timeout) {
        releaseTimeout = LockOptions.checked("releaseTimeout", timeout, Duration.ZERO);
        return this;
    }

    /** Functions for tracing and metrics. */
    public LocksBuilder hooks(Hooks functions) {
        hooks = given("hooks", functions);
        return this;
    }

    /**
     * The first half of the owner ids of {@link Locks#get}: with {@code redisson.getId()} a thread holds a lock through both.
     * Default: a random uuid.
     */
    public LocksBuilder ownerId(String id) {
        LockOptions.options().owner(given("ownerId", id));
        ownerId = id;
        isOwnerIdShared = true;
        return this;
    }

    static <T> T given(String what, T value) {
        if (value == null) {
            throw new IllegalArgumentException(what + " is null");
        }
        return value;
    }

    /** Opens no connection yet. */
    public Locks build() {
        Settings settings =
                new Settings(defaults, retryTimeout, commandTimeout, releaseTimeout, hooks, ownerId, isOwnerIdShared);
        return new RealLocks(backend.apply(commandTimeout), settings);
    }
}
