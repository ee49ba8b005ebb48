//! `scripts/package/pages` lays out the pages of the Debian package; `make test-deb` looks at the package itself.

use std::fs;
use std::process::Command;

use tempfile::TempDir;

use super::pages::{dead_links, files, root, text};

#[test]
fn the_pages_of_the_package_link_only_to_what_it_has() {
    let package = TempDir::new().expect("a directory");
    let script = root().join("scripts/package/pages");
    let output = Command::new(script).arg(package.path()).output();
    let output = output.expect("the script is there");
    assert!(output.status.success(), "{output:?}");
    // Debian has these under other names, which the script knows.
    for made in ["copyright", "changelog.gz"] {
        fs::write(package.path().join(made), "").expect("written");
    }
    let pages = files(package.path(), "md");
    assert!(pages.len() > 30, "{pages:?}");
    assert_eq!(dead_links(&pages), [""; 0]);

    let kept = [
        (
            "docs/kubernetes.md",
            "(../examples/kubernetes/fairlock.yaml)",
        ),
        ("docs/kubernetes.md", "[compose.yaml](../compose.yaml)"),
        ("README.md", "[MIT](copyright)"),
        ("docs/design.md", "The map of the code is in src/lib.rs."),
    ];
    for (page, text_of_it) in kept {
        let page = text(&package.path().join(page));
        assert!(page.contains(text_of_it), "{text_of_it}");
    }
}
