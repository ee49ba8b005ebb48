//! A measured figure in the pages is a link to the measurement, and equal to it. So prose cannot keep the figures of an
//! earlier run.
//!
//! `[8,500](benchmarks.md#many-locks)` is right if a number under that heading is 8,500 when rounded to as many
//! digits. In a file that is not a page, the number itself must stand.

use std::fs;
use std::path::{Path, PathBuf};

use super::pages::{files, root, text};

/// Pages that are measurements, or that tell how they come about.
const SOURCES: [&str; 3] = ["benchmarks.md", "performance.md", "soak.md"];

/// Words that usually follow a measured number.
const UNITS: [&str; 18] = [
    "bytes",
    "kB",
    "KB",
    "KiB",
    "MB",
    "MiB",
    "GB",
    "µs",
    "×",
    "%",
    "percent",
    "times the",
    "times as",
    "times more",
    "times faster",
    "a second",
    "per second",
    "/s",
];

/// Numbers that were not measured: the program, or the server, sets them.
const SET: [&str; 5] = ["256 bytes", "200 bytes", "16 bytes", "80 kB", "512 MB"];

fn is_source(page: &Path) -> bool {
    SOURCES.iter().any(|name| page.ends_with(name))
}

/// All pages, with those beside the documentation.
fn pages() -> Vec<PathBuf> {
    let beside = ["README.md", "SECURITY.md", "CHANGELOG.md"].map(|name| root().join(name));
    let folders = ["docs", "examples/metrics"].map(|folder| files(&root().join(folder), "md"));
    beside
        .into_iter()
        .chain(folders.into_iter().flatten())
        .collect()
}

fn is_page(path: &Path) -> bool {
    path.extension().is_some_and(|extension| extension == "md")
}

/// A page without its blocks of code.
fn prose(page: &str) -> String {
    let mut is_prose = true;
    let mut prose = String::new();
    for line in page.lines() {
        let is_fence = line.trim_start().starts_with("```");
        if is_fence {
            is_prose = !is_prose;
        }
        if is_prose && !is_fence && !line.starts_with("    ") {
            prose += line;
        }
        prose.push('\n');
    }
    prose
}

/// The links of a text: their texts and targets.
fn links(text: &str) -> Vec<(&str, &str)> {
    let link = |end: usize| {
        let shown = text.get(..end)?.rsplit('[').next()?;
        let target = text.get(end + 2..)?.split(')').next()?;
        Some((shown, target))
    };
    text.match_indices("](")
        .filter_map(|(end, _)| link(end))
        .collect()
}

/// A text without its links and its code, each of which leaves a mark.
fn without_links_and_code(text: &str) -> String {
    let mut rest = text.to_owned();
    for (shown, target) in links(text) {
        rest = rest.replace(&format!("[{shown}]({target})"), "#");
    }
    let parts = rest.split('`').enumerate();
    let parts = parts.map(|(index, part)| if index % 2 == 0 { part } else { "#" });
    parts.collect()
}

/// The part of a page below a heading, as links name headings.
fn section<'a>(page: &'a str, name: &str) -> Option<&'a str> {
    let headings = page.match_indices("\n#").map(|(at, _)| at + 1);
    for at in headings {
        let below = page.get(at..)?;
        let heading = below.lines().next()?;
        let title = heading.trim_start_matches('#');
        if slug(title) != name {
            continue;
        }
        let depth = heading.len() - title.len();
        let ends = |line: &&str| {
            let title = line.trim_start_matches('#');
            title.starts_with(' ') && (1..=depth).contains(&(line.len() - title.len()))
        };
        let next = below.lines().skip(1).find(ends);
        let end = next.and_then(|next| below.find(&format!("\n{next}\n")));
        return below.get(..end.unwrap_or(below.len()));
    }
    None
}

/// A heading's name in links, as code hosts make it.
fn slug(title: &str) -> String {
    let letters = title.trim().chars().filter_map(|letter| match letter {
        ' ' => Some('-'),
        '-' | '_' => Some(letter),
        _ if letter.is_alphanumeric() => letter.to_lowercase().next(),
        _ => None,
    });
    letters.collect()
}

/// The numbers in a text, without the marks between their thousands.
fn numbers(text: &str) -> Vec<String> {
    let text: Vec<char> = text.chars().collect();
    let is_digit = |index: usize| text.get(index).is_some_and(char::is_ascii_digit);
    let mut numbers = vec![String::new()];
    for (index, letter) in text.iter().enumerate() {
        let is_between = index > 0 && is_digit(index - 1) && is_digit(index + 1);
        match letter {
            '0'..='9' => numbers.iter_mut().last().expect("one").push(*letter),
            '.' if is_between => numbers.iter_mut().last().expect("one").push('.'),
            ',' | '_' if is_between => (),
            _ => numbers.push(String::new()),
        }
    }
    numbers.retain(|number| !number.is_empty());
    numbers
}

/// Whether a measured number is the shown one when it is rounded to as many digits.
fn is_rounded(measured: &str, shown: &str) -> bool {
    let digits = shown.replace('.', "");
    let digits = digits.trim_start_matches('0');
    let digits = if shown.contains('.') {
        digits
    } else {
        digits.trim_end_matches('0')
    };
    let places = digits.len().clamp(1, 9);
    let round = |number: &str| {
        let number: f64 = number.parse().unwrap_or(f64::NAN);
        format!("{number:.*e}", places - 1)
    };
    round(measured) == round(shown)
}

/// The error in a figure, if any.
fn fault(page: &Path, shown: &str, target: &str) -> Option<String> {
    let (file, name) = target.split_once('#').unwrap_or((target, ""));
    let path = page.with_file_name(file);
    let text = fs::read_to_string(&path).unwrap_or_default();
    let place = match name {
        "" => text.as_str(),
        name => section(&text, name)?,
    };
    let there = numbers(place);
    let stands = |number: &String| {
        there
            .iter()
            .any(|measured| measured == number || is_page(&path) && is_rounded(measured, number))
    };
    let missing = numbers(shown).into_iter().find(|number| !stands(number))?;
    Some(format!(
        "{}: {missing} of [{shown}] is not in {target}",
        page.display()
    ))
}

#[test]
fn a_figure_stands_where_it_links_to() {
    let mut figures = 0;
    let mut faults = Vec::new();
    for path in pages().into_iter().filter(|page| !is_source(page)) {
        let page = prose(&text(&path));
        for (shown, target) in links(&page) {
            if shown.starts_with(|letter: char| letter.is_ascii_digit()) {
                faults.extend(fault(&path, shown, target));
                figures += 1;
            }
        }
    }
    assert!(faults.is_empty(), "{}", faults.join("\n"));
    assert!(figures > 5, "only {figures} figures were found");
}

#[test]
fn what_was_measured_is_a_link_to_where() {
    let mut faults = Vec::new();
    for path in pages().into_iter().filter(|page| !is_source(page)) {
        let page = prose(&text(&path));
        for (number, line) in without_links_and_code(&page).lines().enumerate() {
            if let Some(figure) = measured(line) {
                faults.push(format!("{}:{}: {figure}", path.display(), number + 1));
            }
        }
    }
    assert!(faults.is_empty(), "{}", faults.join("\n"));
}

/// The first figure of a line that looks measured.
fn measured(line: &str) -> Option<String> {
    let line = SET
        .iter()
        .fold(line.to_owned(), |line, set| line.replace(set, "#"));
    let with_unit = |unit: &str| {
        let mut places = line.match_indices(unit);
        places.find_map(|(at, _)| figure_before(line.get(..at)?, unit))
    };
    UNITS.iter().find_map(|unit| with_unit(unit))
}

fn figure_before(text: &str, unit: &str) -> Option<String> {
    let number = text.strip_suffix(' ').unwrap_or(text);
    let is_figure = number.ends_with(|letter: char| letter.is_ascii_digit());
    let start = number.rfind(' ').map_or(0, |space| space + 1);
    is_figure.then(|| format!("{}{unit}", text.get(start..).unwrap_or(text)))
}

#[test]
fn links_to_a_heading_find_it() {
    let mut followed = 0;
    let mut faults = Vec::new();
    for path in pages() {
        let page = text(&path);
        for (shown, target) in links(&page) {
            let Some((file, name)) = target.split_once('#') else {
                continue;
            };
            if file.contains("://") {
                continue;
            }
            let other = match file {
                "" => page.clone(),
                file => fs::read_to_string(path.with_file_name(file)).unwrap_or_default(),
            };
            if section(&other, name).is_none() {
                faults.push(format!("{}: [{shown}]({target})", path.display()));
            }
            followed += 1;
        }
    }
    assert!(faults.is_empty(), "{}", faults.join("\n"));
    assert!(followed > 50, "only {followed} links were followed");
}

#[test]
fn a_figure_is_compared_in_as_many_digits_as_it_has() {
    for (measured, shown) in [
        ("36009", "36000"),
        ("8469", "8000"),
        ("10.3", "10.3"),
        ("0.368", "0.37"),
        ("100", "100"),
    ] {
        assert!(is_rounded(measured, shown), "{measured} {shown}");
    }
    for (measured, shown) in [
        ("37009", "36000"),
        ("8669", "8000"),
        ("10.3", "10.4"),
        ("208", "20"),
    ] {
        assert!(!is_rounded(measured, shown), "{measured} {shown}");
    }
    assert_eq!(numbers("1,234 to 40_000, 5.6."), ["1234", "40000", "5.6"]);
}

#[test]
fn what_looks_measured_is_noticed_and_what_is_set_is_not() {
    let figure = |line: &str| measured(&without_links_and_code(line));
    assert_eq!(
        figure("it takes 920 bytes each").as_deref(),
        Some("920 bytes")
    );
    assert_eq!(
        figure("a pair is 3.8 times the other").as_deref(),
        Some("3.8 times the")
    );
    assert_eq!(figure("| in a second 5 % more").as_deref(), Some("5 %"));
    for line in [
        "an owner is 1 to 256 bytes",
        "[920 bytes](benchmarks.md#many-locks) each",
        "`SET x 5 %`",
        "many times the other",
    ] {
        assert_eq!(figure(line), None, "{line}");
    }
}

#[test]
fn a_section_ends_where_the_next_of_its_depth_begins() {
    let page = "# A\n\n## A waiter's 2 `bytes`\n1\n### deeper\n2\n## Next\n3\n";
    let found = section(page, "a-waiters-2-bytes").expect("a section");
    assert!(found.contains("2\n") || found.ends_with('2'), "{found}");
    assert!(!found.contains("Next"), "{found}");
    assert_eq!(section(page, "none"), None);
    assert_eq!(
        links("a [b](c#d) and [1 to 2](e)"),
        [("b", "c#d"), ("1 to 2", "e")]
    );
}
