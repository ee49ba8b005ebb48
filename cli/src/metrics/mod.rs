//! `fairlock metrics`: what `INFO fairlock` says on all masters, for Prometheus.
//!
//! [`families`] is the table of metrics; [`scrape`] writes them as text; `listen` serves them by HTTP.

pub mod families;
mod listen;
pub mod scrape;

use std::io::{self, Write as _};
use std::time::SystemTime;

use crate::args::MetricsArgs;
use crate::failure::{Failure, UNAVAILABLE};
use crate::server::{Answer, Link, Masters, Target, Trouble};

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
    let Look { text, troubles } = look(masters).await?;
    let mut out = io::stdout().lock();
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        // As `fairlock metrics | head -1` does.
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => (),
        done => done?,
    }
    for trouble in &troubles {
        eprintln!("fairlock: {trouble}");
    }
    Ok(if troubles.is_empty() { 0 } else { UNAVAILABLE })
}

/// What the servers say.
struct Look {
    /// As Prometheus reads it.
    text: String,
    /// Messages for an operator about servers that do not answer.
    troubles: Vec<String>,
}

async fn look(masters: &mut Masters) -> Result<Look, Failure> {
    let nodes = match masters.ask(Link::fairlock_info).await {
        Ok(answers) => answers,
        Err(trouble) => {
            let text = trouble.text();
            let gone = |address| Answer {
                address,
                said: Err(Trouble::Gone(text.clone())),
            };
            masters.known().map(gone).collect()
        }
    };
    let troubles = nodes.iter().filter_map(|node| node.said.as_ref().err());
    let mut troubles: Vec<String> = troubles.map(Trouble::text).collect();
    troubles.dedup();
    let at = SystemTime::now();
    let text = Scrape { nodes, at }.text().map_err(io::Error::other)?;
    Ok(Look { text, troubles })
}
