package fairlock;

import static java.util.concurrent.CompletableFuture.completedFuture;
import static java.util.concurrent.CompletableFuture.failedFuture;

import io.lettuce.core.codec.Base16;
import java.io.IOException;
import java.io.InputStream;
import java.io.UncheckedIOException;
import java.lang.System.Logger.Level;
import java.nio.charset.StandardCharsets;
import java.util.*;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.atomic.AtomicReference;

/** Sends the commands of a Locks, or the scripts in their place, and has replicas confirm what they wrote. */
final class Wire {
    record Reply(Object value, boolean isConfirmed) {}

    static final System.Logger LOG = System.getLogger("fairlock");
    private static final Map<String, String> DIGESTS = new ConcurrentHashMap<>();
    private static final String NO_MODULE = "the server does not have the fairlock module";

    private final Servers servers;
    private final boolean isModuleRequired;
    private final Map<Object, Integer> replicas = new ConcurrentHashMap<>();
    /** Whether the server has the module; null: it was not asked yet. */
    final AtomicReference<Boolean> isNative = new AtomicReference<>();

    Wire(Servers servers, LockOptions options) {
        this.servers = servers;
        isModuleRequired = options.get("module", LockOptions.Module.AUTO) == LockOptions.Module.REQUIRED;
    }

    /** A key or channel of a lock, by Redisson's rule. */
    static String key(String prefix, String name) {
        return prefix + ":" + (name.contains("{") ? name : "{" + name + "}");
    }

    /** A command; where replicas have to confirm what it set, with WAIT behind it, on its connection. {@code own}: a session's, or null. */
    CompletableFuture<Reply> send(LockOptions options, Servers.Line own, List<String> words) {
        String name = words.get(1);
        boolean isSetting = Set.of("FAIRLOCK.ACQUIRE", "FAIRLOCK.RENEW").contains(words.get(0));
        Servers.Line first = own != null && isSetting ? own : servers.shared("common", null);
        return (isSetting ? needed(name, options, first) : completedFuture(0)).thenCompose(count -> {
            // Not on the connection of all: WAIT keeps those behind it waiting.
            Servers.Line line = count == 0 || first == own ? first : servers.shared("confirmed", null);
            long sync = count == 0 ? 0 : options.nanos("syncTimeout", 1);
            return line.at(name, servers.longest + 2 * sync, call -> run(name, options.byModule(), words, call).thenCompose(value ->
                    count == 0 || !(value instanceof Long) ? completedFuture(new Reply(value, true))
                            : call.send(List.of("WAIT", count.toString(), Time.ms(sync)))
                                    .thenApply(confirmed -> new Reply(value, (Long) confirmed >= count)).exceptionally(error -> {
                                        FairlockException failure = FairlockException.of("", error);
                                        failure.isUnheard = true; // The command itself was done.
                                        throw failure;
                                    })));
        });
    }

    /** How many replicas have to confirm; each server is asked once. */
    private CompletableFuture<Integer> needed(String name, LockOptions options, Servers.Line line) {
        boolean isAsked = options.nanos("syncTimeout", 1) > 0;
        if (!isAsked || options.get("minReplicas", null) != null) {
            return completedFuture(isAsked ? options.get("minReplicas", 0) : 0);
        }
        return line.at(name, servers.longest, call -> {
            Object server = line.server(name);
            return replicas.containsKey(server) ? completedFuture(replicas.get(server)) : call.send(List.of("ROLE")).thenApply(reply -> {
                List<?> role = (List<?>) reply;
                if (!"master".equals(role.get(0))) {
                    line.end(); // The Sentinels are asked anew.
                    throw new FairlockException.Unavailable(servers.where(name) + ": by its ROLE it is no master", "READONLY", null);
                }
                return ((List<?>) role.get(2)).isEmpty() ? 0 : 1;
            }).exceptionallyCompose(error -> // A server without ROLE has none.
                    FairlockException.of("", error).isUnknown() ? completedFuture(0) : failedFuture(error)
            ).thenApply(count -> replicas.merge(server, count, (first, later) -> first));
        });
    }

    /** The command, or where it cannot be had its script. {@code byModule}: the option that only the module can do, or null. */
    private CompletableFuture<Object> run(String name, String byModule, List<String> words, Servers.Call call) {
        if (Boolean.FALSE.equals(isNative.get()) && byModule == null) {
            return call.send(scripted("EVALSHA", words)).exceptionallyCompose(error ->
                    FairlockException.of("", error).is("NOSCRIPT") ? call.send(scripted("EVAL", words)) : failedFuture(error));
        }
        return call.send(words).whenComplete((reply, error) -> {
            if (error == null || FairlockException.of("", error) instanceof FairlockException.QueueFull) {
                isNative.compareAndSet(null, true);
            }
        }).exceptionallyCompose(error -> {
            FairlockException failure = FairlockException.of("", error);
            boolean isNeeded = isModuleRequired || byModule != null;
            if (failure.isDenied() ? isNeeded : !failure.isUnknown()) {
                return failedFuture(error);
            } else if (isNeeded) {
                String why = isModuleRequired ? NO_MODULE : byModule + " needs the fairlock module, which the server does not have";
                return failedFuture(new FairlockException.NoModule(servers.where(name) + ": " + why
                        + " (unknown command 'FAIRLOCK.ACQUIRE'). Load it: \"loadmodule /path/to/libfairlock.so\" in its redis.conf, or MODULE LOAD. "
                        + "See docs/operations.md at https://fairlock.example", failure));
            }
            if (!Boolean.FALSE.equals(isNative.getAndSet(false))) {
                String why = failure.isDenied() ? "the user may not run the commands of the fairlock module" : NO_MODULE;
                LOG.log(Level.WARNING, servers.where(name) + ": " + why + ": locks are taken by scripts. "
                        + (failure.isDenied() ? "Allow them" : "Load it") + " for hand-off, sessions and shared locks, "
                        + "or set module to \"required\" to refuse");
            }
            return run(name, null, words, call);
        });
    }

    /** The words of a script in place of a command. */
    private static List<String> scripted(String how, List<String> command) {
        String name = command.get(1);
        String script = how.equals("EVAL") ? text(command.get(0))
                : DIGESTS.computeIfAbsent(command.get(0), each -> Base16.digest(text(each).getBytes(StandardCharsets.UTF_8)));
        List<String> words = new ArrayList<>(List.of(how, script, "4", name, key("redisson_lock_queue", name), key("redisson_lock_timeout", name),
                key("fairlock_token", name)));
        words.addAll(command.subList(2, command.size()));
        return words;
    }

    private static String text(String command) {
        String word = command.substring("FAIRLOCK.".length()).toLowerCase(Locale.ROOT);
        try (InputStream source = Wire.class.getResourceAsStream(word + ".lua")) {
            return new String(source.readAllBytes(), StandardCharsets.UTF_8);
        } catch (IOException error) {
            throw new UncheckedIOException(error);
        }
    }
}
