package fairlock;

/** One of the lock's keys holds something else. */
public class WrongTypeException extends FairlockException {
    private static final long serialVersionUID = 1;

    /** Made by the package. */
    public WrongTypeException(String message, String code, Throwable cause) {
        super(message, code, cause);
    }
}
