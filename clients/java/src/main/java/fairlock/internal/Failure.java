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

/** What a command failed with: a refusal of the server, or a connection that is broken. */
public final class Failure extends Exception {
    private static final long serialVersionUID = 1;
    private static final String HELP = "the server does not have the fairlock module (unknown command "
            + "'FAIRLOCK.ACQUIRE'). Load it: \"loadmodule /path/to/libfairlock.so\" in its redis.conf, or MODULE LOAD. "
            + "See docs/operations.md at https://fairlock.example";
    /** Refusals that pass: the same owner asks again, and has its place still. */
    private static final Set<String> PASSING = Set.of("CLUSTERDOWN", "TRYAGAIN", "LOADING", "READONLY", "MASTERDOWN",
            "NOREPLICAS", "UNBLOCKED", "MOVED", "ASK");

    /** The first word of a refusal; null: the connection is broken. */
    final String code;
    /** Whether the command may have been done by an earlier try, whose reply was lost. */
    boolean mayBeDone;

    private Failure(String text, String code, Throwable cause) {
        super(text, cause);
        this.code = code;
    }

    /** The server's own text. */
    public static Failure refusal(String text) {
        String word = text.split(" ", 2)[0];
        boolean isCode = !word.isEmpty() && word.chars().allMatch(letter -> letter >= 'A' && letter <= 'Z');
        return new Failure(text, isCode ? word : "ERR", null);
    }

    /** A connection that could not be made or has ended, or whose answer did not come in time. */
    public static Failure broken(String text, Throwable cause) {
        return new Failure(text, null, cause);
    }

    boolean isBroken() {
        return code == null;
    }

    boolean is(String word) {
        return word.equals(code);
    }

    /** Whether it is worth trying again a little later. */
    boolean isPassing() {
        return isBroken() || PASSING.contains(code);
    }

    /** The package's error for a refusal. */
    FairlockException translated(String where) {
        String text = getMessage();
        String lower = text.toLowerCase(Locale.ROOT);
        if (is("ERR") && lower.contains("unknown command") && lower.contains("fairlock.")) {
            return new NoModuleException(where + ": " + HELP, code, this);
        }
        return switch (code) {
            case "TAKENOVER" -> new TakenOverException(text, code, this);
            case "QUEUEFULL" -> new QueueFullException(text, code, this);
            case "NOTALOCK" -> new NotALockException(text, code, this);
            case "WRONGTYPE" -> new WrongTypeException(text, code, this);
            case "CROSSSLOT" -> new CrossSlotException(text, code, this);
            case "NOPERM" -> new RefusedException(text + hint(lower), code, this);
            default -> new RefusedException(text, code, this);
        };
    }

    private static String hint(String text) {
        return text.contains("'info'") || text.contains("'wait'")
                ? " (fairlock: allow INFO and WAIT, which confirm that a replica has the lock, or set syncTimeout to zero)"
                : "";
    }
}
