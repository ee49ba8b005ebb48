package fairlock;

import static java.util.concurrent.TimeUnit.MILLISECONDS;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertInstanceOf;
import static org.junit.jupiter.api.Assertions.assertNull;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.time.Duration;
import java.util.concurrent.CompletableFuture;
import org.junit.jupiter.api.Test;

/** {@code Locks.get}: java.util.concurrent.locks.Lock with Redisson's owner ids; and what is Java's own in Locks. */
class LockTest extends Fixture {
    private final FairLock lock = LOCKS.get(name);

    private long holds() {
        return REDIS.hgetall(name).entrySet().stream()
                .filter(field -> !field.getKey().isEmpty()).mapToLong(field -> Long.parseLong(field.getValue())).sum();
    }

    @Test
    void holdsAreCountedByTheServer() throws Exception {
        assertEquals(-2, lock.remainTimeToLive());
        lock.lock();
        assertTrue(REDIS.hkeys(name).get(0).matches("[0-9a-f-]{36}:" + Thread.currentThread().getId()));
        long token = lock.token();
        lock.lockInterruptibly();
        assertTrue(lock.tryLock() && lock.tryLock(1, MILLISECONDS));
        assertEquals(4, holds());
        assertEquals(4, lock.getHoldCount());
        assertEquals(token, lock.token());
        assertTrue(0 < lock.remainTimeToLive() && lock.remainTimeToLive() <= 30_000);
        for (int left = 3; left >= 0; left--) {
            assertTrue(lock.isHeldByCurrentThread());
            lock.unlock();
            assertEquals(left, holds());
        }
        assertFalse(lock.isLocked() || lock.isHeldByCurrentThread());
    }

    @Test
    void unlockIsForTheHolderOnly() {
        lock.lock();
        assertInstanceOf(IllegalMonitorStateException.class, begin(lock::unlock).join());
        assertNull(begin(() -> assertTrue(lock.isLocked() && !lock.isHeldByCurrentThread() && lock.getHoldCount() == 0)).join());
        assertEquals(1, holds());
        lock.unlock();
        assertThrows(IllegalMonitorStateException.class, lock::unlock);
        assertThrows(UnsupportedOperationException.class, lock::newCondition);
        assertThrows(IllegalArgumentException.class, () -> LOCKS.get(name, LockOptions.options().session(true)));
    }

    @Test
    void anotherThreadWaits() {
        lock.lock();
        assertNull(begin(() -> assertFalse(lock.tryLock() || lock.tryLock(50, MILLISECONDS))).join());
        CompletableFuture<Throwable> other = begin(() -> {
            lock.lock();
            lock.unlock();
        });
        waits(name, 1);
        lock.unlock();
        assertNull(other.join());
        assertTrue(isFree());
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
        CompletableFuture<Thread> deaf = new CompletableFuture<>();
        CompletableFuture<Throwable> second = begin(() -> {
            deaf.complete(Thread.currentThread());
            lock.lock();
            assertTrue(Thread.interrupted());
            lock.unlock();
        });
        waits(name, 1);
        deaf.join().interrupt();
        lock.unlock();
        assertNull(second.join());
    }

    @Test
    void theLeaseIsRenewedAndALossIsTold() {
        FairLock brief = LOCKS.get(name, LockOptions.options().lease(Duration.ofSeconds(3)));
        brief.lock();
        long end = REDIS.pexpiretime(name);
        until("it was renewed", () -> REDIS.pexpiretime(name) > end);
        REDIS.del(name);
        until("it is known", () -> !brief.isHeldByCurrentThread());
        assertThrows(LockLostException.class, brief::unlock);
        assertThrows(IllegalMonitorStateException.class, brief::unlock);
        brief.lock();
        brief.unlock();
    }

    /** What Redisson's RLock does in the same thread, here by its owner id. */
    @Test
    void aLockIsSharedWithRedissonsOwnerId() {
        String id = "285475da-9152-4c83-822a-67ee2f116a79";
        REDIS.hset(name, id + ":" + Thread.currentThread().getId(), "1");
        REDIS.pexpire(name, 30_000);
        try (Locks shared = Locks.builder(CLIENT, URI).ownerId(id).build()) {
            shared.get(name).lock();
            assertEquals(2, holds());
            shared.get(name).unlock();
            shared.get(name).unlock();
            assertTrue(isFree());
        }
    }

    @Test
    @SuppressWarnings("deprecation")
    void aBlockReleasesAndItsOwnErrorComesFirst() {
        Exception body = assertThrows(IllegalStateException.class, () -> {
            try (Held held = LOCKS.acquire(name)) {
                REDIS.del(name);
                throw new IllegalStateException("the body's own");
            }
        });
        assertInstanceOf(LockLostException.class, body.getSuppressed()[0]);
        assertThrows(IllegalArgumentException.class, () -> Locks.builder(CLIENT, URI).commandTimeout(Duration.ZERO));
        assertThrows(IllegalArgumentException.class, () -> LockOptions.options().wait(5000));
    }
}
