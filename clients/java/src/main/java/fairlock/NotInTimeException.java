package fairlock;

/** The lock did not become available within the wait. */
public class NotInTimeException extends FairlockException {
    private static final long serialVersionUID = 1;

    /** Made by the package. */
    public NotInTimeException(String message, String code, Throwable cause) {
        super(message, code, cause);
    }
}
