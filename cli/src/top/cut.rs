//! Names that are cut so that they fit a column.
//!
//! An owner's name goes from the general to the particular: `HOST:PID:UUID`, or `UUID:THREAD` from Redisson. To find
//! the process, an operator needs the host and what follows it; a UUID only tells two of them apart.

/// Length of a UUID.
const UUID: usize = 36;
/// Replaces the part that is left out.
const GAP: char = '…';

/// An owner in a number of characters. If it is too long, its UUID is cut first, then its host.
#[must_use]
pub fn owner(name: &str, width: usize) -> String {
    if length(name) <= width {
        return name.to_owned();
    }
    let short = without_uuid(name);
    if short.is_some_and(|short| length(short) < width) {
        // As much of the UUID as there is room for, at least its colon.
        return cut_end(name, width);
    }
    let short = short.unwrap_or(name);
    match short.rsplit_once(':') {
        Some((host, process)) if length(process) + 2 < width => {
            let host = cut_end(host, width - length(process) - 1);
            format!("{host}:{process}")
        }
        _ => cut_end(short, width),
    }
}

/// What comes before the UUID at the end.
fn without_uuid(name: &str) -> Option<&str> {
    let (rest, last) = name.rsplit_once(':')?;
    let is_uuid = last.len() == UUID
        && last.bytes().enumerate().all(|(index, byte)| match index {
            8 | 13 | 18 | 23 => byte == b'-',
            _ => byte.is_ascii_hexdigit(),
        });
    is_uuid.then_some(rest)
}

/// The beginning, and the gap.
fn cut_end(name: &str, width: usize) -> String {
    if length(name) <= width {
        return name.to_owned();
    }
    let kept = name.chars().take(width.saturating_sub(1));
    kept.chain([GAP]).take(width).collect()
}

fn length(text: &str) -> usize {
    text.chars().count()
}

#[cfg(test)]
mod tests {
    use super::*;

    const OWNER: &str = "web-3.example.org:8841:0a1b2c3d-0000-4000-8000-00000000000f";

    #[test]
    fn host_and_process_stay_as_long_as_they_can() {
        for (width, expected) in [
            (80, OWNER),
            (59, OWNER),
            (40, "web-3.example.org:8841:0a1b2c3d-0000-40…"),
            (24, "web-3.example.org:8841:…"),
            (23, "web-3.example.org:8841…"),
            (22, "web-3.example.org:8841"),
            (21, "web-3.example.o…:8841"),
            (12, "web-3.…:8841"),
            (7, "w…:8841"),
            (6, "web-3…"),
            (1, "…"),
            (0, ""),
        ] {
            let cut = owner(OWNER, width);
            assert_eq!(cut, expected, "{width}");
            assert!(length(&cut) <= width, "{width}");
        }
    }

    #[test]
    fn other_names_keep_what_follows_the_last_colon() {
        let redissons = "0a1b2c3d-0000-4000-8000-00000000000f:42";
        assert_eq!(owner(redissons, 12), "0a1b2c3d…:42");
        assert_eq!(owner("a-long-name-without-parts", 10), "a-long-na…");
        assert_eq!(owner("größer:als:erlaubt", 12), "grö…:erlaubt");
    }
}
