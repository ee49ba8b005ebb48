//! What was found: tables, and ratios beside what they are to reach. Printed, and written into the
//! documentation.

use std::fmt::Write as _;
use std::path::Path;
use std::process::Command;

use anyhow::{Context as _, Result};
use fairlock_testing::redisson::NEWEST;

use crate::measure::Figure;

/// A figure for the summary, and what it is to reach.
#[derive(Clone, Debug)]
struct Goal {
    what: String,
    measured: String,
    wanted: String,
    /// Unknown where there is no goal.
    reached: Option<bool>,
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
    goals: Vec<Goal>,
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

/// The unit of a ratio.
pub const TIMES: &str = "×";

/// A figure: its median, its least and its greatest.
pub fn spread(figure: &Figure) -> String {
    with_unit(figure, "")
}

fn with_unit(figure: &Figure, unit: &str) -> String {
    let (least, greatest) = figure.range();
    let [median, least, greatest] = [figure.median(), least, greatest].map(show);
    format!("{median}{unit} ({least} to {greatest})")
}

impl Report {
    /// A ratio that is to be at least so much.
    pub fn at_least(&mut self, what: &str, ratio: &Figure, wanted: f64) {
        let reached = Some(ratio.median() >= wanted);
        let wanted = format!("at least {}{TIMES}", show(wanted));
        self.goal(what, ratio, TIMES, wanted, reached);
    }

    /// A figure that is to be at most so much.
    pub fn at_most(&mut self, what: &str, figure: &Figure, wanted: f64, unit: &str) {
        let reached = Some(figure.median() <= wanted);
        let wanted = format!("at most {}{unit}", show(wanted));
        self.goal(what, figure, unit, wanted, reached);
    }

    /// A ratio without a goal.
    pub fn ratio(&mut self, what: &str, ratio: &Figure) {
        self.goal(what, ratio, TIMES, String::new(), None);
    }

    fn goal(
        &mut self,
        what: &str,
        figure: &Figure,
        unit: &str,
        wanted: String,
        reached: Option<bool>,
    ) {
        self.goals.push(Goal {
            what: what.to_owned(),
            measured: with_unit(figure, unit),
            wanted,
            reached,
        });
    }

    /// A table, with what has to be said about it.
    pub fn table(&mut self, title: &str, text: &str, header: &[&str], rows: Vec<Vec<String>>) {
        self.sections.push(Section {
            title: title.to_owned(),
            text: text.to_owned(),
            header: header.iter().map(|&word| word.to_owned()).collect(),
            rows,
        });
    }

    fn goals(&self) -> String {
        let header = ["what", "measured", "goal", ""].map(str::to_owned);
        let rows = self.goals.iter().map(|goal| {
            let verdict = match goal.reached {
                Some(true) => "reached",
                Some(false) => "**missed**",
                None => "",
            };
            vec![
                goal.what.clone(),
                goal.measured.clone(),
                goal.wanted.clone(),
                verdict.to_owned(),
            ]
        });
        table(&header, &rows.collect::<Vec<_>>())
    }

    /// All of it as Markdown.
    pub fn markdown(&self) -> String {
        let mut out = String::new();
        if !self.goals.is_empty() {
            let _ = write!(out, "## Summary\n\n{}\n", self.goals());
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
            "# Benchmarks\n\nWritten by `make bench`; do not edit. Figures are medians, with the least and the \
             greatest in parentheses. Everything in a table\nwas measured in turn, in the same run, on servers \
             of its own. A ratio is the median of the rounds' ratios, so it depends less\non the machine than \
             the absolute figures do.\n\n{}Other work took at most {loudest:.2} of a core between scenes.\n\n\
             {pictures}\n{}",
            machine(root)?,
            self.markdown()
        );
        Ok(std::fs::write(root.join("docs/benchmarks.md"), text)?)
    }
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
}
