//! Whether a reply is one that its command promises.

use fairlock_testing::resp::Reply;

/// What is wrong with the reply to a command, if anything is.
pub fn fault(command: &[Vec<u8>], reply: &Reply) -> Option<String> {
    let name = command[0].to_ascii_uppercase();
    if has_panicked(reply) {
        return Some("a panic".to_owned());
    }
    let name = name.strip_prefix(b"FAIRLOCK.")?;
    if *reply == Reply::Status(b"QUEUED".to_vec()) {
        return None;
    }
    let fits = match reply {
        Reply::Error(text) => is_error(text, name),
        reply => fits(name, command, reply),
    };
    (!fits).then(|| "not a reply to this command".to_owned())
}

fn has_panicked(reply: &Reply) -> bool {
    match reply {
        Reply::Error(text) | Reply::Bulk(text) => {
            let text = text.escape_ascii().to_string();
            text.contains("ERR internal error") || text.contains("panic in")
        }
        Reply::Items(items) => items.iter().any(has_panicked),
        _ => false,
    }
}

/// Errors that a command of the module's can have, of its own or for a reason of the server's.
fn is_error(text: &[u8], name: &[u8]) -> bool {
    const CODES: &[&[u8]] = &[
        b"ERR",
        b"WRONGTYPE",
        b"NOTHELD",
        b"NOTALOCK",
        b"TAKENOVER",
        b"QUEUEFULL",
        b"UNBLOCKED",
        b"OOM",
        b"NOPERM",
        b"NOREPLICAS",
        b"MISCONF",
    ];
    // A script's own error has any code.
    name.starts_with(b"EVAL")
        || CODES.contains(&text.split(|byte| *byte == b' ').next().unwrap_or_default())
}

fn fits(name: &[u8], command: &[Vec<u8>], reply: &Reply) -> bool {
    let positive = |reply: &Reply| matches!(reply, Reply::Int(1..));
    match (name, reply) {
        (b"ACQUIRE", Reply::Items(items)) => {
            let enqueue = command
                .iter()
                .any(|word| word.eq_ignore_ascii_case(b"ENQUEUE"));
            enqueue && items.len() == 2 && items.iter().all(positive)
        }
        (b"ACQUIRE", Reply::Int(token)) => *token > 0,
        (b"RELEASE", Reply::Int(left)) => *left >= 0,
        (b"RENEW", Reply::Int(lease)) => *lease > 0,
        (b"CANCEL" | b"BREAK", Reply::Int(done)) => (0..=1).contains(done),
        (b"QUEUE", Reply::Items(items)) => items.iter().all(is_waiter),
        (b"INFO", Reply::Items(items)) => is_map(items),
        (b"HOLDERS", Reply::Items(items)) => items.iter().all(is_holder),
        (b"HELP", Reply::Items(items)) => !items.is_empty(),
        (b"ACQUIRE", Reply::Nil) | (b"LOCKS", Reply::Items(_)) | (b"EVAL" | b"EVALSHA", _) => true,
        // No command of that name.
        _ => false,
    }
}

/// Nine fields at least, each after its name.
fn is_map(items: &[Reply]) -> bool {
    let is_field = |field: &[Reply]| matches!(field, [Reply::Bulk(_), _]);
    items.len() >= 18 && items.chunks(2).all(is_field)
}

fn is_holder(reply: &Reply) -> bool {
    let Reply::Items(items) = reply else {
        return false;
    };
    let token = |reply: &Reply| matches!(reply, Reply::Nil | Reply::Int(1..));
    matches!(items.as_slice(), [Reply::Bulk(_), Reply::Int(_), Reply::Int(-1..), of, _, Reply::Int(0..)] if token(of))
}

fn is_waiter(reply: &Reply) -> bool {
    let Reply::Items(items) = reply else {
        return false;
    };
    match items.as_slice() {
        [
            Reply::Bulk(_),
            Reply::Bulk(way),
            Reply::Int(left),
            Reply::Int(0..),
        ] => match way.as_slice() {
            b"blocked" => *left == -1,
            b"polling" => *left >= 0,
            _ => false,
        },
        _ => false,
    }
}
