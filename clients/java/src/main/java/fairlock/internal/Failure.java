package fairlock.internal;

import fairlock.CrossSlotException;
import fairlock.FairlockException;
import fairlock.NoModuleException;
import fairlock.NotALockException;
import fairlock.QueueFullException;
import fairlock.RefusedException;
import fairlock.TakenOverException;
import fairlock.WrongTypeException;
import java.util.Locale;
import java.util.Set;
import java.util.concurrent.CompletionException;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.TimeoutException;

/** Why a command failed: a refusal of the server, or a broken connection. */
public final class Failure extends Exception {
    private static final long serialVersionUID = 1;
    private static final String HELP = " (unknown command 'FAIRLOCK.ACQUIRE'). Load it: \"loadmodule /path/to/libfairlock.so\" "
            + "in its redis.conf, or MODULE LOAD. See docs/operations.md at https://fairlock.example";
    /** Temporary refusals: the same owner asks again, and still has its place. */
    private static final Set<String> PASSING = Set.of("CLUSTERDOWN", "TRYAGAIN", "LOADING", "READONLY", "MASTERDOWN",
            "NOREPLICAS", "UNBLOCKED", "MOVED", "ASK");

    /** The first word of a refusal; null: the connection is broken. */
    final String code;
    /** Whether the command may have been done by an earlier try, whose reply was lost. */
    boolean mayBeDone;
    private Address where;

    private Failure(String text, String code, Throwable cause) {
        super(text, cause);
        this.code = code;
    }

    /** The server's own text. */
    static Failure refusal(String text) {
        String word = text.split(" ", 2)[0];
        boolean isCode = !word.isEmpty() && word.chars().allMatch(letter -> letter >= 'A' && letter <= 'Z');
        Failure failure = new Failure(text, isCode ? word : "ERR", null);
        return failure.isUnknown() ? broken(text, failure) : failure; // The next connection learns what the server has.
    }

    /** A connection that could not be made or has ended, or whose answer did not come in time. */
    static Failure broken(String text, Throwable cause) {
        return new Failure(text, null, cause);
    }

    /** The failure of a future. Other failures than the server's and the network's are thrown at once. */
    static Failure of(Throwable error) {
        Throwable cause = error;
        while ((cause instanceof CompletionException || cause instanceof ExecutionException) && cause.getCause() != null) {
            cause = cause.getCause();
        }
        if (cause instanceof Error bug) {
            throw bug;
        }
        if (cause instanceof Failure failure) {
            return failure;
        }
        return broken(cause instanceof TimeoutException ? "no answer in time" : String.valueOf(cause), cause);
    }

    /** Adds the address, unless it has one. */
    Failure at(Address address) {
        where = where == null ? address : where;
        return this;
    }

    /** With the address. */
    String text() {
        return where == null ? getMessage() : where + ": " + getMessage();
    }

    boolean isBroken() {
        return code == null;
    }

    /** Whether this process has no descriptor left for another connection. */
    boolean isShort() {
        return isBroken() && getMessage().contains("Too many open files");
    }

    /** Whether the server does not know the command. The second text is Upstash's. */
    boolean isUnknownCommand() {
        String text = getMessage().toLowerCase(Locale.ROOT);
        return text.contains("unknown command") || text.contains("command is not available");
    }

    /** Whether the server does not have the module, or no longer has it. */
    boolean isUnknown() {
        return isUnknownCommand() && getMessage().toLowerCase(Locale.ROOT).contains("fairlock.");
    }

    /** Whether the user may not run a command of the module. */
    boolean isDenied() {
        return is("NOPERM") && getMessage().toLowerCase(Locale.ROOT).contains("'fairlock.");
    }

    boolean is(String word) {
        return word.equals(code);
    }

    /** Whether trying again a little later may help. */
    boolean isPassing() {
        return isBroken() || PASSING.contains(code);
    }

    /** The server has no module, and this option (null: the caller) needs it. */
    static NoModuleException noModule(Address address, String option) {
        String text = option == null
                ? "the server does not have the fairlock module"
                : option + " needs the fairlock module, which the server does not have";
        return new NoModuleException(address + ": " + text + HELP, "ERR", null);
    }

    /** The package's error for a refusal. */
    FairlockException translated(String name) {
        String text = name + ": " + text();
        return switch (code) {
            case "TAKENOVER" -> new TakenOverException(text, code, this);
            case "QUEUEFULL" -> new QueueFullException(text, code, this);
            case "NOTALOCK" -> new NotALockException(text, code, this);
            case "WRONGTYPE" -> new WrongTypeException(text, code, this);
            case "CROSSSLOT" -> new CrossSlotException(text, code, this);
            default -> new RefusedException(text + hint(getMessage().toLowerCase(Locale.ROOT)), code, this);
        };
    }

    private String hint(String text) {
        return switch (code) {
            case "NOAUTH" -> " (fairlock: give the RedisURI a password: withAuthentication(user, password))";
            case "WRONGPASS" -> " (fairlock: the user or the password of the RedisURI is not the server's)";
            case "NOPERM" -> " (fairlock: SECURITY.md at https://fairlock.example has a user for the packages"
                    + (text.contains("'role'") || text.contains("'wait'")
                            ? "; ROLE and WAIT confirm that a replica has the lock: allow both, or set syncTimeout to zero)"
                            : ")");
            default -> "";
        };
    }
}
