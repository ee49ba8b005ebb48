//! What was found, as tables: printed, and written into the documentation.

use std::fmt::Write as _;
use std::path::Path;
use std::process::Command;

use anyhow::{Context as _, Result};
use fairlock_testing::redisson::NEWEST;

use crate::bench::Figure;

/// All that was found, as Markdown.
#[derive(Default)]
pub struct Report(String);

/// A number with as many digits as it deserves.
pub fn show(value: f64) -> String {
    if !value.is_finite() {
        "-".to_owned()
    } else if value >= 1000.0 {
        in_thousands(&format!("{value:.0}"))
    } else if value >= 100.0 {
        format!("{value:.0}")
    } else if value >= 10.0 {
        format!("{value:.1}")
    } else {
        format!("{value:.2}")
    }
}

/// 10000 as 10,000.
pub fn in_thousands(digits: &str) -> String {
    let mut shown = String::new();
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            shown.push(',');
        }
        shown.push(digit);
    }
    shown
}

/// A figure: its median, its least and its greatest.
pub fn spread(figure: &Figure) -> String {
    if figure.0.is_empty() {
        return "-".to_owned();
    }
    let [median, least, greatest] = figure.spread().map(show);
    format!("{median} ({least}–{greatest})")
}

/// A figure: its median, and its ratio to another.
pub fn beside(figure: &Figure, other: &Figure) -> String {
    if figure.0.is_empty() {
        return "-".to_owned();
    }
    format!("{} ({})", show(figure.median()), show(figure.by(other)))
}

impl Report {
    /// A table, with its text.
    pub fn table(&mut self, title: &str, text: &str, header: &[&str], rows: &[Vec<String>]) {
        let rule = "---|".repeat(header.len());
        let _ = write!(
            self.0,
            "\n## {title}\n\n{text}\n\n|{}|\n|{rule}\n",
            header.join("|")
        );
        for row in rows {
            let _ = writeln!(self.0, "|{}|", row.join("|"));
        }
    }

    pub fn markdown(&self) -> &str {
        &self.0
    }

    /// Writes docs/benchmarks.md.
    pub fn write(&self, root: &Path) -> Result<()> {
        let text = format!(
            "# Benchmarks\n\n`make bench` measures on an idle machine, and writes this page: do not edit. Figures are the \
             medians of the rounds (least–greatest), ratios the medians of the rounds' ratios. CPU is the server's time \
             for one pair or hand-off, in µs.\n\n{}\n![Hand-offs a second by the number of clients](hand-off.svg)\n{}",
            machine(root)?,
            self.0
        );
        Ok(std::fs::write(root.join("docs/benchmarks.md"), text)?)
    }
}

/// What was measured, and on what.
fn machine(root: &Path) -> Result<String> {
    let cpu = std::fs::read_to_string("/proc/cpuinfo")?;
    let mut models = cpu
        .lines()
        .filter_map(|line| line.strip_prefix("model name")?.split_once(": "));
    let (_, model) = models.next().unwrap_or(("", "unknown"));
    let cores = cpu
        .lines()
        .filter(|line| line.starts_with("processor"))
        .count();
    let kernel = std::fs::read_to_string("/proc/sys/kernel/osrelease")?;
    let server = output(root, "redis-server", &["--version"])?;
    let server = server.split(" sha=").next().unwrap_or_default();
    let commit = output(root, "git", &["describe", "--always", "--dirty"])?;
    Ok(format!(
        "Machine: {cores} cores, {model}, Linux {}. Server: {server}. Scripts: Redisson {NEWEST}.\nfairlock: {commit}.\n",
        kernel.trim()
    ))
}

fn output(directory: &Path, program: &str, arguments: &[&str]) -> Result<String> {
    let mut command = Command::new(program);
    let output = command.args(arguments).current_dir(directory).output();
    let output = output.with_context(|| program.to_owned())?;
    Ok(String::from_utf8_lossy(&output.stdout).trim().to_owned())
}
