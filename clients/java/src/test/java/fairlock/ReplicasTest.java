package fairlock;

import static fairlock.View.until;
import static java.time.Duration.ofMillis;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.lettuce.core.RedisURI;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import org.junit.jupiter.api.Test;

/** Rows 31, 35 and 36: a master with a replica, and a sentinel. */
class ReplicasTest extends Fixture {
    @Test
    void r31_sentinelFailsOver() throws Exception {
        Servers group = servers("sentinel");
        View view = group.view("a");
        RedisURI uri = RedisURI.Builder.sentinel("127.0.0.1", group.ports.get("s"), "locks").build();
        Locks locks = ends(Locks.of(CLIENT, uri));
        Held held = locks.acquire(name);
        List<Begun> waiting = new ArrayList<>();
        for (int count = 1; count <= 2; count++) {
            waiting.add(begin(locks, name));
            view.waits(name, count);
        }
        List<String> owners = view.queue(name);
        group.tell("failover");
        View successor = group.view("b");
        assertEquals(held.owner(), successor.owner(name));
        assertEquals(held.token(), successor.info(name).get("token"));
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
            return held.renew().equals(Duration.ofSeconds(30));
        } catch (UnavailableException error) {
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
}
