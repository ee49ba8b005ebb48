package fairlock;

import static java.util.concurrent.TimeUnit.SECONDS;

import io.lettuce.core.ClientOptions;
import io.lettuce.core.RedisClient;
import io.lettuce.core.RedisURI;
import io.lettuce.core.api.StatefulRedisConnection;
import io.lettuce.core.codec.StringCodec;
import io.lettuce.core.output.NestedMultiOutput;
import io.lettuce.core.protocol.CommandArgs;
import io.lettuce.core.protocol.ProtocolKeyword;
import io.lettuce.core.protocol.ProtocolVersion;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.function.BooleanSupplier;
import java.util.stream.Stream;

/** What a server has to say about its locks, by a plain client. */
final class View {
    static final RedisClient CLIENT = RedisClient.create();

    static {
        CLIENT.setOptions(ClientOptions.builder().protocolVersion(ProtocolVersion.RESP2).build());
    }

    private final StatefulRedisConnection<String, String> connection;

    View(int port) {
        connection = CLIENT.connect(RedisURI.create("127.0.0.1", port));
    }

    List<Object> run(Object... words) {
        CommandArgs<String, String> arguments = new CommandArgs<>(StringCodec.UTF8);
        Stream.of(words).skip(1).forEach(word -> arguments.add(word.toString()));
        byte[] command = words[0].toString().getBytes(StandardCharsets.US_ASCII);
        ProtocolKeyword keyword = () -> command;
        return connection.sync().dispatch(keyword, new NestedMultiOutput<>(StringCodec.UTF8), arguments);
    }

    Map<String, Object> info(String name) {
        List<Object> reply = run("FAIRLOCK.INFO", name);
        Map<String, Object> map = new HashMap<>();
        for (int index = 0; index < reply.size(); index += 2) {
            map.put((String) reply.get(index), reply.get(index + 1));
        }
        return map;
    }

    Object owner(String name) {
        return info(name).get("owner");
    }

    boolean isFree(String name) {
        return owner(name) == null;
    }

    List<String> queue(String name) {
        return run("FAIRLOCK.QUEUE", name).stream().map(each -> (String) ((List<?>) each).get(0)).toList();
    }

    void waits(String name, int count) {
        until(count + " wait for " + name, () -> queue(name).size() == count);
    }

    /** Until one waits, blocked: a place that was taken by ENQUEUE comes before. */
    void waitsBlocked(String name) {
        until("one is blocked for " + name, () -> {
            List<Object> queue = run("FAIRLOCK.QUEUE", name);
            return queue.size() == 1 && ((List<?>) queue.get(0)).get(1).equals("blocked");
        });
    }

    /** Until so many wait, and have asked again after they listen: from there on a wake-up is heard. */
    void waitsAwake(String name, int count) {
        waits(name, count);
        until(count + " listen for " + name, () -> queue(name).stream().allMatch(owner -> listens(name, owner)));
    }

    private boolean listens(String name, String owner) {
        return run("PUBSUB", "CHANNELS", "redisson_lock__channel:{" + name + "}:" + owner).size() == 1;
    }

    long calls(String command) {
        return ((String) run("INFO", "commandstats").get(0)).lines()
                .filter(line -> line.startsWith("cmdstat_fairlock." + command + ":calls="))
                .map(line -> Long.parseLong(line.split("[=,]")[1]))
                .findFirst()
                .orElse(0L);
    }

    /** The connections of the package, and those of no test: all but this one. */
    List<String> clients() {
        String me = "id=" + run("CLIENT", "ID").get(0) + " ";
        List<String> others = new ArrayList<>();
        ((String) run("CLIENT", "LIST").get(0)).lines().filter(line -> !line.startsWith(me)).forEach(others::add);
        return others;
    }

    static String id(String client) {
        return client.substring(3, client.indexOf(' '));
    }

    static void until(String what, BooleanSupplier condition) {
        until(what, condition, 60);
    }

    static void until(String what, BooleanSupplier condition, long seconds) {
        long end = System.nanoTime() + SECONDS.toNanos(seconds);
        while (!condition.getAsBoolean()) {
            if (System.nanoTime() > end) {
                throw new AssertionError("still not so: " + what);
            }
            pause(5);
        }
    }

    static void pause(long milliseconds) {
        try {
            Thread.sleep(milliseconds);
        } catch (InterruptedException error) {
            throw new AssertionError(error);
        }
    }
}
