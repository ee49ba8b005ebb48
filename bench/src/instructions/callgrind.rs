//! A server that runs under callgrind.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::{Command, Stdio};

use anyhow::{Context as _, Result, bail};
use tempfile::TempDir;

use crate::server::{Kind, Server};

/// The server, and where callgrind writes what it counts.
pub struct Callgrind {
    pub server: Server,
    directory: TempDir,
}

impl Callgrind {
    /// Starts a server that knows Redisson's scripts. Nothing is counted yet.
    pub fn start(kind: Kind) -> Result<Self> {
        let directory = tempfile::tempdir()?;
        let out = directory.path().join("%p");
        let out = format!("--callgrind-out-file={}", out.display());
        let by = [
            "valgrind",
            "-q",
            "--tool=callgrind",
            "--instr-atstart=no",
            // A server of scripts/test/servers is a script that becomes the server; other processes have other files.
            "--trace-children=yes",
            &out,
        ];
        let server = Server::start_by(&by, kind, &["--hz", "1"])?;
        Ok(Self { server, directory })
    }

    /// Begins to count, or stops.
    pub fn count(&self, on: bool) -> Result<()> {
        let pid = self.server.pid().to_string();
        let on = if on { "on" } else { "off" };
        let mut command = Command::new("callgrind_control");
        command.args(["-i", on, &pid]).stdout(Stdio::null());
        let status = command.stderr(Stdio::null()).status()?;
        if !status.success() {
            bail!("callgrind_control -i {on}: {status}");
        }
        Ok(())
    }

    /// Ends the server. Returns the counts for one of `steps` steps.
    pub fn finish(self, steps: usize) -> Result<Counts> {
        let out = self.directory.path().join(self.server.pid().to_string());
        self.server.shut_down()?;
        let counts = annotate(&out, steps)?;
        if counts.total() <= 0.0 {
            bail!("callgrind has counted nothing");
        }
        Ok(counts)
    }
}

/// Instructions for one step, by function, with all that it calls.
#[derive(Debug, Default)]
pub struct Counts(BTreeMap<String, f64>);

impl Counts {
    /// All of them.
    pub fn total(&self) -> f64 {
        self.of("PROGRAM TOTALS")
    }

    fn of(&self, function: &str) -> f64 {
        self.0.get(function).copied().unwrap_or(0.0)
    }

    /// Sums and differences of functions, as the table writes them.
    pub fn area(&self, functions: &str) -> f64 {
        let mut words = functions.split(' ');
        let mut sum = words.next().map_or(0.0, |first| self.of(first));
        while let (Some(sign), Some(function)) = (words.next(), words.next()) {
            let count = self.of(function);
            sum += if sign == "-" { -count } else { count };
        }
        sum
    }
}

fn annotate(out: &Path, steps: usize) -> Result<Counts> {
    let mut command = Command::new("callgrind_annotate");
    command.args(["--inclusive=yes", "--threshold=100"]);
    let output = command.arg(out).output();
    let output = output.context("callgrind_annotate")?;
    let text = String::from_utf8_lossy(&output.stdout);
    let counts = text.lines().filter_map(|line| {
        let (count, rest) = line.trim_start().split_once(" (")?;
        let count: f64 = count.replace(',', "").parse().ok()?;
        let (_, place) = rest.split_once(")  ")?;
        // FILE:FUNCTION [OBJECT], but for the sum of all.
        let function = place.split(" [").next()?;
        let function = function
            .rsplit_once(':')
            .map_or(function, |(_, function)| function);
        #[allow(clippy::cast_precision_loss)] // Far below 2^53.
        Some((function.to_owned(), count / steps as f64))
    });
    Ok(Counts(counts.collect()))
}
