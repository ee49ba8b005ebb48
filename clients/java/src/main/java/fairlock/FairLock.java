package fairlock;

import java.util.concurrent.locks.Lock;

/**
 * A {@link Lock} that threads of many processes share. Like Redisson's RLock it is held by a thread and reentrant. The
 * server counts its holds, under the owner id {@code <id of Locks>:<id of the thread>}.
 *
 * <p>{@link #unlock} throws IllegalMonitorStateException if the thread does not hold the lock, and LockLostException if
 * it has lost it. All methods throw a FairlockException for the server's errors.
 */
public interface FairLock extends Lock {
    /** The name of the lock. */
    String name();

    /** Whether the lock is held, by the server's answer. */
    boolean isLocked();

    /** Whether this thread holds the lock, by the server's answer, and it is not known to be lost. */
    boolean isHeldByCurrentThread();

    /** The hold count of this thread, in the sense of {@link #isHeldByCurrentThread}. */
    int getHoldCount();

    /** Milliseconds until the lock frees itself; -1: never, -2: it is free. */
    long remainTimeToLive();

    /** The fencing token of this thread's hold; IllegalMonitorStateException: it holds none. */
    long token();
}
