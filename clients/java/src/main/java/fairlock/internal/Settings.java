package fairlock.internal;

import fairlock.Hooks;
import fairlock.LockEvent;
import fairlock.LockOptions;
import java.lang.System.Logger.Level;
import java.time.Duration;
import java.util.function.BiConsumer;

/** The settings of a Locks. */
public record Settings(LockOptions defaults, Duration retryTimeout, Duration commandTimeout, Duration releaseTimeout,
        Hooks hooks, String ownerId, boolean isOwnerIdShared) {
    static final System.Logger LOG = System.getLogger("fairlock");

    /** Calls a hook; its failure has no other effect. */
    void tell(BiConsumer<Hooks, LockEvent> hook, LockEvent event) {
        try {
            hook.accept(hooks, event);
        } catch (RuntimeException | Error failure) {
            LOG.log(Level.ERROR, "a hook has failed", failure);
        }
    }

    long commandNanos() {
        return Options.nanos(commandTimeout);
    }
}
