package fairlock;

import static java.util.concurrent.CompletableFuture.completedFuture;
import static java.util.concurrent.CompletableFuture.failedFuture;

import io.lettuce.core.api.StatefulRedisConnection;
import java.io.IOException;
import java.io.InputStream;
import java.lang.System.Logger.Level;
import java.nio.charset.StandardCharsets;
import java.security.MessageDigest;
import java.security.NoSuchAlgorithmException;
import java.util.ArrayList;
import java.util.HexFormat;
import java.util.List;
import java.util.Locale;
import java.util.Map;
import java.util.Set;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicBoolean;
import java.util.function.BiFunction;

/** Sends the commands of a Locks, or the scripts in their place, and has replicas confirm what they wrote. */
final class Wire {
    /**
     * How the commands of a lock go.
     *
     * @param own a session's link; null: those of all
     * @param byModule the option that only the module can do, or null
     * @param replicas how many have to confirm what is written; null: one, if ROLE lists any
     * @param syncTimeout nanoseconds to wait for them; 0: they are not asked
     */
    record Way(String name, Link own, String byModule, Integer replicas, long syncTimeout) {}

    record Reply(List<Object> values, boolean isConfirmed) {}

    private record Script(String text, String digest) {}

    /** Sends words, of which those from the first number on are keys. */
    private interface Sender extends BiFunction<Integer, List<String>, CompletableFuture<List<Object>>> {}

    static final System.Logger LOG = System.getLogger("fairlock");
    private static final Map<String, Script> SCRIPTS = new ConcurrentHashMap<>();
    private static final Set<String> SCRIPTED = Set.of("FAIRLOCK.ACQUIRE", "FAIRLOCK.RELEASE", "FAIRLOCK.RENEW", "FAIRLOCK.CANCEL");
    private static final String NO_MODULE = "the server does not have the fairlock module";

    final Servers servers;
    private final Timer timer;
    private final long longest;
    private final boolean isModuleRequired;
    private final Map<String, Link> links = new ConcurrentHashMap<>();
    private final Set<Link> open = ConcurrentHashMap.newKeySet();
    private final Map<Object, CompletableFuture<Integer>> replicas = new ConcurrentHashMap<>();
    private final AtomicBoolean isWarned = new AtomicBoolean();
    /** Whether the server has the module; null: it was not asked yet. */
    volatile Boolean isNative;
    private volatile boolean isClosed;

    /** @param longest nanoseconds for an answer that is given at once */
    Wire(Servers servers, Timer timer, long longest, boolean isModuleRequired) {
        this.servers = servers;
        this.timer = timer;
        this.longest = longest;
        this.isModuleRequired = isModuleRequired;
    }

    /** A key or channel of a lock, by Redisson's rule. */
    static String key(String prefix, String name) {
        return prefix + ":" + (name.contains("{") ? name : "{" + name + "}");
    }

    Link link(boolean isPubSub, Runnable onEnd) {
        if (isClosed) {
            throw new FairlockException.Closed("Locks is closed");
        }
        Link link = new Link(servers, timer, longest, isPubSub, onEnd);
        open.add(link);
        link.closed.thenRun(() -> open.remove(link));
        return link;
    }

    private Link link(String use) {
        return links.compute(use, (key, link) -> link == null || link.isOver() ? link(false, () -> { }) : link);
    }

    /** A command; where replicas have to confirm what it wrote, with WAIT behind it, on its connection. */
    CompletableFuture<Reply> send(Way way, List<String> words) {
        Link common = way.own == null ? link("common") : way.own;
        return needed(way, common).thenCompose(count -> {
            // Not on the connection of all: WAIT keeps those behind it waiting.
            Link link = count == 0 || way.own != null ? common : link("confirmed");
            return link.to(way.name).thenCompose(connection -> count == 0
                    ? run(way, words, redirected(link, connection, way.name)).thenApply(values -> new Reply(values, true))
                    : confirmed(way, words, count, link, connection));
        });
    }

    private Sender redirected(Link link, StatefulRedisConnection<String, String> connection, String name) {
        return (keys, words) -> link.call(connection.async(), name, longest, keys, words).exceptionallyCompose(error ->
                failure(error).is("MOVED") || failure(error).is("ASK") ? link.redirected(name, keys, words) : failedFuture(error));
    }

    private CompletableFuture<Reply> confirmed(Way way, List<String> words, int count, Link link, StatefulRedisConnection<String, String> connection) {
        Sender sender = (keys, sent) -> link.call(connection.async(), way.name, longest + 2 * way.syncTimeout, keys, sent);
        return run(way, words, sender).thenCompose(values -> {
            if (values.size() != 1 || values.get(0) == null || !words.get(0).matches("FAIRLOCK.(ACQUIRE|RENEW)")) {
                return completedFuture(new Reply(values, true));
            }
            return sender.apply(0, List.of("WAIT", Integer.toString(count), Timer.ms(way.syncTimeout)))
                    .thenApply(replicas -> new Reply(values, (Long) replicas.get(0) >= count))
                    .exceptionallyCompose(error -> {
                        failure(error).isUnheard = true; // The command itself was done.
                        return failedFuture(error);
                    });
        });
    }

    private static FairlockException failure(Throwable error) {
        return FairlockException.of("", error, true);
    }

    /** How many replicas have to confirm; each server is asked once. */
    private CompletableFuture<Integer> needed(Way way, Link link) {
        if (way.syncTimeout == 0 || way.replicas != null) {
            return completedFuture(way.syncTimeout == 0 ? 0 : way.replicas);
        }
        return link.to(way.name).thenCombine(link.server(way.name), (connection, server) -> {
            CompletableFuture<Integer> known = replicas.computeIfAbsent(server, key -> role(link, connection, way.name));
            known.exceptionally(error -> replicas.remove(server, known) ? 0 : 0);
            return known;
        }).thenCompose(count -> count);
    }

    private CompletableFuture<Integer> role(Link link, StatefulRedisConnection<String, String> connection, String name) {
        return link.call(connection.async(), name, longest, 0, List.of("ROLE")).thenApply(role -> {
            if (!"master".equals(role.get(0))) {
                link.end(); // The Sentinels are asked anew.
                throw new FairlockException.Unavailable(name + ": " + servers.where(name) + ": by its ROLE it is no master", "READONLY", null);
            }
            return ((List<?>) role.get(2)).isEmpty() ? 0 : 1;
        }).exceptionallyCompose(error -> isUnknown(error) ? completedFuture(0) : failedFuture(error)); // A server without ROLE has none.
    }

    /** Whether the server does not know the command. The second text is Upstash's. */
    static boolean isUnknown(Throwable error) {
        FairlockException failure = failure(error);
        return failure.is("ERR") && failure.getMessage().matches("(?is).*(unknown command|command is not available).*");
    }

    /** The command, or where it cannot be had its script. */
    private CompletableFuture<List<Object>> run(Way way, List<String> words, Sender sender) {
        if (Boolean.FALSE.equals(isNative) && way.byModule == null && SCRIPTED.contains(words.get(0))) {
            return sender.apply(3, scripted("EVALSHA", words)).exceptionallyCompose(error ->
                    failure(error).is("NOSCRIPT") ? sender.apply(3, scripted("EVAL", words)) : failedFuture(error));
        }
        return sender.apply(1, words).whenComplete((reply, error) -> {
            if (isNative == null && (error == null || failure(error) instanceof FairlockException.QueueFull)) {
                isNative = true;
            }
        }).exceptionallyCompose(error -> {
            FairlockException failure = failure(error);
            boolean isDenied = failure.is("NOPERM") && failure.getMessage().matches("(?is).*'fairlock\\..*");
            if (!isDenied && !isUnknown(failure) || isDenied && (isModuleRequired || way.byModule != null)) {
                return failedFuture(error);
            } else if (isModuleRequired || way.byModule != null) {
                String why = isModuleRequired ? NO_MODULE : way.byModule + " needs the fairlock module, which the server does not have";
                return failedFuture(new FairlockException.NoModule(way.name + ": " + servers.where(way.name) + ": " + why
                        + " (unknown command 'FAIRLOCK.ACQUIRE'). Load it: \"loadmodule /path/to/libfairlock.so\" in its redis.conf, or MODULE LOAD. "
                        + "See docs/operations.md at https://fairlock.example", failure));
            }
            isNative = false;
            warn(way.name, isDenied);
            return SCRIPTED.contains(words.get(0)) ? run(way, words, sender) : failedFuture(error);
        });
    }

    private void warn(String name, boolean isDenied) {
        if (isWarned.compareAndSet(false, true)) {
            LOG.log(Level.WARNING, servers.where(name) + ": " + (isDenied ? "the user may not run the commands of the fairlock module" : NO_MODULE)
                    + ": locks are taken by scripts. " + (isDenied ? "Allow them" : "Load it") + " for hand-off, sessions and shared locks, "
                    + "or set module to \"required\" to refuse");
        }
    }

    /** The words of a script in place of a command. */
    private static List<String> scripted(String how, List<String> command) {
        String name = command.get(1);
        Script script = SCRIPTS.computeIfAbsent(command.get(0), Wire::script);
        List<String> words = new ArrayList<>(List.of(how, how.equals("EVAL") ? script.text : script.digest, "4", name, key("redisson_lock_queue", name),
                key("redisson_lock_timeout", name), key("fairlock_token", name)));
        words.addAll(command.subList(2, command.size()));
        return words;
    }

    private static Script script(String command) {
        String file = command.substring("FAIRLOCK.".length()).toLowerCase(Locale.ROOT) + ".lua";
        try (InputStream source = Wire.class.getResourceAsStream(file)) {
            byte[] text = source.readAllBytes();
            return new Script(new String(text, StandardCharsets.UTF_8), HexFormat.of().formatHex(MessageDigest.getInstance("SHA-1").digest(text)));
        } catch (IOException | NoSuchAlgorithmException error) {
            throw new IllegalStateException(error);
        }
    }

    /** The state of a lock; without the module, from its keys. */
    CompletableFuture<LockInfo> info(String name) {
        Link link = link("common");
        return link.to(name).thenCompose(connection -> {
            Sender sender = redirected(link, connection, name);
            return run(new Way(name, null, null, 0, 0), List.of("FAIRLOCK.INFO", name), sender).thenApply(LockInfo::of).exceptionallyCompose(error ->
                    !Boolean.FALSE.equals(isNative) ? failedFuture(error) : sender.apply(1, List.of("HGETALL", name)).thenCompose(fields ->
                            sender.apply(1, List.of("PTTL", name)).thenCombine(sender.apply(1, List.of("LLEN", key("redisson_lock_queue", name))),
                                    (lease, waiting) -> LockInfo.of(fields, (Long) lease.get(0), (Long) waiting.get(0)))));
        });
    }

    /** Waits a moment for the connections to close. */
    void close() {
        isClosed = true;
        List<Link> closing = List.copyOf(open);
        closing.forEach(Link::end);
        CompletableFuture.allOf(closing.stream().map(link -> link.closed).toArray(CompletableFuture<?>[]::new))
                .completeOnTimeout(null, 1, TimeUnit.SECONDS).join();
    }
}
