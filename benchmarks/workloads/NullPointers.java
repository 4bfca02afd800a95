/** NullPointers N: N dereferences of null, each a SIGSEGV that the virtual machine turns into an exception. */
public final class NullPointers {
    private int field;

    private static int read(NullPointers from) {
        return from.field;
    }

    public static void main(String[] arguments) {
        int times = Integer.parseInt(arguments[0]);
        int caught = 0;
        for (int number = 0; number < times; number++) {
            try {
                read(null);
            } catch (NullPointerException expected) {
                caught++;
            }
        }
        System.exit(caught == times ? 0 : 1);
    }
}
