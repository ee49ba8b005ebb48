package fairlock;

/** Functions for tracing and metrics. What one throws only goes to the System.Logger "fairlock". */
public interface Hooks {
    /** Once for each acquisition that has to wait. */
    default void onWait(LockEvent event) {}

    /** The lock is held. Not for a hold that is added to another. */
    default void onAcquired(LockEvent event) {}

    /** A lock that was held is lost. */
    default void onLost(LockEvent event) {}

    /** The lock was released. Not after {@link #onLost}. */
    default void onReleased(LockEvent event) {}
}
