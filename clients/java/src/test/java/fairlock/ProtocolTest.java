package fairlock;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertInstanceOf;
import static org.junit.jupiter.api.Assertions.assertSame;
import static org.junit.jupiter.api.Assertions.assertTrue;

import fairlock.Protocol.Act;
import fairlock.Protocol.Ask;
import java.time.Duration;
import java.util.Arrays;
import java.util.List;
import org.junit.jupiter.api.Test;

/** The protocol without a server; times are milliseconds. */
class ProtocolTest {
    private final Ask ask = ask(60);
    private long now;

    private static Ask ask(long seconds) {
        LockOptions options = LockOptions.options().wait(Duration.ofSeconds(seconds)).lease(Duration.ofSeconds(9));
        Ask ask = new Ask("orders", "me", options, true, false, () -> "orders: here", 0);
        ask.late = 1;
        ask.begun(0);
        return ask;
    }

    private void sends(Act act, long time) {
        now = time;
        assertEquals(act, ask.next(time * Protocol.MS).act());
    }

    private void replied(Object... values) {
        ask.replied(Arrays.asList(values), true, now * Protocol.MS);
    }

    private void failed(String code) {
        boolean isLost = code == null;
        FairlockException failure = isLost ? new FairlockException.Unavailable("reset", null, null) : new FairlockException.Refused(code, code, null);
        failure.isUnheard = isLost;
        ask.failed(failure, now * Protocol.MS);
    }

    private void waits() {
        sends(Act.ACQUIRE, 0);
        replied(1L, 5000L);
        sends(Act.LISTEN, 1);
        ask.listening(true, Protocol.MS);
        sends(Act.ACQUIRE, 1);
        replied(1L, 5000L);
        sends(Act.PAUSE, 2);
    }

    @Test
    void aWaiterAsksOnceItListensAndAtEachMessageAndListensAnewWithoutOne() {
        waits();
        ask.woken(true);
        sends(Act.ACQUIRE, 3);
        replied(1L, 5000L);
        assertEquals(5003 * Protocol.MS, ask.next(4 * Protocol.MS).until());
        sends(Act.LISTEN, 5003);
        ask.listening(true, now * Protocol.MS);
        sends(Act.ACQUIRE, 5004);
        replied(7L);
        assertTrue(ask.isHeld && ask.token == 7 && ask.leaseFrom == 5004 * Protocol.MS);
    }

    @Test
    void aLateGrantIsRenewedAndOneThatIsOverIsAskedForAgain() {
        sends(Act.ACQUIRE, 0);
        now = 3000;
        replied(7L);
        sends(Act.RENEW, 3001);
        failed("NOTHELD");
        sends(Act.ACQUIRE, 3002);
        assertFalse(ask.isHeld);
    }

    @Test
    void whoLeavesReleasesOnlyWhereAReplyWasLost() {
        for (boolean isLost : List.of(false, true)) {
            ProtocolTest other = new ProtocolTest();
            other.waits();
            if (isLost) {
                other.ask.woken(true);
                other.sends(Act.ACQUIRE, 3);
                other.failed(null);
            }
            other.sends(Act.CANCEL, 60_000);
            assertInstanceOf(FairlockException.NotInTime.class, other.ask.refusal);
            other.replied(0L);
            other.sends(isLost ? Act.RELEASE : Act.OVER, 60_001);
        }
    }

    @Test
    void aGrantThatTooFewReplicasHaveIsGivenBack() {
        sends(Act.ACQUIRE, 0);
        ask.replied(List.of(7L), false, 0);
        assertEquals(List.of("FAIRLOCK.RELEASE", "orders", "me", "TOKEN", "7"), ask.next(1).words());
        replied(0L);
        sends(Act.PAUSE, 1);
        sends(Act.OVER, 60_000);
        assertInstanceOf(FairlockException.NotReplicated.class, ask.refusal);
    }

    @Test
    void aCallerThatGoesWhileItsAskIsUnderWayGivesTheGrantBack() {
        Exception gone = new InterruptedException();
        sends(Act.ACQUIRE, 0);
        assertTrue(ask.leave(gone, 0));
        sends(Act.BUSY, 1);
        replied(7L);
        sends(Act.RELEASE, 2);
        replied(0L);
        sends(Act.OVER, 3);
        assertSame(gone, ask.refusal);
    }

    @Test
    void aRefusalEndsItAndAnOutageOnlyAfterATime() {
        sends(Act.ACQUIRE, 0);
        failed(null);
        sends(Act.PAUSE, 49);
        sends(Act.ACQUIRE, 50);
        failed("OOM");
        sends(Act.CANCEL, 51); // The first one may have arrived.
        Ask other = ask(120);
        for (long time = 0; other.refusal == null; time++) {
            if (other.next(time * Protocol.MS).act() == Act.BUSY) {
                other.failed(new FairlockException.Unavailable("refused", null, null), time * Protocol.MS);
            }
            assertTrue(time < 31_100);
        }
    }
}
