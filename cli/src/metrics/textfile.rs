//! A file for the textfile collector of `node_exporter`.

use std::fs::{self, Permissions};
use std::io::{self, Write as _};
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::time::Duration;

use tokio::signal::unix::{SignalKind, signal};
use tokio::time::{MissedTickBehavior, interval};

use crate::failure::Failure;
use crate::server::Everyone;

use super::{Look, Teller, look};

/// Writes the file again and again until told to stop; the exit code.
pub async fn keep(path: &Path, every: Duration, masters: &mut Everyone) -> Result<u8, Failure> {
    let mut terminate = signal(SignalKind::terminate())?;
    let mut interrupt = signal(SignalKind::interrupt())?;
    let ended = tokio::select! {
        _ = terminate.recv() => Ok(0),
        _ = interrupt.recv() => Ok(0),
        failure = write_on(path, every, masters) => Err(failure),
    };
    // A file that is no longer written would still be collected, as if nothing changed. It may be gone.
    let _ = fs::remove_file(path);
    ended
}

/// Writes until the file cannot be written. Servers may come and go.
async fn write_on(path: &Path, every: Duration, masters: &mut Everyone) -> Failure {
    let mut looks = interval(every);
    looks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut teller = Teller::default();
    loop {
        looks.tick().await;
        let Look { text, troubles } = look(masters).await;
        if let Err(error) = replace(path, &text) {
            let path = path.display();
            return Failure::new(1, format!("cannot write {path}: {error}"));
        }
        teller.tell(&troubles);
    }
}

/// Replaces the file in one step: a reader gets all of the old text or all of the new.
fn replace(path: &Path, text: &str) -> io::Result<()> {
    let folder = match path.parent() {
        Some(folder) if !folder.as_os_str().is_empty() => folder,
        _ => Path::new("."),
    };
    // node_exporter is another user, and leaves alone what is not called .prom.
    let mut file = tempfile::Builder::new()
        .prefix(".fairlock-")
        .suffix(".tmp")
        .permissions(Permissions::from_mode(0o644))
        .tempfile_in(folder)?;
    file.write_all(text.as_bytes())?;
    file.persist(path)?;
    Ok(())
}
