//! `fairlock metrics`: what `INFO fairlock` says on all masters, for Prometheus.
//!
//! [`families`] is the table of metrics; [`scrape`] writes them as text; `listen` serves them by HTTP.

pub mod families;
mod listen;
pub mod scrape;

use std::io::{self, Write as _};

use crate::args::MetricsArgs;
use crate::failure::{Failure, UNAVAILABLE, tell};
use crate::server::{Link, Masters, Target, troubles};

use scrape::Scrape;

/// Prints the metrics, or hands them out until told to stop; the exit code.
pub async fn run(args: &MetricsArgs, target: Target) -> Result<u8, Failure> {
    let mut masters = Masters::new(target);
    match &args.listen {
        Some(address) => listen::serve(address, masters).await,
        None => print(&mut masters).await,
    }
}

/// Prints one look. Servers that do not answer are in it, so that the collector knows of them.
async fn print(masters: &mut Masters) -> Result<u8, Failure> {
    let (text, troubles) = look(masters).await?;
    let mut out = io::stdout().lock();
    out.write_all(text.as_bytes()).and_then(|()| out.flush())?;
    for trouble in &troubles {
        tell(trouble);
    }
    Ok(if troubles.is_empty() { 0 } else { UNAVAILABLE })
}

/// What the servers say, as Prometheus reads it, and messages for an operator about those that do not answer.
async fn look(masters: &mut Masters) -> Result<(String, Vec<String>), Failure> {
    let nodes = masters.ask(Link::fairlock_info).await;
    let troubles = troubles(&nodes);
    let text = Scrape(nodes).text().map_err(io::Error::other)?;
    Ok((text, troubles))
}
