//! Looking at the lock while waiting for it, on a connection of its own for each look: the one that waits is blocked.
//!
//! The first look says on standard error for what it waits. Later ones find out whether the place is still there: a
//! proxy may have closed the connection on the server's side only, and then no reply will ever come.

use std::time::Duration;

use tokio::time::sleep;

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

/// Where the owner is in the queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Place {
    /// From 1, the head.
    At(usize),
    /// Behind the waiters that were looked at, or the user may not see the queue.
    Unknown,
    /// Not in the queue.
    None,
}

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
        missing = if place == Place::None { missing + 1 } else { 0 };
        if !is_said && place != Place::None {
            eprintln!("fairlock: {}", line(request.key(), &lock, place));
            is_said = true;
        }
    }
}

async fn look(target: &Target, request: &Request<'_>) -> Result<(Lock, Place), Trouble> {
    let mut server = target.connect().await?;
    let lock = server.lock(request.key()).await?;
    let place = match server.waiters(request.key(), HEAD).await {
        Ok(waiters) => match waiters.iter().position(|owner| *owner == request.owner) {
            Some(at) => Place::At(at + 1),
            None if waiters.len() < HEAD => Place::None,
            None => Place::Unknown,
        },
        Err(trouble) if trouble.code() != Some("NOPERM") => return Err(trouble),
        Err(_) if lock.waiting == 0 => Place::None,
        Err(_) => Place::Unknown,
    };
    Ok((lock, place))
}

fn line(key: &[u8], lock: &Lock, place: Place) -> String {
    let holder = match &lock.owner {
        Some(owner) if lock.holders > 1 => {
            format!("{} and {} more hold it", word(owner), lock.holders - 1)
        }
        Some(owner) => format!("{} holds it", word(owner)),
        None => "nobody holds it at the moment".to_owned(),
    };
    let place = match place {
        Place::At(place) => format!("place {place} of {}", lock.waiting),
        _ => format!("{} wait", lock.waiting),
    };
    format!("waiting for the lock {}: {holder}, {place}", word(key))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_says_who_holds_it_and_the_place() {
        let mut lock = Lock {
            owner: Some(b"a b".to_vec()),
            holders: 1,
            waiting: 3,
            ..Lock::default()
        };
        let start = "waiting for the lock k: ";
        assert_eq!(
            line(b"k", &lock, Place::At(2)),
            format!("{start}\"a b\" holds it, place 2 of 3")
        );
        lock.holders = 4;
        assert_eq!(
            line(b"k", &lock, Place::Unknown),
            format!("{start}\"a b\" and 3 more hold it, 3 wait")
        );
    }
}
