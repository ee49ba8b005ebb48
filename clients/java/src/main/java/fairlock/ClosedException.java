package fairlock;

/** Locks was closed. */
public class ClosedException extends FairlockException {
    private static final long serialVersionUID = 1;

    /** Made by the package. */
    public ClosedException(String message, String code, Throwable cause) {
        super(message, code, cause);
    }
}
