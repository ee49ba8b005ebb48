package fairlock;

import static fairlock.View.until;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.lettuce.core.RedisException;
import io.lettuce.core.cluster.RedisClusterClient;
import io.lettuce.core.cluster.SlotHash;
import java.time.Duration;
import java.util.List;
import java.util.Map;
import java.util.stream.IntStream;
import org.junit.jupiter.api.AfterAll;
import org.junit.jupiter.api.Test;

/** Rows 32 to 34 and 47. */
class ClusterTest extends Fixture {
    private static final Servers CLUSTER = new Servers("cluster");
    private static final Map<String, Integer> FIRST = Map.of("a", 0, "b", 5461, "c", 10923);
    private static final Map<String, Integer> LAST = Map.of("a", 5460, "b", 10922, "c", 16383);

    @AfterAll
    static void endCluster() {
        CLUSTER.close();
    }

    private Locks clustered(Servers cluster, String at) throws Exception {
        RedisClusterClient client = RedisClusterClient.create(cluster.uri(at));
        ends(client::shutdown);
        return ends(Locks.of(client));
    }

    private String nameOn(String node) {
        return IntStream.range(0, 1000)
                .mapToObj(number -> name + ":" + number)
                .filter(each -> FIRST.get(node) <= SlotHash.getSlot(each) && SlotHash.getSlot(each) <= LAST.get(node))
                .findFirst()
                .orElseThrow();
    }

    private static boolean isListenedTo(View view, String lock) {
        List<String> queue = view.queue(lock);
        return queue.size() == 1
                && view.run("PUBSUB", "SHARDCHANNELS", "redisson_lock__channel:{" + lock + "}:" + queue.get(0)).size() == 1;
    }

    @Test
    void r32_locksOnAllMasters() throws Exception {
        Locks locks = clustered(CLUSTER, "b");
        for (String node : List.of("a", "b", "c")) {
            String lock = nameOn(node);
            View view = CLUSTER.view(node);
            Held held = locks.acquire(lock, LONG);
            assertEquals(held.owner(), view.owner(lock));
            Begun waiting = begin(locks, lock, LONG);
            until("it listens", () -> isListenedTo(view, lock));
            long start = System.nanoTime();
            held.release();
            Held second = waiting.held();
            assertAtOnce(start);
            second.release();
            assertTrue(view.isFree(lock));
        }
    }

    @Test
    void r33_theSlotMovesUnderAWaiter() throws Exception {
        Servers cluster = servers("cluster");
        String lock = nameOn("b");
        Locks locks = clustered(cluster, "a");
        Held held = locks.acquire(lock, LONG);
        Begun waiting = begin(locks, lock, LONG);
        View before = cluster.view("b");
        until("it listens", () -> isListenedTo(before, lock));
        cluster.tell("move", SlotHash.getSlot(lock), "c");
        View view = cluster.view("c");
        until("it listens there", () -> isListenedTo(view, lock));
        long start = System.nanoTime();
        held.release();
        Held second = waiting.held();
        assertAtOnce(start);
        assertEquals(second.owner(), view.owner(lock));
        second.release();
    }

    @Test
    void r33_alsoWhereItIsBlocked() throws Exception {
        needsModule("with scripts none is blocked");
        Servers cluster = servers("cluster");
        String lock = nameOn("b");
        Locks locks = clustered(cluster, "a");
        Held held = locks.acquire(lock, LONG);
        Begun waiting = begin(locks, lock, LONG.session(true));
        cluster.view("b").waits(lock, 1);
        cluster.tell("move", SlotHash.getSlot(lock), "c");
        View view = cluster.view("c");
        view.waitsBlocked(lock);
        held.release();
        Held second = waiting.held();
        assertEquals(1L, view.info(lock).get("session"));
        second.release();
        assertTrue(view.isFree(lock));
    }

    @Test
    void r34_aMasterIsGoneForAWhile() throws Exception {
        Servers cluster = servers("cluster");
        RedisClusterClient client = RedisClusterClient.create(cluster.uri("a"));
        ends(client::shutdown);
        Locks locks = ends(Locks.builder(client).retryTimeout(Duration.ofSeconds(60)).build());
        List<String> both = List.of(nameOn("b"), nameOn("c"));
        List<View> views = List.of(cluster.view("b"), cluster.view("c"));
        // A tenth of the patience of a minute: so soon they notice that the cluster is down.
        LockOptions options = LONG.patience(Duration.ofSeconds(4));
        List<Held> held = List.of(locks.acquire(both.get(0), options), locks.acquire(both.get(1), options));
        List<Begun> waiting = List.of(begin(locks, both.get(0), options), begin(locks, both.get(1), options));
        for (int index = 0; index < 2; index++) {
            View view = views.get(index);
            String lock = both.get(index);
            until("it listens", () -> isListenedTo(view, lock));
        }
        cluster.tell("kill", "c");
        until("the cluster is down", () -> views.get(0).run("CLUSTER", "INFO").get(0).toString().contains("state:fail"));
        assertFalse(waiting.get(0).isDone() || waiting.get(1).isDone());
        cluster.tell("start", "c");
        for (String node : List.of("b", "c")) {
            View view = cluster.view(node);
            String lock = both.get(node.equals("b") ? 0 : 1);
            until(node + " serves again", () -> serves(view, lock));
        }
        for (int index = 0; index < 2; index++) {
            held.get(index).release();
            waiting.get(index).held().release();
        }
    }

    private static boolean serves(View view, String lock) {
        try {
            return isListenedTo(view, lock);
        } catch (RedisException error) {
            return false;
        }
    }

    @Test
    void r47_bracesThatWouldSpreadALock() throws Exception {
        Locks locks = clustered(CLUSTER, "a");
        CrossSlotException error = assertThrows(CrossSlotException.class, () -> locks.acquire("a{b"));
        assertEquals("CROSSSLOT", error.code());
    }
}
