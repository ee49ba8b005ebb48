package fairlock;

import io.lettuce.core.RedisCommandExecutionException;
import java.util.Locale;
import java.util.Set;
import java.util.concurrent.CompletionException;

/** Base of all errors here, which are nested in it. Each names the lock and the server, and has the first failure as its cause. */
@SuppressWarnings("serial")
public class FairlockException extends RuntimeException {
    /** After these, and when the connection failed, the same owner asks again. */
    private static final Set<String> PASSING = Set.of("ASK", "BUSY", "CLUSTERDOWN", "LOADING", "MASTERDOWN", "MOVED", "NOREPLICAS", "READONLY",
            "TRYAGAIN", "UNBLOCKED");
    private final String code;
    /** Whether the server may have done the command: its reply was lost. */
    boolean isUnheard;

    FairlockException(String text, String code, Throwable cause) {
        super(text, cause);
        this.code = code;
    }

    /** The first word of the server's error; null: the error is not the server's. */
    public String code() {
        return code;
    }

    /** The {@code wait} is over. */
    public static class NotInTime extends FairlockException { NotInTime(String text, Throwable cause) { super(text, null, cause); } }

    /** Too few replicas have confirmed the lock when the {@code wait} is over, or its renewal. */
    public static class NotReplicated extends NotInTime { NotReplicated(String text, Throwable cause) { super(text, cause); } }

    /** The server could not be reached for {@code retryTimeout}, in a release for {@code releaseTimeout}. */
    public static class Unavailable extends FairlockException { Unavailable(String text, String code, Throwable cause) { super(text, code, cause); } }

    /** A refusal of the server, such as NOPERM or OOM. Some have a class of their own. */
    public static class Refused extends FairlockException { Refused(String text, String code, Throwable cause) { super(text, code, cause); } }

    /** An option needs the module, which the server does not have. */
    public static class NoModule extends Refused { NoModule(String text, Throwable cause) { super(text, "ERR", cause); } }

    /** The lock has {@code fairlock.max-waiters}. */
    public static class QueueFull extends Refused { QueueFull(String text, String code, Throwable cause) { super(text, code, cause); } }

    /** The key has a hash that is no lock. */
    public static class NotALock extends Refused { NotALock(String text, String code, Throwable cause) { super(text, code, cause); } }

    /** The key has data of another type. */
    public static class WrongType extends Refused { WrongType(String text, String code, Throwable cause) { super(text, code, cause); } }

    /** In a cluster: for its braces the name would have keys in several slots. */
    public static class CrossSlot extends Refused { CrossSlot(String text, String code, Throwable cause) { super(text, code, cause); } }

    /** Locks was closed. */
    public static class Closed extends FairlockException { Closed(String text) { super(text, null, null); } }

    /** The lock was lost before its release. */
    public static class LockLost extends FairlockException {
        /** How a lock was lost. */
        public enum Cause {
            /** The lease is over by this process's clock, without a renewal. */ LEASE,
            /** The server says so: BREAK, DEL, the lease over there, a master that does not have the lock. */ NOTHELD,
            /** The connection of a session has closed. */ CONNECTION,
            /** Locks was closed. */ CLOSED
        }

        private final Cause how;

        LockLost(String where, Cause how) {
            super(where + ": the lock was lost (" + how.name().toLowerCase(Locale.ROOT) + ")", how == Cause.NOTHELD ? "NOTHELD" : null, null);
            this.how = how;
        }

        /** How the lock was lost. */
        public Cause cause() {
            return how;
        }
    }

    /** What Lettuce failed with, in a command or while it connected. */
    static FairlockException of(String where, Throwable failed) {
        Throwable error = failed instanceof CompletionException && failed.getCause() != null ? failed.getCause() : failed, deepest = error;
        for (Throwable each = error; each != null; each = each.getCause()) {
            if (each instanceof FairlockException ours) {
                return ours;
            } else if (each instanceof RedisCommandExecutionException) {
                return refused(where + ": " + each.getMessage(), each.getMessage().split(" ", 2)[0], each);
            }
            deepest = each;
        }
        String text = deepest.getMessage() == null ? deepest.toString() : deepest.getMessage();
        FairlockException broken = new Unavailable(where + ": " + text, null, error);
        broken.isUnheard = true;
        return broken;
    }

    private static FairlockException refused(String text, String word, Throwable cause) {
        String code = word.matches("[A-Z]+") ? word : "ERR";
        if (PASSING.contains(code) || text.contains("max number of clients")) {
            return new Unavailable(text, code, cause);
        }
        return switch (code) {
            case "QUEUEFULL" -> new QueueFull(text, code, cause);
            case "NOTALOCK" -> new NotALock(text, code, cause);
            case "WRONGTYPE" -> new WrongType(text, code, cause);
            case "CROSSSLOT" -> new CrossSlot(text, code, cause);
            case "NOAUTH" -> new Refused(text + " (fairlock: give the RedisURI a password: withAuthentication(user, password))", code, cause);
            case "WRONGPASS" -> new Refused(text + " (fairlock: the user or the password of the RedisURI is not the server's)", code, cause);
            case "NOPERM" -> new Refused(text + " (fairlock: SECURITY.md at https://fairlock.example has a user for the packages"
                    + (text.matches("(?i).*'(role|wait)'.*") ? "; without ROLE and WAIT set syncTimeout to zero)" : ")"), code, cause);
            default -> new Refused(text, code, cause);
        };
    }

    boolean is(String word) {
        return word.equals(code);
    }

    boolean isPassing() {
        return this instanceof Unavailable;
    }

    /** The slot is at another node. */
    boolean isElsewhere() {
        return is("MOVED") || is("ASK");
    }

    /** The server does not know the command. The second text is Upstash's. */
    boolean isUnknown() {
        return is("ERR") && getMessage().matches("(?is).*(unknown command|command is not available).*");
    }

    /** The user may not run a command of the module. */
    boolean isDenied() {
        return is("NOPERM") && getMessage().matches("(?is).*'fairlock\\..*");
    }
}
