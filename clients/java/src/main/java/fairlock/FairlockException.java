package fairlock;

/** Base of all errors here. */
public class FairlockException extends RuntimeException {
    private static final long serialVersionUID = 1;
    /** The first word of the server's error. */
    private final String code;

    /** Made by the package. */
    public FairlockException(String message, String code, Throwable cause) {
        super(message, cause);
        this.code = code;
    }

    /** The first word of the server's error, or null if the error is not the server's. */
    public String code() {
        return code;
    }
}
