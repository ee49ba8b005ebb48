package fairlock;

import static fairlock.View.until;
import static java.time.Duration.ofMillis;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import fairlock.LockLostException.Cause;
import io.lettuce.core.RedisURI;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import org.junit.jupiter.api.Test;

/** Rows 31, 35, 36 and 62 to 65: a master with a replica, and a sentinel. */
class ReplicasTest extends Fixture {
    private Locks atSentinel(Servers group) {
        return ends(Locks.of(CLIENT, RedisURI.Builder.sentinel("127.0.0.1", group.ports.get("s"), "locks").build()));
    }

    @Test
    void r31_sentinelFailsOver() throws Exception {
        Servers group = servers("sentinel");
        View view = group.view("a");
        Locks locks = atSentinel(group);
        Held held = locks.acquire(name, LONG);
        List<Begun> waiting = new ArrayList<>();
        for (int count = 1; count <= 2; count++) {
            waiting.add(begin(locks, name, LONG));
            view.waits(name, count);
        }
        List<String> owners = view.queue(name);
        group.tell("failover");
        View successor = group.view("b");
        assertEquals(held.owner(), successor.owner(name));
        assertEquals(held.token(), successor.info(name).get("token"));
        group.tell("start", "a"); // Without a replica the new master would grant nothing.
        until("renewed at the new master", () -> isRenewed(held));
        held.release();
        for (int index = 0; index < 2; index++) {
            Held next = waiting.get(index).held();
            assertEquals(owners.get(index), next.owner());
            assertEquals(next.owner(), successor.owner(name));
            next.release();
        }
    }

    private static boolean isRenewed(Held held) {
        try {
            return held.renew().equals(Duration.ofSeconds(120));
        } catch (UnavailableException | NotReplicatedException error) {
            return false;
        }
    }

    @Test
    void r35_anAcquisitionIsOnTheReplica() throws Exception {
        Servers group = servers("replica");
        View view = group.view("a");
        View replica = group.view("b");
        Locks locks = locks(group, "a");
        for (int round = 0; round < 50; round++) {
            try (Held held = locks.acquire(name)) {
                assertEquals(List.of(1L), replica.run("HEXISTS", name, held.owner()));
            }
        }
        for (int round = 0; round < 20; round++) {
            Held first = locks.acquire(name);
            Begun waiting = begin(locks, name, OPTIONS.owner(round % 2 == 0 ? null : "blocked"));
            view.waits(name, 1);
            first.release();
            Held second = waiting.held();
            assertEquals(List.of(1L), replica.run("HEXISTS", name, second.owner()));
            second.release();
        }
    }

    @Test
    void r36_noReplicaConfirms() throws Exception {
        Servers group = servers("replica");
        View view = group.view("a");
        Locks locks = locks(group, "a", OPTIONS.syncTimeout(ofMillis(100)));
        group.tell("stop", "b");
        assertThrows(NotReplicatedException.class, () -> locks.acquire(name, waiting(500)));
        assertTrue(view.isFree(name));
        // The lease is over before the wait for replicas.
        LockOptions brief = waiting(500).lease(ofMillis(20)).renew(false);
        assertThrows(NotReplicatedException.class, () -> locks.acquire(name, brief));
        long start = System.nanoTime();
        locks.acquire(name, OPTIONS.syncTimeout(Duration.ZERO).wait(Duration.ZERO)).release();
        assertAtOnce(start);
        long before = view.calls("release");
        Begun waiting = begin(locks, name, waiting(60_000));
        until("it was released again", () -> view.calls("release") > before + 1);
        group.tell("cont", "b");
        Held held = waiting.held();
        assertEquals(held.owner(), view.owner(name));
        held.release();
    }

    @Test
    void r62_aReplicaThatIsDownIsMissed() throws Exception {
        Servers group = servers("sentinel");
        Locks locks = atSentinel(group);
        group.tell("kill", "b");
        until("none is connected", () -> ((List<?>) group.view("a").run("ROLE").get(2)).isEmpty());
        NotReplicatedException error = assertThrows(NotReplicatedException.class, () -> locks.acquire(name, waiting(500)));
        assertTrue(error.getMessage().startsWith(name + ": not confirmed by a replica within 500 ms"), error.getMessage());
        assertTrue(group.view("a").isFree(name));
        locks.acquire(name, OPTIONS.minReplicas(0).wait(Duration.ZERO)).release();
        locks(group, "a").acquire(name, OPTIONS.wait(Duration.ZERO)).release();
    }

    @Test
    void r63_aMasterThatComesBackIsAskedForNothing() throws Exception {
        Servers group = servers("sentinel");
        Locks before = atSentinel(group);
        before.acquire(name).release();
        group.tell("failover");
        group.tell("start", "a"); // As a master: it takes the sentinel seconds to tell it otherwise.
        View old = group.view("a");
        assertEquals("master", old.run("ROLE").get(0));
        for (Locks locks : List.of(before, atSentinel(group))) {
            Held held = locks.acquire(name, LONG);
            assertEquals(held.owner(), group.view("b").owner(name));
            held.release();
        }
        assertEquals(0, old.calls("acquire"));
    }

    @Test
    void r63_aServerThatIsNoMasterIsAskedForNothing() throws Exception {
        Servers group = servers("replica");
        NotInTimeException error =
                assertThrows(NotInTimeException.class, () -> locks(group, "b").acquire(name, waiting(500)));
        assertTrue(error.getMessage().contains("READONLY"), error.getMessage());
        assertEquals(0, group.view("b").calls("acquire"));
    }

    @Test
    void r64_holdersCheckAtOnceAfterAChangeOfMaster() throws Exception {
        Servers group = servers("sentinel");
        Locks locks = atSentinel(group);
        List<Held> kept = new ArrayList<>();
        List<Held> gone = new ArrayList<>();
        View replica = group.view("b");
        replica.run("CONFIG", "SET", "replica-read-only", "no");
        for (boolean isRenewed : List.of(true, false)) {
            kept.add(locks.acquire(name + ":kept:" + isRenewed, LONG.renew(isRenewed)));
            gone.add(locks.acquire(name + ":gone:" + isRenewed, LONG.renew(isRenewed)));
        }
        gone.forEach(each -> replica.run("DEL", each.name()));
        group.tell("failover");
        long start = System.nanoTime();
        for (Held each : gone) {
            assertEquals(Cause.NOTHELD, lostBy(each));
        }
        assertTrue(System.nanoTime() - start < Duration.ofSeconds(20).toNanos());
        View.pause(1000);
        for (Held each : kept) {
            assertFalse(each.isLost());
            assertEquals(each.token(), replica.info(each.name()).get("token"));
        }
    }

    @Test
    void r65_aRenewalThatNoReplicaConfirmsDoesNotCount() throws Exception {
        Servers group = servers("replica");
        View view = group.view("a");
        Locks locks = locks(group, "a", OPTIONS.syncTimeout(ofMillis(100)));
        Held lost = locks.acquire(name, leasing(3000));
        Held kept = locks.acquire(name + ":kept", leasing(12_000));
        group.tell("stop", "b");
        assertEquals(Cause.LEASE, lostBy(lost));
        assertThrows(NotReplicatedException.class, kept::renew);
        group.tell("cont", "b");
        View.pause(13_000);
        assertFalse(kept.isLost());
        assertEquals(kept.token(), view.info(kept.name()).get("token"));
        kept.release();
    }
}
