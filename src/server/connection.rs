//! What the server and the system know of a client's connection: whether its other end is gone, and whether a reply
//! went out.

use std::mem::{size_of, zeroed};

use redis_module::RedisValue;

use super::context::{Ctx, text};

impl Ctx {
    /// Whether the other end has closed the connection, or has reset it: the server may not have read that yet. Not
    /// free: it reads the connection's line of CLIENT LIST.
    pub fn has_hung_up(&self, client: u64) -> bool {
        Line::of(self, client)
            .and_then(|line| line.socket())
            .is_some_and(has_hung_up)
    }

    /// Whether the reply to a client's last command surely was not sent, if that was this command, and the reply has
    /// this length. To be asked when the connection closes. Not free, as above.
    ///
    /// The server empties its buffer when it has sent all of it, so `obl` is what the buffer holds: more than the one
    /// reply would leave open how much of it was sent. Valkey's I/O threads send, and its main thread takes note of it
    /// later, or never if the connection is to be closed by then. So there the system is asked how much it was given.
    pub fn is_unsent(&self, client: u64, command: &[u8], reply: usize) -> bool {
        let Some(line) = Line::of(self, client) else {
            return false;
        };
        let in_multi = line
            .field(b"flags")
            .is_none_or(|flags| flags.contains(&b'x'));
        let is_last = line.field(b"cmd") == Some(command) && !in_multi;
        let is_alone = line.number(b"obl") == i64::try_from(reply).ok();
        if !is_last || !is_alone || line.number(b"oll") != Some(0) {
            return false;
        }
        let noted = line.number(b"tot-net-out");
        // Redis keeps its connections' figures true.
        if noted.is_none() || line.number(b"io-thread").is_some() || !self.has_io_threads() {
            return true;
        }
        line.socket()
            .and_then(given)
            .is_some_and(|given| Some(given) <= noted)
    }

    /// Whether the server may send replies on other threads.
    fn has_io_threads(&self) -> bool {
        let reply = redis_module::Context::new(self.raw).call("CONFIG", &["GET", "io-threads"]);
        let Ok(RedisValue::Array(pair)) = reply else {
            return true;
        };
        pair.last().and_then(text) != Some(b"1")
    }
}

/// A connection's line of CLIENT LIST.
struct Line(RedisValue);

impl Line {
    fn of(ctx: &Ctx, client: u64) -> Option<Self> {
        let id = client.to_string();
        let list = redis_module::Context::new(ctx.raw).call("CLIENT", &["LIST", "ID", &id]);
        list.ok().map(Self)
    }

    fn field(&self, name: &[u8]) -> Option<&[u8]> {
        let mut fields = text(&self.0)?.split(|byte| *byte == b' ');
        fields.find_map(|field| field.strip_prefix(name)?.strip_prefix(b"="))
    }

    fn number(&self, name: &[u8]) -> Option<i64> {
        std::str::from_utf8(self.field(name)?).ok()?.parse().ok()
    }

    fn socket(&self) -> Option<libc::c_int> {
        libc::c_int::try_from(self.number(b"fd")?)
            .ok()
            .filter(|socket| *socket >= 0)
    }
}

fn has_hung_up(socket: libc::c_int) -> bool {
    let mut asked = libc::pollfd {
        fd: socket,
        events: libc::POLLRDHUP,
        revents: 0,
    };
    // SAFETY: one place for the result; without a time it does not wait.
    let count = unsafe { libc::poll(&raw mut asked, 1, 0) };
    count == 1 && asked.revents & (libc::POLLRDHUP | libc::POLLHUP | libc::POLLERR) != 0
}

/// How many bytes the system was given to send on a TCP connection.
fn given(socket: libc::c_int) -> Option<i64> {
    // SAFETY: all of it are numbers.
    let mut info: libc::tcp_info = unsafe { zeroed() };
    let mut length = libc::socklen_t::try_from(size_of::<libc::tcp_info>()).ok()?;
    let place = (&raw mut info).cast();
    // SAFETY: a place for the result, and its length.
    let status = unsafe {
        libc::getsockopt(
            socket,
            libc::IPPROTO_TCP,
            libc::TCP_INFO,
            place,
            &raw mut length,
        )
    };
    let told = std::mem::offset_of!(libc::tcp_info, tcpi_dsack_dups);
    if status != 0 || usize::try_from(length).ok()? < told {
        return None;
    }
    let sent = info.tcpi_bytes_sent.saturating_sub(info.tcpi_bytes_retrans);
    i64::try_from(sent.saturating_add(info.tcpi_notsent_bytes.into())).ok()
}
