//! Steps on a lock in memory, with the promises that the property tests hold it to.

use arbitrary::{Result, Unstructured};

use crate::lock::properties::{Action, Mode, World};
use crate::lock::scripts::Sleep;
use crate::lock::{Connection, Millis};

/// Takes the steps that the bytes encode.
pub fn check(data: &[u8]) {
    let mut bytes = Unstructured::new(data);
    let (mut world, mut steps) = (World::new(), Vec::new());
    while !bytes.is_empty() {
        let Ok(action) = action(&mut bytes) else {
            return;
        };
        steps.push(action);
        let action = &steps[steps.len() - 1];
        if let Err(broken) = world.act(action) {
            panic!("{broken} after {steps:#?}");
        }
    }
}

fn action(bytes: &mut Unstructured<'_>) -> Result<Action> {
    Ok(match bytes.int_in_range(0..=18_u8)? {
        0 => Action::Release {
            owner: owner(bytes)?,
            all: bytes.arbitrary()?,
            token: bytes.arbitrary()?,
            connection: connection(bytes)?,
        },
        1 => Action::ReleaseByHolder {
            nth: nth(bytes)?,
            all: bytes.arbitrary()?,
        },
        2 => Action::Renew {
            owner: owner(bytes)?,
            lease: lease(bytes)?,
        },
        3 => Action::Cancel {
            owner: owner(bytes)?,
        },
        4 => Action::Break(if bytes.arbitrary()? {
            Some(owner(bytes)?)
        } else {
            None
        }),
        5 => Action::Leave(nth(bytes)?, bytes.arbitrary()?),
        6 => Action::CloseConnection(bytes.int_in_range(1..=3)?),
        7 => Action::Undelivered,
        8 => Action::Sleep(bytes.int_in_range(1..=3_000)?),
        9 => Action::StepClock(*bytes.choose(&[-3_600_000, -3_000, -1, 1, 3_000, 3_600_000])?),
        10 => Action::ForeignDelete,
        11 => Action::ForeignScore(nth(bytes)?, bytes.int_in_range(-600..=600)?),
        12 => script(bytes)?,
        13 => Action::ForeignLease(lease(bytes)?),
        14 => Action::LoseToken,
        15 => Action::Restart,
        16 => Action::LineUp,
        17 => Action::ForeignDeleteHolder(nth(bytes)?),
        _ => Action::Acquire {
            owner: owner(bytes)?,
            mode: *bytes.choose(&[Mode::Try, Mode::Poll, Mode::Block])?,
            lease: lease(bytes)?,
            patience: *bytes.choose(&[1, 40, 300, 2_000])?,
            limit: *bytes.choose(&[0, 0, 1, 1, 2, 3])?,
            once: bytes.arbitrary()?,
            keeps: bytes.arbitrary()?,
            session: connection(bytes)?,
        },
    })
}

/// A step by a script of Redisson's.
fn script(bytes: &mut Unstructured<'_>) -> Result<Action> {
    let owner = owner(bytes)?;
    let skew = *bytes.choose(&[0, 0, 0, -3_000, -1, 1, 2_999])?;
    Ok(match bytes.int_in_range(0..=4_u8)? {
        0 => Action::ScriptLeave { owner },
        1 => Action::ScriptUnlock {
            owner,
            forced: bytes.arbitrary()?,
            skew,
        },
        _ => Action::ScriptLock {
            owner,
            lease: lease(bytes)?,
            patience: *bytes.choose(&[None, Some(0), Some(40), Some(300)])?,
            sleep: *bytes.choose(&[Sleep::BehindHead, Sleep::BehindPrevious, Sleep::Lease])?,
            skew,
        },
    })
}

fn owner(bytes: &mut Unstructured<'_>) -> Result<u8> {
    bytes.int_in_range(0..=6)
}

fn nth(bytes: &mut Unstructured<'_>) -> Result<usize> {
    bytes.int_in_range(0..=4)
}

fn lease(bytes: &mut Unstructured<'_>) -> Result<Millis> {
    bytes.choose(&[10, 100, 1_000, 5_000]).copied()
}

fn connection(bytes: &mut Unstructured<'_>) -> Result<Option<Connection>> {
    let connection = bytes.int_in_range(0..=3)?;
    Ok((connection > 0).then_some(connection))
}
