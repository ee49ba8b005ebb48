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
import java.io.IOException;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.security.GeneralSecurityException;
import java.security.MessageDigest;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.HexFormat;
import java.util.List;
import java.util.Locale;
import java.util.Map;
import java.util.function.BooleanSupplier;
import java.util.stream.Stream;

/** A server's locks, seen by a plain client; without the module, from the locks' keys. */
final class View {
    static final RedisClient CLIENT = RedisClient.create();
    /** Whether the servers of the tests have the module. */
    static final boolean IS_NATIVE = System.getenv().getOrDefault("FAIRLOCK_SCRIPTS", "").isEmpty();
    private static final String CHANNEL = "redisson_lock__channel";

    static {
        CLIENT.setOptions(ClientOptions.builder().protocolVersion(ProtocolVersion.RESP2).build());
    }

    private final StatefulRedisConnection<String, String> connection;
    private final boolean isNative;

    View(int port) {
        connection = CLIENT.connect(RedisURI.create("127.0.0.1", port));
        isNative = send("COMMAND", "INFO", "FAIRLOCK.INFO").get(0) instanceof List;
    }

    /** Runs a command of the server's, or of the module's. */
    List<Object> run(Object... words) {
        boolean isScript = !isNative && words[0].toString().startsWith("FAIRLOCK.");
        return isScript ? runScript(words) : send(words);
    }

    private List<Object> runScript(Object... words) {
        String name = words[1].toString();
        if (words[0].equals("FAIRLOCK.BREAK")) {
            return send("DEL", name);
        }
        List<Object> all = new ArrayList<>(List.of("EVAL", script(words[0]), 4, name, key("redisson_lock_queue", name),
                key("redisson_lock_timeout", name), key("fairlock_token", name)));
        all.addAll(List.of(words).subList(2, words.length));
        return send(all.toArray());
    }

    private static String script(Object command) {
        String file = command.toString().replace("FAIRLOCK.", "").toLowerCase(Locale.ROOT) + ".lua";
        try {
            return Files.readString(Path.of("..", "lua", file));
        } catch (IOException error) {
            throw new AssertionError(error);
        }
    }

    /** What only requests with this command contain. */
    static String wordOf(String command) throws GeneralSecurityException {
        byte[] text = script(command).getBytes(StandardCharsets.UTF_8);
        return IS_NATIVE ? command : HexFormat.of().formatHex(MessageDigest.getInstance("SHA-1").digest(text));
    }

    private static String key(String prefix, String name) {
        return prefix + ":" + (name.contains("{") ? name : "{" + name + "}");
    }

    private List<Object> send(Object... words) {
        CommandArgs<String, String> arguments = new CommandArgs<>(StringCodec.UTF8);
        Stream.of(words).skip(1).forEach(word -> arguments.add(word.toString()));
        byte[] command = words[0].toString().getBytes(StandardCharsets.US_ASCII);
        ProtocolKeyword keyword = () -> command;
        return connection.sync().dispatch(keyword, new NestedMultiOutput<>(StringCodec.UTF8), arguments);
    }

    Map<String, Object> info(String name) {
        return isNative ? pairs(run("FAIRLOCK.INFO", name)) : infoByKeys(name);
    }

    private static Map<String, Object> pairs(List<Object> reply) {
        Map<String, Object> map = new HashMap<>();
        for (int index = 0; index < reply.size(); index += 2) {
            map.put((String) reply.get(index), reply.get(index + 1));
        }
        return map;
    }

    private Map<String, Object> infoByKeys(String name) {
        Map<String, Object> fields = pairs(send("HGETALL", name));
        Object token = fields.remove("");
        Map<String, Object> info = new HashMap<>();
        info.put("holds", 0L);
        info.put("lease", send("PTTL", name).get(0));
        info.put("token", token == null ? null : Long.valueOf((String) token));
        fields.forEach((owner, holds) -> {
            info.put("owner", owner);
            info.put("holds", Long.valueOf((String) holds));
        });
        return info;
    }

    Object owner(String name) {
        return info(name).get("owner");
    }

    boolean isFree(String name) {
        return owner(name) == null;
    }

    List<String> queue(String name) {
        return isNative
                ? run("FAIRLOCK.QUEUE", name).stream().map(each -> (String) ((List<?>) each).get(0)).toList()
                : send("LRANGE", key("redisson_lock_queue", name), 0, -1).stream().map(String.class::cast).toList();
    }

    void waits(String name, int count) {
        until(count + " wait for " + name, () -> queue(name).size() == count);
    }

    /** Until one waits, blocked: a place that was taken by ENQUEUE comes before. Where none can block: until it listens. */
    void waitsBlocked(String name) {
        if (!isNative) {
            waitsAwake(name, 1);
            return;
        }
        until("one is blocked for " + name, () -> {
            List<Object> queue = run("FAIRLOCK.QUEUE", name);
            return queue.size() == 1 && ((List<?>) queue.get(0)).get(1).equals("blocked");
        });
    }

    /** Until this many wait, and have asked again after subscribing: from then on a wake-up is heard. */
    void waitsAwake(String name, int count) {
        waits(name, count);
        until(count + " listen for " + name, () -> queue(name).stream().allMatch(owner -> listens(name, owner)));
    }

    private boolean listens(String name, String owner) {
        return run("PUBSUB", "CHANNELS", key(CHANNEL, name) + ":" + owner).size() == 1;
    }

    /** How often a command was run; as a script, by a command that only that script calls. */
    long calls(String command) {
        if (isNative) {
            return count("fairlock." + command);
        }
        return switch (command) {
            case "acquire" -> count("eval") + count("evalsha");
            case "release" -> count("del");
            case "renew" -> count("pexpire") - count("hset") / 2; // Each grant sets the lease once, and two fields.
            default -> throw new AssertionError(command);
        };
    }

    private long count(String command) {
        return ((String) run("INFO", "commandstats").get(0)).lines()
                .filter(line -> line.startsWith("cmdstat_" + command + ":calls="))
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
