package fairlock;

import static fairlock.View.until;
import static java.time.Duration.ofSeconds;
import static java.util.concurrent.TimeUnit.MILLISECONDS;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertInstanceOf;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.time.Duration;
import java.util.List;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.locks.Lock;
import org.junit.jupiter.api.Test;

/** {@code Locks.get}: java.util.concurrent.locks.Lock with Redisson's owner ids. */
class LockTest extends Fixture {
    private final View view = Servers.ONE.view("a");
    private final Locks locks = locks(Servers.ONE, "a");

    private interface Work {
        void run() throws Exception;
    }

    /** Runs it in a thread of its own, and waits for it: what it has thrown, or null. */
    private static Throwable elsewhere(Work work) {
        CompletableFuture<Throwable> failure = new CompletableFuture<>();
        inThread(work, failure);
        waitFor(failure);
        return failure.join();
    }

    private static Thread inThread(Work work, CompletableFuture<Throwable> failure) {
        Thread thread = new Thread(() -> {
            try {
                work.run();
                failure.complete(null);
            } catch (Throwable error) {
                failure.complete(error);
            }
        });
        thread.setDaemon(true);
        thread.start();
        return thread;
    }

    private long holds() {
        return view.info(name).get("holds") instanceof Long holds ? holds : 0;
    }

    @Test
    void holdsAreCountedByTheServer() throws Exception {
        FairLock lock = locks.get(name);
        lock.lock();
        assertTrue(((String) view.owner(name)).matches("[0-9a-f-]{36}:" + Thread.currentThread().getId()));
        long token = lock.token();
        lock.lockInterruptibly();
        assertTrue(lock.tryLock() && lock.tryLock(1, MILLISECONDS));
        assertEquals(4, holds());
        assertEquals(token, lock.token());
        for (int left = 3; left >= 0; left--) {
            assertTrue(lock.isHeldByCurrentThread());
            lock.unlock();
            assertEquals(left, holds());
        }
        assertFalse(lock.isHeldByCurrentThread());
        assertTrue(view.isFree(name));
    }

    @Test
    void unlockIsForTheHolderOnly() {
        FairLock lock = locks.get(name);
        lock.lock();
        assertInstanceOf(IllegalMonitorStateException.class, elsewhere(lock::unlock));
        assertEquals(1, holds());
        lock.unlock();
        assertThrows(IllegalMonitorStateException.class, lock::unlock);
        assertThrows(UnsupportedOperationException.class, lock::newCondition);
        assertThrows(IllegalArgumentException.class, () -> locks.get(name, OPTIONS.session(true)));
    }

    /** What RLock has besides. */
    @Test
    void whoHoldsItAndForHowLong() {
        FairLock lock = locks.get(name);
        assertFalse(lock.isLocked());
        assertEquals(-2, lock.remainTimeToLive());
        lock.lock();
        lock.lock();
        assertEquals(2, lock.getHoldCount());
        long left = lock.remainTimeToLive();
        assertTrue(0 < left && left <= 30_000, "" + left);
        assertEquals(null, elsewhere(() -> {
            assertTrue(lock.isLocked());
            assertFalse(lock.isHeldByCurrentThread());
            assertEquals(0, lock.getHoldCount());
        }));
        lock.unlock();
        assertEquals(1, lock.getHoldCount());
        lock.unlock();
        assertFalse(lock.isLocked() || lock.isHeldByCurrentThread());
    }

    @Test
    void anotherThreadWaits() {
        Lock lock = locks.get(name);
        lock.lock();
        assertEquals(null, elsewhere(() -> assertFalse(lock.tryLock())));
        assertEquals(null, elsewhere(() -> assertFalse(lock.tryLock(50, MILLISECONDS))));
        assertEquals(List.of(), view.queue(name));
        CompletableFuture<Throwable> other = new CompletableFuture<>();
        inThread(() -> {
            lock.lock();
            lock.unlock();
        }, other);
        view.waits(name, 1);
        lock.unlock();
        waitFor(other);
        assertEquals(null, other.join());
        assertTrue(view.isFree(name));
    }

    @Test
    void lockIsNotInterruptedAndLockInterruptiblyIs() {
        Lock lock = locks.get(name);
        lock.lock();
        CompletableFuture<Throwable> first = new CompletableFuture<>();
        Thread interruptible = inThread(lock::lockInterruptibly, first);
        view.waits(name, 1);
        interruptible.interrupt();
        waitFor(first);
        assertInstanceOf(InterruptedException.class, first.join());
        assertEquals(List.of(), view.queue(name));
        CompletableFuture<Throwable> second = new CompletableFuture<>();
        Thread deaf = inThread(() -> {
            lock.lock();
            assertTrue(Thread.interrupted());
            lock.unlock();
        }, second);
        view.waits(name, 1);
        deaf.interrupt();
        View.pause(200);
        assertEquals(1, view.queue(name).size());
        lock.unlock();
        waitFor(second);
        assertEquals(null, second.join());
    }

    @Test
    void theLeaseIsRenewedAndALossIsTold() {
        FairLock lock = locks.get(name, leasing(9000));
        lock.lock();
        View.pause(11_000);
        assertEquals(1, holds());
        view.run("FAIRLOCK.BREAK", name);
        View.until("it is known", () -> !lock.isHeldByCurrentThread());
        assertThrows(LockLostException.class, lock::unlock);
        assertThrows(IllegalMonitorStateException.class, lock::unlock);
        lock.lock();
        view.run("FAIRLOCK.BREAK", name);
        assertThrows(LockLostException.class, lock::unlock);
        lock.lock();
        lock.unlock();
    }

    @Test
    void lostRepliesNeitherAddNorTakeHolds() throws Exception {
        Servers own = servers("one");
        View look = own.view("a");
        FairLock lock = locks(own, "proxy").get(name);
        lock.lock();
        lock.unlock();
        for (int holds = 1; holds <= 2; holds++) {
            lose(own, "FAIRLOCK.ACQUIRE");
            lock.lock();
            assertEquals(Integer.toString(holds), own.tell("lost"));
            assertEquals((long) holds, look.info(name).get("holds"));
        }
        lose(own, "FAIRLOCK.RELEASE");
        lock.unlock();
        assertEquals(1L, look.info(name).get("holds"));
        lose(own, "FAIRLOCK.RELEASE");
        lock.unlock();
        assertEquals("4", own.tell("lost"));
        assertTrue(look.isFree(name));
    }

    /** INFO then says that this thread holds the lock, and that arrives late. */
    @Test
    void aHoldThatIsSeenWhenItsLeaseIsOverIsNone() throws Exception {
        needsModule("a script does not wait");
        Servers own = servers("one");
        View look = own.view("a");
        Locks slow = ends(Locks.builder(CLIENT, own.uri("proxy")).commandTimeout(ofSeconds(30)).build());
        FairLock lock = slow.get(name, leasing(1000).renew(false).syncTimeout(Duration.ZERO));
        lock.lock();
        lock.unlock();
        lose(own, "FAIRLOCK.ACQUIRE");
        own.tell("freeze");
        long before = look.calls("acquire");
        CompletableFuture<Long> token = CompletableFuture.supplyAsync(() -> {
            lock.lock();
            try {
                return lock.token();
            } finally {
                lock.unlock();
            }
        });
        until("granted", () -> look.calls("acquire") > before);
        // Another gets the lock after that lease.
        long second = (Long) look.run("FAIRLOCK.ACQUIRE", name, "second", "LEASE", 120_000).get(0);
        assertEquals("1", own.tell("lost"));
        own.tell("thaw");
        until("it waits again, or takes itself for the holder", () -> token.isDone() || !look.queue(name).isEmpty());
        assertFalse(token.isDone());
        look.run("FAIRLOCK.RELEASE", name, "second");
        assertTrue(token.join() > second);
    }

    /** What Redisson's RLock does in the same thread, here by its owner id. */
    @Test
    void aLockIsSharedWithRedissonsOwnerId() {
        String id = "285475da-9152-4c83-822a-67ee2f116a79";
        Locks shared = ends(Locks.builder(CLIENT, Servers.ONE.uri("a")).ownerId(id).build());
        String owner = id + ":" + Thread.currentThread().getId();
        view.run("FAIRLOCK.ACQUIRE", name, owner, "NOWAIT");
        FairLock lock = shared.get(name);
        lock.lock();
        assertEquals(2, holds());
        assertEquals(owner, view.owner(name));
        lock.unlock();
        assertEquals(1, holds());
        assertTrue(lock.isHeldByCurrentThread());
        // A hold that was taken there may be given up here.
        lock.unlock();
        assertTrue(view.isFree(name));
        assertThrows(IllegalMonitorStateException.class, lock::unlock);
    }
}
