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

use super::Ctx;
use super::api::{OK, api, raw};
use super::cluster::own_id;
use super::context::text;

/// Slots of another node.
#[derive(Debug)]
pub struct Range {
    /// The slots.
    pub slots: RangeInclusive<u16>,
    /// Where clients reach the node, as `host:port`.
    pub node: String,
}

/// How the server names a node to clients (`cluster-preferred-endpoint-type`).
#[derive(Clone, Copy, Debug)]
enum Endpoint {
    Address,
    Hostname,
    /// Not at all: clients keep the host that they know.
    Unknown,
}

/// What the module API says of a node.
#[derive(Debug)]
struct Node {
    address: String,
    port: c_int,
    /// The id of its master; empty if it has none.
    master: String,
}

/// What a line of the file says of a node.
#[derive(Debug, PartialEq, Eq)]
struct Line<'f> {
    id: &'f str,
    hostname: &'f str,
    is_ours: bool,
    slots: Vec<RangeInclusive<u16>>,
}

/// The cluster configuration file, and its state when it was last looked at: inode number, size, and time of
/// the last change.
#[derive(Debug)]
struct Seen {
    name: String,
    stamp: Option<[i64; 4]>,
}

thread_local! {
    static SEEN: RefCell<Option<Seen>> = const { RefCell::new(None) };
}

/// Forgets what an earlier load of the module may have left.
pub(super) fn start_afresh() {
    SEEN.set(None);
}

/// Room for what the server writes of a node: an address of at most 46 bytes, or an id of 40.
const FIELD: usize = 64;

impl Ctx {
    /// The slots of all other nodes whose address is known.
    #[must_use]
    pub fn slots_elsewhere(&self) -> Vec<Range> {
        let (file, endpoint) = (self.nodes_file(), self.endpoint());
        let lines = file.lines().filter_map(read_line);
        let others = lines.filter(|line| !line.is_ours && !line.slots.is_empty());
        let ranges = others.filter_map(|line| {
            let node = self.node(line.id)?.reached_by(endpoint, line.hostname);
            Some(line.slots.into_iter().map(move |slots| Range {
                slots,
                node: node.clone(),
            }))
        });
        ranges.flatten().collect()
    }

    /// Where clients reach the master of this node, if it is a replica of a known one.
    #[must_use]
    pub fn master(&self) -> Option<String> {
        let id = self.node(str::from_utf8(own_id()).ok()?)?.master;
        let (file, endpoint) = (self.nodes_file(), self.endpoint());
        let line = file
            .lines()
            .filter_map(read_line)
            .find(|line| line.id == id);
        let hostname = line.map_or("", |line| line.hostname);
        Some(self.node(&id)?.reached_by(endpoint, hostname))
    }

    fn node(&self, id: &str) -> Option<Node> {
        let id = CString::new(id).ok()?;
        let (mut address, mut master) = ([0_u8; FIELD], [0_u8; FIELD]);
        let mut port = 0;
        let (address_at, master_at) = (address.as_mut_ptr(), master.as_mut_ptr());
        // SAFETY: the id ends with a null, and there is room for all that the server writes. What
        // it does not write stays null.
        let status = unsafe {
            api!(GetClusterNodeInfo(
                self.raw,
                id.as_ptr(),
                address_at.cast::<c_char>(),
                master_at.cast::<c_char>(),
                &raw mut port,
                null_mut(),
            ))
        };
        (status == OK).then(|| Node {
            address: until_null(&address),
            port,
            master: until_null(&master),
        })
    }

    /// Whether slots may have come to this node, or left it, since the last call. False on the first call.
    #[must_use]
    pub fn slots_may_have_changed(&self) -> bool {
        SEEN.with_borrow_mut(|seen| {
            let known = seen.is_some();
            let seen = seen.get_or_insert_with(|| Seen {
                name: self.nodes_file_name(),
                stamp: None,
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
            std::mem::replace(&mut seen.stamp, stamp) != stamp && known
        })
    }

    /// The server's cluster configuration file; empty if it cannot be read.
    fn nodes_file(&self) -> String {
        let file = fs::read(self.nodes_file_name()).unwrap_or_default();
        String::from_utf8_lossy(&file).into_owned()
    }

    /// The file's name. It is relative to the server's working directory.
    fn nodes_file_name(&self) -> String {
        let name = self.setting("cluster-config-file");
        name.unwrap_or_else(|| "nodes.conf".to_owned())
    }

    fn endpoint(&self) -> Endpoint {
        match self.setting("cluster-preferred-endpoint-type").as_deref() {
            Some("hostname") => Endpoint::Hostname,
            Some("unknown-endpoint") => Endpoint::Unknown,
            _ => Endpoint::Address,
        }
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

impl Node {
    /// The address that the server itself would give clients.
    fn reached_by(self, endpoint: Endpoint, hostname: &str) -> String {
        let host = match endpoint {
            Endpoint::Address => &self.address,
            Endpoint::Hostname if hostname.is_empty() => "?",
            Endpoint::Hostname => hostname,
            Endpoint::Unknown => "",
        };
        format!("{host}:{}", self.port)
    }
}

fn until_null(bytes: &[u8]) -> String {
    let text = CStr::from_bytes_until_nul(bytes).unwrap_or_default();
    text.to_string_lossy().into_owned()
}

/// `id address:port@port,hostname,more flags master ping pong epoch link slots...`; `None` for the
/// line that is of no node.
fn read_line(line: &str) -> Option<Line<'_>> {
    let mut words = line.split(' ');
    let id = words.next()?;
    if id.len() != raw::REDISMODULE_NODE_ID_LEN {
        return None;
    }
    let hostname = words.next()?.split(',').nth(1).unwrap_or_default();
    let is_ours = words.next()?.split(',').any(|flag| flag == "myself");
    // Between the flags and the slots: master, ping, pong, epoch, link.
    let slots = words.skip(5).filter_map(read_slots).collect();
    Some(Line {
        id,
        hostname,
        is_ours,
        slots,
    })
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
    }

    #[test]
    fn what_is_no_line_of_a_node_is_none() {
        for line in ["", "vars currentEpoch 6 lastVoteEpoch 0", ID] {
            assert_eq!(read_line(line), None);
        }
        assert_eq!(read(""), None);
    }
}
