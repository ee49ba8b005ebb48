package fairlock;

import java.util.Locale;

/** The holder has lost the lock. */
public class LockLostException extends FairlockException {
    private static final long serialVersionUID = 1;
    /** How it was lost. */
    private final Cause cause;

    /** How a lock was lost. */
    public enum Cause {
        /** The lease is over by this process's clock, without a renewal. */
        LEASE,
        /** The server says so: BREAK, DEL, the lease over there, a restart without the data. */
        NOTHELD,
        /** The connection of a session has closed. */
        CONNECTION,
        /** Locks was closed. */
        CLOSED
    }

    /** Made by the package. */
    public LockLostException(String name, String server, Cause cause) {
        super(name + ": " + server + ": the lock was lost (" + cause.name().toLowerCase(Locale.ROOT) + ")",
                cause == Cause.NOTHELD ? "NOTHELD" : null, null);
        this.cause = cause;
    }

    /** How the lock was lost. */
    public Cause cause() {
        return cause;
    }
}
