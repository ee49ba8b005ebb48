package fairlock;

/** The same owner asks elsewhere, and has the place in the queue now. */
public class TakenOverException extends FairlockException {
    private static final long serialVersionUID = 1;

    /** Made by the package. */
    public TakenOverException(String message, String code, Throwable cause) {
        super(message, code, cause);
    }
}
