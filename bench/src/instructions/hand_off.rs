//! Hand-offs of one lock among its clients, in a closed loop.

use anyhow::Result;

use super::callgrind::Callgrind;
use super::count;
use crate::hand_off::WAYS;

/// How many clients want the lock.
pub const CLIENTS: [u32; 3] = [2, 16, 100];
/// How many hand-offs are counted: so many that what is done once for each connection hardly counts.
const TIMES: u64 = 4_000;

/// What clients do, and the instructions of the server for a hand-off, for each number of clients.
pub type Row = (&'static str, [f64; CLIENTS.len()]);

/// Counts those whose names contain `only`.
pub fn rows(only: &str) -> Result<Vec<Row>> {
    let mut rows = Vec::new();
    for (name, kind, gather) in WAYS {
        if !name.contains(only) {
            continue;
        }
        let mut row = [0.0; CLIENTS.len()];
        for (instructions, clients) in row.iter_mut().zip(CLIENTS) {
            eprintln!("hand-offs among {clients}: {name}");
            let mut callgrind = Callgrind::start(kind)?;
            let crowd = gather(&mut callgrind.server, clients)?;
            *instructions = count(callgrind, crowd, TIMES)?.total();
        }
        rows.push((name, row));
    }
    Ok(rows)
}
