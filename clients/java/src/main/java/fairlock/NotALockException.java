package fairlock;

/** The key holds a hash that is not a lock. */
public class NotALockException extends FairlockException {
    private static final long serialVersionUID = 1;

    /** Made by the package. */
    public NotALockException(String message, String code, Throwable cause) {
        super(message, code, cause);
    }
}
