//! Clients that the server knows by one of the module's commands.
//!
//! The servers free a module's commands when it is unloaded, but keep pointers to them: in a transaction that has not
//! run, in a command that CLIENT PAUSE holds up, and in each client for its last command. Then EXEC, CLIENT LIST or
//! the client's next command reads freed memory, and the server may crash.

use super::context::{Ctx, text};

impl Ctx {
    /// Whether a client has commands queued in a transaction, or its last command was the module's. True also where
    /// CLIENT was renamed, so that it is not known.
    pub fn are_clients_attached(&self) -> bool {
        let list = redis_module::Context::new(self.raw).call("CLIENT", &["LIST"]);
        let list = list.as_ref().ok().and_then(text);
        list.is_none_or(|list| list.split(|byte| *byte == b'\n').any(is_attached))
    }
}

/// Reads a line of CLIENT LIST.
fn is_attached(line: &[u8]) -> bool {
    line.split(|byte| *byte == b' ').any(|word| {
        let queued = word.strip_prefix(b"multi=");
        word.starts_with(b"cmd=fairlock.")
            || queued.is_some_and(|count| !matches!(count, b"-1" | b"0"))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_client_is_attached_by_its_last_command_and_by_what_it_has_queued() {
        let line = |multi: &str, cmd: &str| {
            format!("id=3 name= db=0 multi={multi} cmd={cmd} user=default")
        };
        for (multi, cmd) in [("1", "exec"), ("-1", "fairlock.info"), ("12", "multi")] {
            assert!(is_attached(line(multi, cmd).as_bytes()));
        }
        for (multi, cmd) in [("-1", "client|list"), ("0", "multi"), ("-1", "NULL")] {
            assert!(!is_attached(line(multi, cmd).as_bytes()));
        }
        assert!(!is_attached(b""));
    }
}
