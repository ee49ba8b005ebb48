package fairlock;

/** For {@code retryTimeout} the server could not be reached, or refused temporarily. */
public class UnavailableException extends FairlockException {
    private static final long serialVersionUID = 1;

    /** Made by the package. */
    public UnavailableException(String message, String code, Throwable cause) {
        super(message, code, cause);
    }
}
