//! `fairlock metrics`: what `INFO fairlock` says on all masters, for Prometheus.
//!
//! [`families`] is the table of metrics; [`exposition`] writes them as text; `textfile` keeps a file of them for
//! `node_exporter`; `listen` serves them by HTTP.

pub mod exposition;
pub mod families;
mod listen;
mod textfile;

use std::io::{self, Write as _};
use std::time::SystemTime;

use crate::args::MetricsArgs;
use crate::failure::{Failure, UNAVAILABLE};
use crate::server::{Answer, Everyone, Sender, Target, Trouble};

use exposition::{Node, Said};

/// Prints the metrics, or hands them out or keeps a file of them until told to stop; the exit code.
pub async fn run(args: &MetricsArgs, target: Target) -> Result<u8, Failure> {
    let mut masters = Everyone::new(target);
    match (&args.listen, &args.textfile) {
        (Some(address), _) => listen::serve(address, masters).await,
        (None, Some(path)) => textfile::keep(path, args.interval, &mut masters).await,
        (None, None) => print(&mut masters).await,
    }
}

/// Prints one look. Servers that do not answer are in it, so that the collector knows of them.
async fn print(masters: &mut Everyone) -> Result<u8, Failure> {
    let Look { text, troubles } = look(masters).await;
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

/// Reports servers that do not answer: once for each error, and once when all is well again.
#[derive(Default)]
struct Teller {
    told: Vec<String>,
}

impl Teller {
    fn tell(&mut self, troubles: &[String]) {
        let is_new = |trouble: &&String| !self.told.contains(trouble);
        for trouble in troubles.iter().filter(is_new) {
            eprintln!("fairlock: {trouble}. Trying again");
        }
        if troubles.is_empty() && !self.told.is_empty() {
            eprintln!("fairlock: all servers answer again");
        }
        self.told = troubles.to_vec();
    }
}

/// What the servers say.
struct Look {
    /// As Prometheus reads it.
    text: String,
    /// Messages for an operator about servers that do not answer.
    troubles: Vec<String>,
}

async fn look(masters: &mut Everyone) -> Look {
    let mut troubles = Vec::new();
    let nodes: Vec<Node> = match masters.ask(said).await {
        Ok(answers) => {
            let node = |Answer { address, said }| {
                let told = |trouble: Trouble| troubles.push(trouble.text());
                let said = said.map_err(told).ok();
                Node { address, said }
            };
            answers.into_iter().map(node).collect()
        }
        Err(trouble) => {
            troubles.push(trouble.text());
            let node = |address| {
                let said = None;
                Node { address, said }
            };
            masters.known().map(node).collect()
        }
    };
    let text = exposition::text(&nodes, SystemTime::now());
    Look { text, troubles }
}

async fn said(mut server: Sender) -> Result<Said, Trouble> {
    let info = server.info(&["replication", "fairlock"]).await?;
    Said::read(&info).ok_or_else(|| Trouble::no_module(server.target()))
}
