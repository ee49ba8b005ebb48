package fairlock;

/** In a cluster: the braces in the name would put the lock's keys in different slots. */
public class CrossSlotException extends FairlockException {
    private static final long serialVersionUID = 1;

    /** Made by the package. */
    public CrossSlotException(String message, String code, Throwable cause) {
        super(message, code, cause);
    }
}
