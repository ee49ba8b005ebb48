package fairlock;

import static java.util.concurrent.TimeUnit.MILLISECONDS;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertInstanceOf;
import static org.junit.jupiter.api.Assertions.assertNull;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import fairlock.FairlockException.LockLost;
import io.lettuce.core.RedisClient;
import java.time.Duration;
import java.util.Arrays;
import java.util.concurrent.CompletableFuture;
import java.util.stream.Stream;
import org.junit.jupiter.api.Test;

/** {@code Locks.get}: java.util.concurrent.locks.Lock with Redisson's owners; and what is Java's own in Locks. */
class LockTest extends Fixture {
    private final FairLock lock = LOCKS.get(name);

    @Test
    void aThreadHoldsItsLockAgain() throws Exception {
        lock.lock();
        assertTrue(REDIS.hkeys(name).stream().anyMatch(owner -> owner.matches("[0-9a-f-]{36}:" + Thread.currentThread().getId())));
        Held held = lock.held();
        lock.lockInterruptibly();
        assertTrue(lock.tryLock() && lock.tryLock(1, MILLISECONDS));
        assertEquals(held, lock.held());
        for (int holds = 4; holds > 0; holds--) {
            assertTrue(lock.isHeldByCurrentThread() && !isFree());
            lock.unlock();
        }
        assertTrue(isFree() && !lock.isHeldByCurrentThread());
    }

    @Test
    void unlockIsForTheHolderOnlyAndTellsOfALoss() {
        lock.lock();
        assertInstanceOf(IllegalMonitorStateException.class, begin(lock::unlock).join());
        assertNull(begin(() -> assertTrue(!isFree() && !lock.isHeldByCurrentThread() && !lock.tryLock() && !lock.tryLock(50, MILLISECONDS))).join());
        REDIS.del(name);
        assertInstanceOf(LockLost.class, assertThrows(IllegalMonitorStateException.class, lock::unlock).getCause());
        assertNull(assertThrows(IllegalMonitorStateException.class, lock::unlock).getCause());
        assertThrows(UnsupportedOperationException.class, lock::newCondition);
        assertThrows(IllegalArgumentException.class, () -> LOCKS.get(name, LockOptions.options().session(true)));
        lock.lock();
        lock.unlock();
    }

    /** Up to JDK 23 that would pin a virtual thread: 256 that wait would be all that can run. */
    @Test
    void noMonitorIsWaitedFor() {
        lock.lock();
        CompletableFuture<Thread> waiting = new CompletableFuture<>();
        CompletableFuture<Throwable> other = begin(() -> {
            waiting.complete(Thread.currentThread());
            lock.lock();
            lock.unlock();
        });
        waits(name, 1);
        until("it waits", () -> waiting.join().getState() == Thread.State.TIMED_WAITING);
        StackTraceElement[] stack = waiting.join().getStackTrace();
        lock.unlock();
        assertNull(other.join());
        assertTrue(Stream.of(stack).noneMatch(each -> each.getMethodName().equals("wait")), () -> Arrays.toString(stack));
    }

    @Test
    void lockIsNotInterruptedAndLockInterruptiblyIs() {
        lock.lock();
        CompletableFuture<Thread> interruptible = new CompletableFuture<>();
        CompletableFuture<Throwable> first = begin(() -> {
            interruptible.complete(Thread.currentThread());
            lock.lockInterruptibly();
        });
        waits(name, 1);
        interruptible.join().interrupt();
        assertInstanceOf(InterruptedException.class, first.join());
        waits(name, 0);
        CompletableFuture<Thread> holder = new CompletableFuture<>();
        CompletableFuture<Throwable> second = begin(() -> {
            holder.complete(Thread.currentThread());
            lock.lock();
            assertTrue(Thread.interrupted());
            lock.unlock();
        });
        waits(name, 1);
        holder.join().interrupt();
        lock.unlock();
        assertNull(second.join());
    }

    /** What Redisson's RLock does in the same thread, here by its owner id. */
    @Test
    void aLockIsSharedWithRedissonsOwnerId() {
        String id = "285475da-9152-4c83-822a-67ee2f116a79";
        String owner = id + ":" + Thread.currentThread().getId();
        REDIS.hset(name, owner, "1");
        REDIS.pexpire(name, 30_000);
        try (Locks shared = Locks.of(CLIENT, URI, LockOptions.options().ownerId(id))) {
            shared.get(name).lock();
            assertEquals("2", REDIS.hget(name, owner));
            shared.get(name).unlock();
            assertEquals("1", REDIS.hget(name, owner));
        }
    }

    @Test
    void whatIsOutOfRangeOrOfLocksOnlyIsRefused() {
        assertThrows(IllegalArgumentException.class, () -> Locks.of((RedisClient) null, URI));
        assertThrows(IllegalArgumentException.class, () -> LockOptions.options().commandTimeout(Duration.ZERO));
        assertThrows(IllegalArgumentException.class, () -> LOCKS.acquire(name, LockOptions.options().commandTimeout(Duration.ofSeconds(1))));
    }
}
