package fairlock;

/** The lock has as many waiters as the server allows ({@code fairlock.max-waiters}). */
public class QueueFullException extends FairlockException {
    private static final long serialVersionUID = 1;

    /** Made by the package. */
    public QueueFullException(String message, String code, Throwable cause) {
        super(message, code, cause);
    }
}
