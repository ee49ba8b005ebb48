package fairlock;

/** No replica confirmed the acquisition within the wait. */
public class NotReplicatedException extends NotInTimeException {
    private static final long serialVersionUID = 1;

    /** Made by the package. */
    public NotReplicatedException(String message, String code, Throwable cause) {
        super(message, code, cause);
    }
}
