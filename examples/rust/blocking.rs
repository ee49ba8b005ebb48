//! fairlock with the redis crate and threads: `cargo run --example blocking [redis://127.0.0.1:6379]`
//!
//! The upper half is to copy; the lower half shows it at work, and fails if anything is not as it
//! says.
//!
//! Timeouts. A blocking `Connection` has none unless `set_read_timeout` says otherwise. One that is a
//! little longer than the wait finds out that a server is gone. Never let one end a wait, or drop the
//! connection if it does: the lock goes to nobody when its turn comes.
//!
//! A `Connection` belongs to one thread, so each thread that waits has one.

use std::error::Error;
use std::fmt::{self, Display, Formatter};
use std::thread;
use std::time::{Duration, Instant};

use redis::{Client, Connection, RedisError, RedisResult, Script, cmd};
use uuid::Uuid;

/// A lock that is held until it is released or dropped.
struct FairLock<'a> {
    connection: &'a mut Connection,
    name: &'a str,
    owner: String,
    /// Send it along with each write.
    token: i64,
    is_released: bool,
}

/// Why there is no lock, or none any more.
#[derive(Debug)]
enum LockError {
    NotInTime,
    /// The lease ended before the work did, or an operator broke the lock.
    Lost,
    /// QUEUEFULL and other refusals, and broken connections.
    Redis(RedisError),
}

impl<'a> FairLock<'a> {
    /// Waits at most so long.
    fn acquire(
        connection: &'a mut Connection,
        name: &'a str,
        wait: Duration,
        lease: Duration,
    ) -> Result<Self, LockError> {
        // Nobody else has this owner's name, so no other thread can take its place or its lock.
        let owner = Uuid::new_v4().to_string();
        let end = Instant::now() + wait;
        connection.set_read_timeout(Some(wait + Duration::from_secs(5)))?;
        loop {
            let left = end.saturating_duration_since(Instant::now());
            let mut acquire = cmd("FAIRLOCK.ACQUIRE");
            acquire.arg(name).arg(&owner);
            acquire.arg("WAIT").arg(milliseconds(left).max(1));
            acquire.arg("LEASE").arg(milliseconds(lease));
            match acquire.query::<Option<i64>>(connection) {
                Ok(Some(token)) => {
                    return Ok(Self {
                        connection,
                        name,
                        owner,
                        token,
                        is_released: false,
                    });
                }
                Ok(None) => return Err(LockError::NotInTime),
                // A failover: the place in the queue is still there.
                Err(error) if error.code() == Some("UNBLOCKED") => (),
                Err(error) => return Err(error.into()),
            }
        }
    }

    /// Releases it, and tells whether it was held until now.
    fn release(mut self) -> Result<(), LockError> {
        self.release_once().map_err(|error| {
            if error.code() == Some("NOTHELD") {
                LockError::Lost
            } else {
                error.into()
            }
        })
    }

    fn release_once(&mut self) -> RedisResult<()> {
        if std::mem::replace(&mut self.is_released, true) {
            return Ok(());
        }
        let mut release = cmd("FAIRLOCK.RELEASE");
        release
            .arg(self.name)
            .arg(&self.owner)
            .exec(self.connection)
    }
}

/// Where an error or a panic leaves early.
impl Drop for FairLock<'_> {
    fn drop(&mut self) {
        // Nobody is there to be told.
        let _ = self.release_once();
    }
}

/// Takes a lock for as long as a connection of its own is open, which is returned: drop it.
///
/// The server renews the lease, and frees the lock as soon as the process is gone; the lease bounds it
/// if the server is. Whoever works for long asks now and then by RENEW on this connection: an error
/// means that the lock is lost.
fn session_lock(
    client: &Client,
    name: &str,
    wait: Duration,
    lease: Duration,
) -> Result<Connection, LockError> {
    let mut connection = client.get_connection()?;
    connection.set_read_timeout(Some(wait + Duration::from_secs(5)))?;
    let mut acquire = cmd("FAIRLOCK.ACQUIRE");
    acquire.arg(name).arg("*").arg("SESSION");
    acquire.arg("WAIT").arg(milliseconds(wait));
    acquire.arg("LEASE").arg(milliseconds(lease));
    match acquire.query::<Option<i64>>(&mut connection)? {
        Some(_) => Ok(connection),
        None => Err(LockError::NotInTime),
    }
}

fn milliseconds(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

impl From<RedisError> for LockError {
    fn from(error: RedisError) -> Self {
        Self::Redis(error)
    }
}

impl Display for LockError {
    fn fmt(&self, to: &mut Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotInTime => to.write_str("somebody else has the lock"),
            Self::Lost => to.write_str("the lock was lost"),
            Self::Redis(error) => error.fmt(to),
        }
    }
}

impl Error for LockError {}

/// A store that has seen a token refuses all that are smaller.
const CONDITIONAL_WRITE: &str = "
    if tonumber(ARGV[1]) < tonumber(redis.call('HGET', KEYS[1], 'token') or 0) then
        return redis.error_reply('STALE token')
    end
    return redis.call('HSET', KEYS[1], 'token', ARGV[1], 'amount', ARGV[2])";

// ----------------------------------------------------------------------------------- at work

const LOCK: &str = "example:redis-rs";
const STOCK: &str = "example:redis-rs:stock";
const WAIT: Duration = Duration::from_secs(30);
const LEASE: Duration = Duration::from_secs(10);

type Outcome<T = ()> = Result<T, Box<dyn Error + Send + Sync>>;

fn main() -> Outcome {
    let named = std::env::args()
        .nth(1)
        .or_else(|| std::env::var("FAIRLOCK_URL").ok());
    let client = Client::open(named.as_deref().unwrap_or("redis://127.0.0.1:6379"))?;
    many_workers_lose_nothing(&client)?;
    who_does_not_get_it_in_time_goes_on(&client)?;
    a_holder_past_its_lease_cannot_write(&client)?;
    a_wait_outlives_the_timeout(&client)?;
    a_session_ends_with_its_connection(&client)
}

fn many_workers_lose_nothing(client: &Client) -> Outcome {
    let mut store = client.get_connection()?;
    cmd("DEL").arg(STOCK).exec(&mut store)?;
    let workers: Vec<_> = (0..4)
        .map(|_| {
            let client = client.clone();
            thread::spawn(move || work(&client))
        })
        .collect();
    for worker in workers {
        worker.join().map_err(|_| "a worker has panicked")??;
    }
    expect(amount(&mut store)? == 20, "4 workers have added 5 each")
}

fn work(client: &Client) -> Outcome {
    let mut locks = client.get_connection()?;
    let mut store = client.get_connection()?;
    for _ in 0..5 {
        let lock = FairLock::acquire(&mut locks, LOCK, WAIT, LEASE)?;
        let before = amount(&mut store)?;
        // Time enough for others to write, if they could.
        thread::sleep(Duration::from_millis(2));
        write(&mut store, lock.token, before + 1)?;
        lock.release()?;
    }
    Ok(())
}

fn who_does_not_get_it_in_time_goes_on(client: &Client) -> Outcome {
    let (mut first, mut second) = (client.get_connection()?, client.get_connection()?);
    let lock = FairLock::acquire(&mut first, LOCK, WAIT, LEASE)?;
    let late = FairLock::acquire(&mut second, LOCK, Duration::from_millis(50), LEASE);
    let is_late = matches!(late, Err(LockError::NotInTime));
    drop(late);
    expect(is_late, "not in time: somebody else has the lock")?;
    let queue: Vec<redis::Value> = cmd("FAIRLOCK.QUEUE").arg(LOCK).query(&mut second)?;
    expect(queue.is_empty(), "whoever gave up has left the queue")?;
    lock.release()?;
    Ok(())
}

fn a_holder_past_its_lease_cannot_write(client: &Client) -> Outcome {
    let (mut first, mut second) = (client.get_connection()?, client.get_connection()?);
    let mut store = client.get_connection()?;
    let old = FairLock::acquire(&mut first, LOCK, WAIT, Duration::from_millis(50))?;
    // This holder sleeps. Meanwhile its lease ends, and the next one takes the lock.
    let new = FairLock::acquire(&mut second, LOCK, WAIT, LEASE)?;
    expect(new.token > old.token, "tokens grow")?;
    write(&mut store, new.token, 7)?;
    new.release()?;
    let refusal = write(&mut store, old.token, 9).err();
    let is_stale = refusal.is_some_and(|error| error.code() == Some("STALE"));
    expect(is_stale, "the store refuses the old token")?;
    let is_lost = matches!(old.release(), Err(LockError::Lost));
    expect(is_lost, "and the release tells that the lock was lost")?;
    expect(amount(&mut store)? == 7, "the newer value stays")
}

fn a_wait_outlives_the_timeout(client: &Client) -> Outcome {
    let (mut somebody, mut hasty) = (client.get_connection()?, client.get_connection()?);
    take_for_three_seconds(&mut somebody)?;
    hasty.set_read_timeout(Some(Duration::from_secs(2)))?;
    let gives_up = cmd("FAIRLOCK.ACQUIRE").arg(LOCK).arg("*").exec(&mut hasty);
    expect(
        gives_up.is_err_and(|error| error.is_timeout()),
        "a read timeout ends a wait",
    )?;
    drop(hasty);
    let mut patient = client.get_connection()?;
    take_for_three_seconds(&mut somebody)?;
    patient.set_read_timeout(Some(Duration::from_secs(2)))?;
    FairLock::acquire(&mut patient, LOCK, WAIT, LEASE)?.release()?;
    println!("unless it is longer than the wait");
    Ok(())
}

fn take_for_three_seconds(connection: &mut Connection) -> RedisResult<()> {
    let mut acquire = cmd("FAIRLOCK.ACQUIRE");
    acquire
        .arg(LOCK)
        .arg("somebody")
        .arg("LEASE")
        .arg(3000)
        .exec(connection)
}

fn a_session_ends_with_its_connection(client: &Client) -> Outcome {
    let mut session = session_lock(client, LOCK, WAIT, Duration::from_mins(1))?;
    let renewed: u64 = cmd("FAIRLOCK.RENEW")
        .arg(LOCK)
        .arg("*")
        .query(&mut session)?;
    expect(renewed == 60_000, "the session holds")?;
    let start = Instant::now();
    let leaving = thread::spawn(move || {
        thread::sleep(Duration::from_millis(200));
        drop(session); // As when the process dies: nobody releases.
    });
    let mut next = client.get_connection()?;
    FairLock::acquire(&mut next, LOCK, WAIT, LEASE)?.release()?;
    let waited = start.elapsed();
    leaving.join().map_err(|_| "the session has panicked")?;
    expect(
        waited >= Duration::from_millis(150),
        "the next one waits as long as the connection is open",
    )?;
    expect(
        waited < Duration::from_secs(20),
        "then it has the lock at once, not when a minute's lease ends",
    )
}

fn amount(store: &mut Connection) -> RedisResult<i64> {
    let amount: Option<i64> = cmd("HGET").arg(STOCK).arg("amount").query(store)?;
    Ok(amount.unwrap_or(0))
}

fn write(store: &mut Connection, token: i64, amount: i64) -> RedisResult<()> {
    Script::new(CONDITIONAL_WRITE)
        .key(STOCK)
        .arg(token)
        .arg(amount)
        .invoke(store)
}

fn expect(is_so: bool, what: &str) -> Outcome {
    if !is_so {
        return Err(format!("not so: {what}").into());
    }
    println!("{what}");
    Ok(())
}
