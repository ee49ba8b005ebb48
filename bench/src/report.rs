//! What was found: tables, and a summary of ratios to what a user would take instead and to the least that could do
//! the same. Printed, and written into the documentation.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::path::Path;
use std::process::Command;

use anyhow::{Context as _, Result};
use fairlock_testing::redisson::NEWEST;

use crate::measure::Figure;

/// What a figure is to reach where that is still worth work, and what keeps it from that.
#[derive(Clone, Copy, Debug)]
pub enum Goal {
    AtLeast(f64, &'static str),
    AtMost(f64, &'static str),
}

impl Goal {
    fn is_reached(self, value: f64) -> bool {
        match self {
            Self::AtLeast(least, _) => value >= least,
            Self::AtMost(most, _) => value <= most,
        }
    }

    fn why(self) -> &'static str {
        let (Self::AtLeast(_, why) | Self::AtMost(_, why)) = self;
        why
    }

    fn wanted(self, unit: &str) -> String {
        match self {
            Self::AtLeast(least, _) => format!("at least {}{unit}", show(least)),
            Self::AtMost(most, _) => format!("at most {}{unit}", show(most)),
        }
    }
}

/// Ratios to one thing, each among so many clients.
#[derive(Clone, Debug)]
struct Ratios {
    what: String,
    goal: Goal,
    by_clients: Vec<(usize, f64)>,
}

impl Ratios {
    fn among(&self, clients: usize) -> Option<f64> {
        let found = self
            .by_clients
            .iter()
            .find(|(number, _)| *number == clients);
        found.map(|(_, ratio)| *ratio)
    }

    /// Among how many clients the goal is missed, if not among all, and why; empty if it is reached.
    fn behind(&self) -> String {
        let all = self.by_clients.iter();
        let missed: Vec<String> = all
            .filter(|(_, ratio)| !self.goal.is_reached(*ratio))
            .map(|(clients, _)| crowd(*clients))
            .collect();
        match missed.len() {
            0 => String::new(),
            number if number == self.by_clients.len() => format!("behind: {}", self.goal.why()),
            _ => format!("behind ({}): {}", missed.join("; "), self.goal.why()),
        }
    }
}

/// What a user would take in place of fairlock, and why it can be cheaper.
#[derive(Clone, Copy, Debug)]
pub struct Peer(&'static str, &'static str);

pub const REDISSON: Peer = Peer("Redisson's fair lock", "no tokens");
pub const OWN_SCRIPTS: Peer = Peer("a queue in Lua: the packages' scripts", "see its table");
pub const REDIS_PY: Peer = Peer("redis-py's Lock, which is not fair", "no queue, no token");
pub const POSTGRES: Peer = Peer("PostgreSQL's advisory lock", "no lease, no token");

/// One client: the lock is uncontended.
pub const ALONE: usize = 1;

fn crowd(clients: usize) -> String {
    if clients == ALONE {
        "alone".to_owned()
    } else {
        grouped(clients)
    }
}

/// A part of the report.
#[derive(Clone, Debug)]
struct Section {
    title: String,
    text: String,
    header: Vec<String>,
    rows: Vec<Vec<String>>,
}

/// All that was found.
#[derive(Clone, Debug, Default)]
pub struct Report {
    instead: Vec<Ratios>,
    floors: Vec<Ratios>,
    /// Other goals: what, measured, wanted, and what keeps it from that.
    goals: Vec<Vec<String>>,
    sections: Vec<Section>,
}

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

/// A whole number: 100, or 10,000.
pub fn grouped(number: usize) -> String {
    in_thousands(&number.to_string())
}

fn in_thousands(digits: &str) -> String {
    let mut shown = String::new();
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            shown.push(',');
        }
        shown.push(digit);
    }
    shown
}

/// What the tables of the summary are about.
const INSTEAD: &str = "CPU of what a user would take instead ÷ that of fairlock: where a lock is taken alone, and for \
                       a hand-off by the number of clients.";
const FLOOR: &str = "The floor is the least that could do the same. Where clients ask again, these are as many calls \
                     and messages about nothing.";

/// The unit of a ratio.
pub const TIMES: &str = "×";

/// A figure: its median, its least and its greatest.
pub fn spread(figure: &Figure) -> String {
    with_unit(figure, "")
}

fn with_unit(figure: &Figure, unit: &str) -> String {
    let (least, greatest) = figure.range();
    let [median, least, greatest] = [figure.median(), least, greatest].map(show);
    format!("{median}{unit} ({least}–{greatest})")
}

impl Report {
    /// What a user would take instead, among so many clients: its cost ÷ that of fairlock.
    pub fn instead(&mut self, Peer(what, why): Peer, clients: usize, ratio: &Figure) {
        let goal = Goal::AtLeast(1.0, why);
        compare(&mut self.instead, what, clients, ratio, goal);
    }

    /// The cost of a way to hold the lock, among so many clients, ÷ that of the least that could do it.
    pub fn floor(&mut self, what: &str, clients: usize, ratio: &Figure, goal: Goal) {
        compare(&mut self.floors, what, clients, ratio, goal);
    }

    /// Another figure that is to reach something.
    pub fn goal(&mut self, what: &str, figure: &Figure, unit: &str, goal: Goal) {
        let verdict = if goal.is_reached(figure.median()) {
            String::new()
        } else {
            format!("behind: {}", goal.why())
        };
        let (measured, wanted) = (with_unit(figure, unit), goal.wanted(unit));
        self.goals
            .push(vec![what.to_owned(), measured, wanted, verdict]);
    }

    /// A table, with its text.
    pub fn table(&mut self, title: &str, text: &str, header: &[&str], rows: Vec<Vec<String>>) {
        self.sections.push(Section {
            title: title.to_owned(),
            text: text.to_owned(),
            header: header.iter().map(|&word| word.to_owned()).collect(),
            rows,
        });
    }

    fn summary(&self) -> String {
        let mut out = String::new();
        if !self.instead.is_empty() {
            let table = side_by_side("in place of fairlock", &self.instead, false);
            let _ = write!(out, "{INSTEAD}\n\n{table}\n");
        }
        if !self.floors.is_empty() {
            let table = side_by_side("CPU ÷ that of the floor", &self.floors, true);
            let _ = write!(out, "{FLOOR}\n\n{table}\n");
        }
        if !self.goals.is_empty() {
            let header = ["what", "measured", "goal", ""].map(str::to_owned);
            let _ = writeln!(out, "{}", table(&header, &self.goals));
        }
        out
    }

    /// All of it as Markdown.
    pub fn markdown(&self) -> String {
        let mut out = String::new();
        let summary = self.summary();
        if !summary.is_empty() {
            let _ = write!(out, "## Summary\n\n{summary}");
        }
        for section in &self.sections {
            let Section {
                title,
                text,
                header,
                rows,
            } = section;
            let _ = write!(out, "## {title}\n\n{text}\n\n{}\n", table(header, rows));
        }
        out
    }

    /// Writes docs/benchmarks.md.
    /// Other work took at most `loudest` cores between scenes.
    pub fn write(&self, root: &Path, loudest: f64, pictures: &str) -> Result<()> {
        let text = format!(
            "# Benchmarks\n\nWritten by `make bench`; do not edit. Figures are medians (least–greatest), ratios the medians \
             of the rounds' ratios. Each table was measured in one run, in turn. CPU is the server's, in µs of each.\n\
             [Performance](performance.md) says where it goes.\n\n{}Other work took at most {loudest:.2} of a core between scenes.\n\n{pictures}\n{}",
            machine(root)?,
            self.markdown()
        );
        Ok(std::fs::write(root.join("docs/benchmarks.md"), text)?)
    }
}

/// Notes a ratio in the row of its name.
fn compare(rows: &mut Vec<Ratios>, what: &str, clients: usize, ratio: &Figure, goal: Goal) {
    let measured = (clients, ratio.median());
    match rows.iter_mut().find(|row| row.what == what) {
        Some(row) => row.by_clients.push(measured),
        None => rows.push(Ratios {
            what: what.to_owned(),
            goal,
            by_clients: vec![measured],
        }),
    }
}

/// A row for each thing that was compared, a column for each number of clients.
fn side_by_side(what: &str, rows: &[Ratios], with_goals: bool) -> String {
    let clients: BTreeSet<usize> = rows
        .iter()
        .flat_map(|row| &row.by_clients)
        .map(|(clients, _)| *clients)
        .collect();
    let mut header = vec![what.to_owned()];
    header.extend(clients.iter().map(|&clients| crowd(clients)));
    header.extend(with_goals.then(|| "goal".to_owned()));
    header.push(String::new());
    let rows = rows.iter().map(|row| {
        let mut cells = vec![row.what.clone()];
        let ratio = |&clients: &usize| row.among(clients).map(show).unwrap_or_default();
        cells.extend(clients.iter().map(ratio));
        cells.extend(with_goals.then(|| row.goal.wanted(TIMES)));
        cells.push(row.behind());
        cells
    });
    table(&header, &rows.collect::<Vec<_>>())
}

fn table(header: &[String], rows: &[Vec<String>]) -> String {
    let line = |cells: &[String]| format!("| {} |\n", cells.join(" | "));
    let rule = vec!["---".to_owned(); header.len()];
    let rows: String = rows.iter().map(|cells| line(cells)).collect();
    format!("{}{}{rows}", line(header), line(&rule).replace(' ', ""))
}

/// What was measured, and on what.
fn machine(root: &Path) -> Result<String> {
    let cpu = std::fs::read_to_string("/proc/cpuinfo")?;
    let model = cpu
        .lines()
        .find_map(|line| line.strip_prefix("model name")?.split_once(':'))
        .map_or("unknown", |(_, model)| model.trim());
    let memory = std::fs::read_to_string("/proc/meminfo")?;
    let kilobytes = memory.split_whitespace().nth(1).unwrap_or("0");
    let gigabytes = kilobytes.parse::<u64>().unwrap_or(0) / (1024 * 1024);
    let cores = cpu
        .lines()
        .filter(|line| line.starts_with("processor"))
        .count();
    let kernel = std::fs::read_to_string("/proc/sys/kernel/osrelease")?;
    let server = output(root, "redis-server", &["--version"])?;
    let server = server.split(" sha=").next().unwrap_or_default();
    let commit = output(root, "git", &["describe", "--always", "--dirty"])?;
    let redisson = NEWEST;
    Ok(format!(
        "Machine: {cores} cores, {model}, {gigabytes} GB, Linux {}. Server: {server}. Scripts: Redisson \
         {redisson}.\nfairlock: {commit}.\n",
        kernel.trim()
    ))
}

fn output(directory: &Path, program: &str, arguments: &[&str]) -> Result<String> {
    let mut command = Command::new(program);
    let output = command.args(arguments).current_dir(directory).output();
    let output = output.with_context(|| program.to_owned())?;
    Ok(String::from_utf8_lossy(&output.stdout).trim().to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_shown_with_as_many_digits_as_they_deserve() {
        for (value, shown) in [
            (0.614, "0.61"),
            (12.34, "12.3"),
            (123.4, "123"),
            (1234.5, "1,234"),
            (1_234_567.0, "1,234,567"),
            (f64::NAN, "-"),
        ] {
            assert_eq!(show(value), shown);
        }
        assert_eq!(grouped(100), "100");
        assert_eq!(grouped(10_000), "10,000");
    }

    #[test]
    fn the_summary_says_where_a_ratio_is_behind_and_why() {
        let mut report = Report::default();
        let goal = Goal::AtMost(1.4, "two system calls more");
        report.floor("blocking", 2, &Figure::of(1.5), goal);
        report.floor("blocking", 16, &Figure::of(1.3), goal);
        report.floor(
            "a pair",
            ALONE,
            &Figure::of(2.8),
            Goal::AtMost(2.6, "it replicates"),
        );
        report.instead(OWN_SCRIPTS, 16, &Figure::of(2.0));
        report.instead(REDIS_PY, ALONE, &Figure::of(0.7));
        let text = report.markdown();
        for line in [
            "| CPU ÷ that of the floor | alone | 2 | 16 | goal |  |",
            "| blocking |  | 1.50 | 1.30 | at most 1.40× | behind (2): two system calls more |",
            "| a pair | 2.80 |  |  | at most 2.60× | behind: it replicates |",
            "| a queue in Lua: the packages' scripts |  | 2.00 |  |",
            "| redis-py's Lock, which is not fair | 0.70 |  | behind: no queue, no token |",
        ] {
            assert!(text.contains(line), "{line}\n{text}");
        }
    }
}
