package fairlock;

/** Any other refusal of the server: NOPERM, OOM, ERR, ... */
public class RefusedException extends FairlockException {
    private static final long serialVersionUID = 1;

    /** Made by the package. */
    public RefusedException(String message, String code, Throwable cause) {
        super(message, code, cause);
    }
}
