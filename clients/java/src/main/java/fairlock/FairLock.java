package fairlock;

import java.util.concurrent.locks.Lock;

/**
 * A {@link Lock} that threads of many processes share. As Redisson's RLock it is held by a thread, reentrant, and its
 * holds are counted by the server, under the owner id {@code <id of Locks>:<id of the thread>}.
 *
 * <p>{@link #unlock} throws IllegalMonitorStateException if the thread does not hold the lock, and LockLostException if
 * it did and has lost it. All methods throw the FairlockException of what the server says.
 */
public interface FairLock extends Lock {
    /** The name of the lock. */
    String name();

    /** Whether anybody holds the lock, as the server says. */
    boolean isLocked();

    /** Whether this thread holds the lock, as the server says, and it is not known to be lost. */
    boolean isHeldByCurrentThread();

    /** How often this thread holds the lock, as {@link #isHeldByCurrentThread} has it. */
    int getHoldCount();

    /** Milliseconds until the lock frees itself; -1: never, -2: it is free. */
    long remainTimeToLive();

    /** The fencing token of this thread's hold; IllegalMonitorStateException: it has none. */
    long token();
}
