import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.LongAdder;
import java.util.function.Function;

import org.redisson.Redisson;
import org.redisson.api.RLock;
import org.redisson.api.RedissonClient;
import org.redisson.config.Config;

/**
 * Redisson clients, one for each address given, in one JVM: so all of them run the same compiled
 * code. A line {@code <client> <threads> <one|own> <fair|plain> <milliseconds>} on standard input lets
 * threads of one client take a lock and give it back, all of them one lock or each its own, by getFairLock or getLock. When they have
 * got going, {@code begin} is written; after the milliseconds, {@code <pairs> <nanoseconds>}.
 */
public class Throughput {
    /** Threads do not all start at once; pairs before all have started are not counted. */
    private static final long HEAD_START = 300;

    private volatile boolean running = true;
    private final LongAdder pairs = new LongAdder();

    public static void main(String[] addresses) throws Exception {
        List<RedissonClient> clients = new ArrayList<>();
        for (String address : addresses) {
            Config config = new Config();
            config.useSingleServer().setAddress(address);
            clients.add(Redisson.create(config));
        }
        say("ready");
        BufferedReader lines = new BufferedReader(new InputStreamReader(System.in));
        for (String line = lines.readLine(); line != null; line = lines.readLine()) {
            String[] words = line.split(" ");
            RedissonClient client = clients.get(Integer.parseInt(words[0]));
            int threads = Integer.parseInt(words[1]);
            Function<String, RLock> maker = words[3].equals("fair") ? client::getFairLock : client::getLock;
            new Throughput().run(maker, threads, words[2].equals("own"), Long.parseLong(words[4]));
        }
        // No answer matters any more.
        Runtime.getRuntime().halt(0);
    }

    private void run(Function<String, RLock> maker, int number, boolean own, long milliseconds) throws Exception {
        List<Thread> threads = new ArrayList<>();
        for (int i = 0; i < number; i++) {
            RLock lock = maker.apply(own ? "own:" + i : "one");
            Thread thread = new Thread(() -> work(lock));
            thread.start();
            threads.add(thread);
        }
        Thread.sleep(HEAD_START);
        say("begin");
        long before = pairs.sum();
        long start = System.nanoTime();
        Thread.sleep(milliseconds);
        long done = pairs.sum() - before;
        long elapsed = System.nanoTime() - start;
        say(done + " " + elapsed);
        running = false;
        for (Thread thread : threads) {
            thread.join(TimeUnit.MINUTES.toMillis(1));
        }
        // The next measurement waits for this.
        say("rest");
    }

    private void work(RLock lock) {
        while (running) {
            lock.lock();
            lock.unlock();
            pairs.increment();
        }
    }

    private static void say(String text) {
        System.out.println(text);
        System.out.flush();
    }
}
