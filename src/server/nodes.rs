//! Which node of the cluster has which slots, and where clients reach it.
//!
//! CLUSTER SLOTS, SHARDS and NODES must not be called from here: Valkey 8 uses the connection of the
//! caller, and crashes if a timer, which has none, calls them. The module API gives a node's address, but
//! not its slots. So the slots are read from the server's cluster configuration file, which it writes
//! after each change before the event loop sleeps. The file also has the host names.

use std::cell::RefCell;
use std::ffi::{CStr, CString, c_char, c_int};
use std::fs;
use std::ops::RangeInclusive;
use std::os::unix::fs::MetadataExt as _;
use std::ptr::null_mut;

use redis_module::RedisValue;

use super::api::{OK, api, raw};
use super::context::{Ctx, text};

/// What a line of the file says of a node.
#[derive(Debug, PartialEq, Eq)]
struct NodeLine<'f> {
    id: &'f str,
    hostname: &'f str,
    is_ours: bool,
    /// The id of its master; a dash if it has none.
    master: &'f str,
    slots: Vec<RangeInclusive<u16>>,
}

/// The cluster configuration file, and its state when it was last looked at: inode number, size, and time of
/// the last change.
#[derive(Debug)]
struct Seen {
    name: String,
    stamp: Option<[i64; 4]>,
    /// Slots were on their way, key by key, to this node or from it.
    are_moving: bool,
}

thread_local! {
    static SEEN: RefCell<Option<Seen>> = const { RefCell::new(None) };
}

/// Room for an address: the server writes 46 bytes at most.
const ADDRESS: usize = 64;

impl Ctx {
    /// Where clients reach the master of this node, if it is a replica of a known one.
    pub fn master(&self) -> Option<String> {
        let (file, endpoint) = (self.nodes_file().unwrap_or_default(), self.endpoint());
        let lines: Vec<_> = file.lines().filter_map(read_line).collect();
        let own = lines.iter().find(|line| line.is_ours)?;
        let master = lines.iter().find(|line| line.id == own.master)?;
        self.reach(master, endpoint.as_deref())
    }

    /// Where clients reach a node: what the server itself would give them, which depends on
    /// `cluster-preferred-endpoint-type`. With an unknown endpoint they keep the host that they know.
    fn reach(&self, node: &NodeLine<'_>, endpoint: Option<&str>) -> Option<String> {
        let (address, port) = self.address(node.id)?;
        let host = match endpoint {
            Some("hostname") if node.hostname.is_empty() => "?",
            Some("hostname") => node.hostname,
            Some("unknown-endpoint") => "",
            _ => &address,
        };
        Some(format!("{host}:{port}"))
    }

    fn address(&self, id: &str) -> Option<(String, c_int)> {
        let id = CString::new(id).ok()?;
        let (mut address, mut port) = ([0_u8; ADDRESS], 0);
        let place = address.as_mut_ptr().cast::<c_char>();
        // SAFETY: the id ends with a null, and there is room for the address. What the server does not write stays
        // null.
        let status = unsafe {
            let (ctx, id) = (self.raw, id.as_ptr());
            api!(GetClusterNodeInfo(
                ctx,
                id,
                place,
                null_mut(),
                &raw mut port,
                null_mut()
            ))
        };
        let address = CStr::from_bytes_until_nul(&address).ok()?;
        (status == OK).then(|| (address.to_string_lossy().into_owned(), port))
    }

    /// Whether slots may have come to this node, or left it, since the last call. False on the first call.
    pub fn slots_may_have_changed(&self) -> bool {
        SEEN.with_borrow_mut(|seen| {
            let known = seen.is_some();
            let seen = seen.get_or_insert_with(|| Seen {
                name: self.nodes_file_name(),
                stamp: None,
                are_moving: false,
            });
            let stamp = fs::metadata(&seen.name).ok().map(|file| {
                let number = file.ino().cast_signed();
                [
                    number,
                    file.size().cast_signed(),
                    file.mtime(),
                    file.mtime_nsec(),
                ]
            });
            let has_changed = std::mem::replace(&mut seen.stamp, stamp) != stamp;
            if has_changed {
                let file = self.nodes_file();
                seen.are_moving = file
                    .as_ref()
                    .is_none_or(|file| file.lines().any(moves_slots));
                if file.is_none() {
                    // The server has no descriptor left. The next look reads the file.
                    seen.stamp = None;
                }
            }
            has_changed && known
        })
    }

    /// Whether slots were on their way at the last such look, key by key, to this node or from it.
    pub fn are_slots_moving(&self) -> bool {
        SEEN.with_borrow(|seen| seen.as_ref().is_none_or(|seen| seen.are_moving))
    }

    /// The server's cluster configuration file, if it can be read.
    fn nodes_file(&self) -> Option<String> {
        let file = fs::read(self.nodes_file_name()).ok()?;
        Some(String::from_utf8_lossy(&file).into_owned())
    }

    /// The file's name. It is relative to the server's working directory.
    fn nodes_file_name(&self) -> String {
        let name = self.setting("cluster-config-file");
        name.unwrap_or_else(|| "nodes.conf".to_owned())
    }

    fn endpoint(&self) -> Option<String> {
        self.setting("cluster-preferred-endpoint-type")
    }

    /// One of the server's own options. `None` if CONFIG has been renamed.
    fn setting(&self, name: &str) -> Option<String> {
        let reply = redis_module::Context::new(self.raw).call("CONFIG", &["GET", name]);
        let Ok(RedisValue::Array(reply)) = reply else {
            return None;
        };
        let value = reply.get(1).and_then(text)?;
        Some(String::from_utf8_lossy(value).into_owned())
    }
}

/// `id address:port@port,hostname,more flags master ping pong epoch link slots...`; `None` for the
/// line that is of no node.
fn read_line(line: &str) -> Option<NodeLine<'_>> {
    let mut words = line.split(' ');
    let id = words.next()?;
    if id.len() != raw::REDISMODULE_NODE_ID_LEN {
        return None;
    }
    let hostname = words.next()?.split(',').nth(1).unwrap_or_default();
    let is_ours = words.next()?.split(',').any(|flag| flag == "myself");
    let master = words.next()?;
    // Before the slots: ping, pong, epoch, link.
    let slots = words.skip(4).filter_map(read_slots).collect();
    Some(NodeLine {
        id,
        hostname,
        is_ours,
        master,
        slots,
    })
}

/// Whether a line is that of this node, and has slots that are being moved.
fn moves_slots(line: &str) -> bool {
    read_line(line).is_some_and(|line| line.is_ours) && line.contains(" [")
}

/// `7` or `0-5460`. `None` for a slot that is being moved, which is written in brackets.
fn read_slots(word: &str) -> Option<RangeInclusive<u16>> {
    let (first, last) = word.split_once('-').unwrap_or((word, word));
    Some(first.parse().ok()?..=last.parse().ok()?)
}

#[cfg(test)]
mod tests {
    use super::*;

    const ID: &str = "0123456789abcdef0123456789abcdef01234567";

    fn read(rest: &str) -> Option<(String, bool, Vec<RangeInclusive<u16>>)> {
        let line = format!("{ID} {rest}");
        let line = read_line(&line)?;
        assert_eq!(line.id, ID);
        Some((line.hostname.to_owned(), line.is_ours, line.slots))
    }

    #[test]
    fn lines_of_all_servers_are_read() {
        // Redis 7.0, without and with a hostname.
        assert_eq!(
            read("10.0.0.1:6379@16379 master - 0 1 2 connected 0-5460 7000"),
            Some((String::new(), false, vec![0..=5460, 7000..=7000]))
        );
        assert_eq!(
            read("10.0.0.1:6379@16379,db.example myself,master - 0 1 2 connected 3"),
            Some(("db.example".to_owned(), true, vec![3..=3]))
        );
        // Newer ones, with more behind the hostname, and no hostname.
        assert_eq!(
            read("::1:6379@16379,,tls-port=0,shard-id=9 slave 0 1 2 3 connected"),
            Some((String::new(), false, vec![]))
        );
    }

    #[test]
    fn slots_on_their_way_are_those_of_the_node_that_has_them() {
        let slots = "0-1 [5->-0123456789abcdef0123456789abcdef01234567]";
        let line = format!("10.0.0.1:1@2 myself,master - 0 0 1 connected {slots}");
        let found = read(&line);
        assert_eq!(found, Some((String::new(), true, vec![0..=1])));
        assert!(moves_slots(&format!("{ID} {line}")));
        assert!(!moves_slots(&format!(
            "{ID} {}",
            line.replace("myself,", "")
        )));
        assert!(!moves_slots(&format!("{ID} {}", line.replace(" [", " "))));
    }

    #[test]
    fn what_is_no_line_of_a_node_is_none() {
        for line in ["", "vars currentEpoch 6 lastVoteEpoch 0", ID] {
            assert_eq!(read_line(line), None);
        }
        assert_eq!(read(""), None);
    }
}
