//! Looking at the lock while waiting for it, on a connection of its own for each look: the one that waits is blocked.
//!
//! The first look says on standard error for what it waits. Later ones find out whether the place is still there: a
//! proxy may have closed the connection on the server's side only, and then no reply will ever come.

use std::time::Duration;

use tokio::time::sleep;

use crate::failure::tell;
use crate::lock::Lock;
use crate::server::{Target, Trouble};
use crate::text::word;

use super::request::Request;

/// A wait of less than this is not worth a line.
const FIRST: Duration = Duration::from_secs(1);
/// Time between two looks.
const LOOK: Duration = Duration::from_secs(3);
/// So many waiters are looked at: behind them the place is not known.
const HEAD: usize = 100;

/// Until the place in the queue is gone, although no reply has come.
pub async fn watch(target: &Target, request: &Request<'_>) {
    let (mut is_said, mut missing) = (false, 0);
    let mut pause = FIRST;
    // Once is no proof: the lock may be on its way. A look that fails says nothing.
    while missing < 2 {
        sleep(pause).await;
        pause = LOOK;
        let Ok((lock, place)) = look(target, request).await else {
            continue;
        };
        missing = if place.is_none() { missing + 1 } else { 0 };
        if let Some(place) = place.filter(|_| !is_said) {
            tell(line(request.key(), &lock, &place));
            is_said = true;
        }
    }
}

/// Also the owner's place in the queue, if it has one.
async fn look(target: &Target, request: &Request<'_>) -> Result<(Lock, Option<String>), Trouble> {
    let mut server = target.connect().await?;
    let lock = server.lock(request.key()).await?;
    let waiting = lock.waiting;
    let somewhere = || format!("{waiting} wait");
    let place = match server.waiters(request.key(), HEAD).await {
        Ok(waiters) => match waiters.iter().position(|owner| *owner == request.owner) {
            Some(at) => Some(format!("place {} of {waiting}", at + 1)),
            None => (waiters.len() >= HEAD).then(somewhere),
        },
        Err(trouble) if trouble.code() != Some("NOPERM") => return Err(trouble),
        // The user may not see the queue.
        Err(_) => (waiting > 0).then(somewhere),
    };
    Ok((lock, place))
}

fn line(key: &[u8], lock: &Lock, place: &str) -> String {
    let holder = match &lock.owner {
        Some(owner) if lock.holders > 1 => {
            format!("{} and {} more hold it", word(owner), lock.holders - 1)
        }
        Some(owner) => format!("{} holds it", word(owner)),
        None => "nobody holds it at the moment".to_owned(),
    };
    format!("waiting for the lock {}: {holder}, {place}", word(key))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_says_who_holds_it() {
        let mut lock = Lock {
            owner: Some(b"a b".to_vec()),
            holders: 1,
            ..Lock::default()
        };
        let mut said = |holders| {
            lock.holders = holders;
            line(b"k", &lock, "3 wait")
        };
        assert_eq!(said(1), "waiting for the lock k: \"a b\" holds it, 3 wait");
        let shared = "waiting for the lock k: \"a b\" and 3 more hold it, 3 wait";
        assert_eq!(said(4), shared);
    }
}
