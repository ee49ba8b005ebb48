package fairlock;

/** The server does not have the fairlock module. */
public class NoModuleException extends FairlockException {
    private static final long serialVersionUID = 1;

    /** Made by the package. */
    public NoModuleException(String message, String code, Throwable cause) {
        super(message, code, cause);
    }
}
