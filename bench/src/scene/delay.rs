//! How long the next holder waits for its reply once the holder has released: from the moment the
//! RELEASE is sent to the moment at which the kernel gets the reply from the server.
//!
//! Connections of one machine hand bytes over within the system call that writes them. So the time
//! before the RELEASE is written is when the server can know of it, and the kernel's time stamp on
//! the reply is when the server wrote it; how fast the clients wake up does not count.

use std::io::{IoSliceMut, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::os::fd::AsRawFd as _;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Result, bail};
use hdrhistogram::Histogram;
use nix::sys::socket::{ControlMessageOwned, MsgFlags, recvmsg, setsockopt, sockopt};
use nix::sys::time::TimeSpec;
use nix::time::{ClockId, clock_gettime};

use crate::bench::Bench;
use crate::report::show;
use crate::resp::{Reply, encode, first};
use crate::server::{Kind, Server};

/// Commands a second that other clients send.
const OTHERS: u64 = 50_000;
/// How many of them go in one write.
const BATCH: u64 = 10;

/// Runs the scene.
pub fn run(bench: &mut Bench) -> Result<()> {
    let time = if bench.quick { 1 } else { 5 };
    let mut rows = Vec::new();
    for (name, ours) in [("fairlock", true), ("BLPOP, RPUSH", false)] {
        for load in [0, OTHERS] {
            bench.say(&format!(
                "delay of a hand-off, {name}, {load} other commands a second"
            ));
            let kind = if ours { Kind::Module } else { Kind::Plain };
            let mut server = bench.server(kind, &[])?;
            let (delays, others) = measure(&mut server, ours, load, Duration::from_secs(time))?;
            #[allow(clippy::cast_precision_loss)] // Below 2^53.
            let micros = |quantile| delays.value_at_quantile(quantile) as f64 / 1000.0;
            rows.push(vec![
                name.to_owned(),
                show(others),
                show(micros(0.5)),
                show(micros(0.99)),
                delays.len().to_string(),
            ]);
        }
    }
    bench.report.table(
        "From RELEASE to the next holder's reply",
        "From when the server can know of the RELEASE (or RPUSH) to when it has written the waiting client's reply, on \
         an idle server and beside other clients' GET and SET.",
        &["commands", "other commands a second", "p50, µs", "p99, µs", "hand-offs"],
        rows,
    );
    Ok(())
}

fn measure(
    server: &mut Server,
    ours: bool,
    load: u64,
    time: Duration,
) -> Result<(Histogram<u64>, f64)> {
    let (stop, sent) = (AtomicBool::new(false), AtomicU64::new(0));
    let address = server.address();
    std::thread::scope(|scope| {
        let others = scope.spawn(|| send_others(address, load, &stop, &sent));
        let start = Instant::now();
        let delays = hand_on(server, ours, time);
        stop.store(true, Ordering::Relaxed);
        #[allow(clippy::cast_precision_loss)] // Far below 2^53.
        let rate = sent.load(Ordering::Relaxed) as f64 / start.elapsed().as_secs_f64();
        others
            .join()
            .map_err(|_| anyhow::anyhow!("other clients failed"))??;
        Ok((delays?, rate))
    })
}

/// GET and SET at an even pace.
fn send_others(address: SocketAddr, load: u64, stop: &AtomicBool, sent: &AtomicU64) -> Result<()> {
    if load == 0 {
        return Ok(());
    }
    let mut batch = Vec::new();
    for _ in 0..BATCH / 2 {
        encode(&mut batch, &[b"SET", b"other", b"value"]);
        encode(&mut batch, &[b"GET", b"other"]);
    }
    let mut stream = TcpStream::connect(address)?;
    stream.set_nodelay(true)?;
    let mut answers = stream.try_clone()?;
    std::thread::scope(|scope| {
        scope.spawn(move || std::io::copy(&mut answers, &mut std::io::sink()));
        let start = Instant::now();
        let mut batches = 0;
        while !stop.load(Ordering::Relaxed) {
            let due = start + Duration::from_micros(batches * BATCH * 1_000_000 / load);
            std::thread::sleep(due.saturating_duration_since(Instant::now()));
            stream.write_all(&batch)?;
            batches += 1;
            sent.fetch_add(BATCH, Ordering::Relaxed);
        }
        stream.shutdown(std::net::Shutdown::Both)?;
        Ok(())
    })
}

/// A client whose replies bear the kernel's time stamps.
struct Stamped {
    stream: TcpStream,
    ask: Vec<u8>,
    give: Vec<u8>,
}

impl Stamped {
    fn connect(address: SocketAddr, ours: bool, number: u8) -> Result<Self> {
        let stream = TcpStream::connect(address)?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(Duration::from_secs(10)))?;
        setsockopt(&stream, sockopt::ReceiveTimestampns, &true)?;
        let (mut ask, mut give) = (Vec::new(), Vec::new());
        let owner = [b'o', b'0' + number];
        if ours {
            encode(&mut ask, &[b"FAIRLOCK.ACQUIRE", b"delay", &owner]);
            encode(&mut give, &[b"FAIRLOCK.RELEASE", b"delay", &owner]);
        } else {
            encode(&mut ask, &[b"BLPOP", b"delay", b"0"]);
            encode(&mut give, &[b"RPUSH", b"delay", b"token"]);
        }
        Ok(Self { stream, ask, give })
    }

    /// Takes the next reply. Returns when it came, in nanoseconds of the wall clock, unless the kernel of a busy
    /// machine has not begun to stamp yet.
    fn stamp(&self) -> Result<Option<u64>> {
        let mut buffer = [0; 256];
        let mut control = nix::cmsg_space!(TimeSpec);
        let mut slices = [IoSliceMut::new(&mut buffer)];
        let (socket, flags) = (self.stream.as_raw_fd(), MsgFlags::empty());
        let message = recvmsg::<()>(socket, &mut slices, Some(&mut control), flags)?;
        let stamp = message.cmsgs()?.find_map(|control| match control {
            ControlMessageOwned::ScmTimestampns(stamp) => Some(stamp),
            _ => None,
        });
        let length = message.bytes;
        if length == 0 {
            bail!("the server has closed the connection");
        }
        let reply = buffer.get(..length).and_then(first);
        if let Some((Reply::Error(text), _)) = reply {
            bail!("{}", String::from_utf8_lossy(text));
        }
        stamp.map(nanos).transpose()
    }
}

fn nanos(time: TimeSpec) -> Result<u64> {
    let seconds = u64::try_from(time.tv_sec())?;
    Ok(seconds * 1_000_000_000 + u64::try_from(time.tv_nsec())?)
}

fn hand_on(server: &mut Server, ours: bool, time: Duration) -> Result<Histogram<u64>> {
    let mut delays = Histogram::new(3)?;
    let address = server.address();
    let mut holder = Stamped::connect(address, ours, 1)?;
    let mut waiter = Stamped::connect(address, ours, 2)?;
    if ours {
        holder.stream.write_all(&holder.ask)?;
        holder.stamp()?;
    }
    let end = Instant::now() + time;
    while Instant::now() < end {
        waiter.stream.write_all(&waiter.ask)?;
        server.wait("blocked_clients", |blocked| blocked > 0.5)?;
        let begin = clock_gettime(ClockId::CLOCK_REALTIME)?;
        holder.stream.write_all(&holder.give)?;
        if let Some(stamp) = waiter.stamp()? {
            delays.record(stamp.saturating_sub(nanos(begin)?))?;
        }
        // The answer to the last release.
        holder.stamp()?;
        std::mem::swap(&mut holder, &mut waiter);
    }
    Ok(delays)
}
