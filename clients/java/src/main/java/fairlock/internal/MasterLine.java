package fairlock.internal;

import fairlock.internal.Backend.Line;
import java.util.Arrays;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.CompletableFuture;

/**
 * A connection to a master: where that has the module, it takes the commands as they are; otherwise, or if the user may not
 * run them, it runs their scripts, and reads the lock's keys in place of INFO.
 */
final class MasterLine implements Line {
    /** What all connections to a server know of it. */
    interface Server {
        /** Masters under Sentinels know ROLE. Others may be services that have their own ways. */
        boolean isUnderSentinel();

        /** The module is not there any more. */
        void unloaded();

        /** How the user was denied the module, or null. */
        Failure denied();

        /** The user may not run a command of the module; whether scripts may do its work. */
        boolean deny(Failure failure);
    }

    private final Line line;
    private final boolean isThere;
    private final Server server;

    private MasterLine(Line line, boolean isThere, Server server) {
        this.line = line;
        this.isThere = isThere;
        this.server = server;
    }

    /** The connection, if the server is a master by its own ROLE. */
    static CompletableFuture<Line> of(Line line, boolean isKnownNative, Server server) {
        CompletableFuture<Boolean> hasModule = isKnownNative ? CompletableFuture.completedFuture(true) : hasModule(line);
        return role(line, server).handle((role, error) -> {
            Failure failure = error == null ? null : Failure.of(error);
            if (failure == null && !role.get(0).equals("master")) {
                failure = Failure.refusal("READONLY the server is no master, says its ROLE");
            }
            if (failure == null || failure.is("NOPERM")) { // A caller that needs ROLE asks again.
                return hasModule.<Line>thenApply(isThere -> new MasterLine(line, isThere, server));
            }
            line.close();
            return CompletableFuture.<Line>failedFuture(failure);
        }).thenCompose(each -> each);
    }

    private static CompletableFuture<List<Object>> role(Line line, Server server) {
        return line.call("ROLE").exceptionallyCompose(error -> Failure.of(error).isUnknownCommand() && !server.isUnderSentinel()
                ? CompletableFuture.completedFuture(List.of("master", 0L, List.of()))
                : CompletableFuture.failedFuture(error));
    }

    /** Without a key, the module replies that it needs one. Services have other texts for "unknown command". */
    private static CompletableFuture<Boolean> hasModule(Line line) {
        return line.call("FAIRLOCK.ACQUIRE").handle((reply, error) -> {
            Failure failure = error == null ? null : Failure.of(error);
            boolean isForeign = failure != null && failure.is("ERR") && !failure.getMessage().contains("wrong number of arguments");
            return failure == null || !failure.isUnknown() && !isForeign;
        });
    }

    @Override
    public boolean isNative() {
        return isThere && server.denied() == null;
    }

    @Override
    public CompletableFuture<List<Object>> call(Object... words) {
        return run(false, words);
    }

    @Override
    public CompletableFuture<List<Object>> asking(Object... words) {
        return run(true, words);
    }

    private CompletableFuture<List<Object>> run(boolean isAsking, Object[] words) {
        if (words[0].equals("ROLE")) {
            return role(line, server);
        }
        if (isNative()) {
            return send(isAsking, words).exceptionallyCompose(error -> {
                Failure failure = Failure.of(error);
                if (failure.isUnknown()) {
                    server.unloaded();
                }
                return failure.isDenied() && Script.does(words) && server.deny(failure)
                        ? run(isAsking, Script.of(words[0]), words)
                        : CompletableFuture.failedFuture(error);
            });
        }
        if (words[0].equals("FAIRLOCK.INFO")) {
            return info(isAsking, words[1].toString());
        }
        Script script = Script.of(words[0]);
        return script == null ? send(isAsking, words) : run(isAsking, script, words);
    }

    private CompletableFuture<List<Object>> run(boolean isAsking, Script script, Object[] words) {
        return send(isAsking, script.words(false, words)).exceptionallyCompose(error -> {
            return Failure.of(error).is("NOSCRIPT")
                    ? send(isAsking, script.words(true, words))
                    : CompletableFuture.failedFuture(error);
        });
    }

    private CompletableFuture<List<Object>> send(boolean isAsking, Object... words) {
        return isAsking ? line.asking(words) : line.call(words);
    }

    /** As FAIRLOCK.INFO replies. The lease and the number of waiters may be those of a moment later. */
    private CompletableFuture<List<Object>> info(boolean isAsking, String name) {
        CompletableFuture<List<Object>> hash = send(isAsking, "HGETALL", name);
        CompletableFuture<List<Object>> lease = send(isAsking, "PTTL", name);
        CompletableFuture<List<Object>> waiting = send(isAsking, "LLEN", Script.queue(name));
        return hash.thenCompose(fields -> lease.thenCombine(waiting, (left, count) -> info(fields, left, count)));
    }

    private static List<Object> info(List<Object> hash, List<Object> lease, List<Object> waiting) {
        Map<String, String> fields = new LinkedHashMap<>();
        for (int index = 0; index + 1 < hash.size(); index += 2) {
            fields.put((String) hash.get(index), (String) hash.get(index + 1));
        }
        String token = fields.remove("");
        String owner = fields.keySet().stream().findFirst().orElse(null);
        long holders = owner == null ? 0 : 1; // Shared locks need the module.
        return Arrays.asList("owner", owner, "holds", number(fields.get(owner)),
                "lease", owner == null ? 0L : Math.max(-1, (Long) lease.get(0)),
                "token", token == null ? null : number(token), "session", 0L, "waiting", waiting.get(0),
                "holders", holders, "limit", holders);
    }

    /** 0 if it is not a number: the hash may not be a lock. */
    private static long number(String text) {
        return text != null && text.matches("\\d{1,18}") ? Long.parseLong(text) : 0;
    }

    @Override
    public void onClosed(Runnable work) {
        line.onClosed(work);
    }

    @Override
    public void close() {
        line.close();
    }
}
