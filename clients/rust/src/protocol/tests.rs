//! The protocol without a server.

use super::*;

const SECOND: Duration = Duration::from_secs(1);

#[allow(clippy::unnecessary_wraps)] // As it is used.
fn reply(value: Value, is_confirmed: bool) -> Result<Reply> {
    Ok(Reply(value, is_confirmed))
}

fn asking(now: Instant) -> Asking {
    let (wait, lease, retry_timeout) = (Some(60 * SECOND), 9 * SECOND, 5 * SECOND);
    let options = Options {
        wait,
        lease,
        retry_timeout,
        ..Options::default()
    };
    let mut asking = Asking::new(&options, now);
    assert!(matches!(asking.ask(now), Step::Ask));
    asking
}

#[test]
fn a_waiter_listens_then_asks_again_and_is_granted_from_before_its_ask() {
    let start = Instant::now();
    let mut asking = asking(start);
    let place = Value::Array(vec![Value::Int(1), Value::Int(4000)]);
    let step = asking.answered(start, start, reply(place, true));
    assert!(matches!(step, Step::Listen(pause) if pause >= 4 * SECOND && pause <= 5 * SECOND));
    assert!(asking.is_there);
    assert!(matches!(asking.ask(start + SECOND), Step::Ask));
    let step = asking.answered(
        start + SECOND,
        start + 2 * SECOND,
        reply(Value::Int(7), true),
    );
    assert!(matches!(step, Step::Granted(7, since) if since == start + SECOND));
    assert!(matches!(
        asking.ask(start + 60 * SECOND),
        Step::Failed(Kind::NotInTime, None)
    ));
}

#[test]
fn a_late_grant_is_asked_for_again_which_renews_it() {
    let start = Instant::now();
    let mut slow = asking(start);
    for (sent, answered) in [(0, 3), (3, 12)] {
        let (sent, answered) = (start + sent * SECOND, start + answered * SECOND);
        let step = slow.answered(sent, answered, reply(Value::Int(7), true));
        assert!(matches!(step, Step::Ask));
    }
    let (sent, answered) = (start + 12 * SECOND, start + 16 * SECOND);
    let step = slow.answered(sent, answered, reply(Value::Int(7), true));
    assert!(matches!(step, Step::Granted(7, since) if since == sent));
}

#[test]
fn a_grant_without_its_replica_is_given_back_until_the_wait_is_over() {
    let start = Instant::now();
    let mut asking = asking(start);
    let step = asking.answered(start, start, reply(Value::Int(7), false));
    assert!(matches!(step, Step::GiveBack(7)));
    assert!(matches!(
        asking.given_back(start, reply(Value::Int(0), true)),
        Step::Pause(_)
    ));
    assert!(matches!(
        asking.ask(start + 60 * SECOND),
        Step::Failed(Kind::NotReplicated, None)
    ));
}

#[test]
fn passing_failures_are_tried_again_for_so_long_and_others_are_not() {
    let start = Instant::now();
    let mut asking = asking(start);
    let broken = || Err(Error::silent("gone"));
    assert!(matches!(
        asking.answered(start, start, broken()),
        Step::Pause(FIRST_PAUSE)
    ));
    assert!(!asking.is_there);
    assert!(matches!(asking.ask(start + SECOND), Step::Ask));
    let step = asking.answered(start, start + 5 * SECOND, broken());
    assert!(matches!(step, Step::Failed(Kind::Unavailable, Some(_))));
    let refused = redis::make_extension_error("OOM".to_owned(), None);
    let refused = Error::of(&refused, "here");
    assert!(matches!(
        asking.failed(start, refused),
        Step::Failed(Kind::Refused, Some(_))
    ));
}

#[test]
fn a_lease_is_renewed_at_each_third_and_lost_when_it_is_over() {
    let start = Instant::now();
    let mut keeping = Keeping::new(9 * SECOND, true, start);
    assert!(matches!(keeping.next(start), Due::Later(due) if due == start + 3 * SECOND));
    assert!(matches!(keeping.next(start + 3 * SECOND), Due::Renewal));
    keeping.failed(start + 3 * SECOND);
    assert!(
        matches!(keeping.next(start + 3 * SECOND), Due::Later(due) if due < start + 4 * SECOND)
    );
    keeping.renewed(start + 4 * SECOND, 30 * SECOND);
    assert!(matches!(keeping.next(start + 20 * SECOND), Due::Renewal));
    assert!(matches!(keeping.next(start + 34 * SECOND), Due::Over));
    let keeping = Keeping::new(Duration::MAX, false, start);
    assert!(matches!(keeping.next(start), Due::Later(_)));
}
