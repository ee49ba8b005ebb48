//! fairlock with the redis crate and tokio: `cargo run --example multiplexed [redis://127.0.0.1:6379]`
//!
//! The upper half is to copy; the lower half shows it at work, and fails if anything is not as it
//! says.
//!
//! A `MultiplexedConnection`, or a `ConnectionManager`, sends the commands of all tasks on one
//! connection, where a command that blocks would hold up all behind it. So `FairLocks` asks by ENQUEUE,
//! which is answered at once, and is woken through one subscription for all tasks. A session lock is
//! bound to a connection, so it has one of its own, and there it may block.
//!
//! Timeouts. These connections give up a command after 500 milliseconds unless
//! `AsyncConnectionConfig::set_response_timeout` says otherwise. ENQUEUE is answered before it. The
//! connection of a session lock has a timeout longer than its wait. Never block with a shorter one:
//! the command is forgotten and the connection stays open, so that the lock goes to nobody when its
//! turn comes. `tokio::time::timeout` around `acquire` is fine: it leaves the queue when it is dropped.

use std::collections::HashMap;
use std::error::Error;
use std::fmt::{self, Display, Formatter};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use futures_util::StreamExt as _;
use redis::aio::{MultiplexedConnection, PubSub};
use redis::{AsyncConnectionConfig, Client, RedisError, RedisResult, Script, Value, cmd};
use tokio::sync::Notify;
use tokio::task::JoinHandle;
use tokio::time::{sleep, timeout};
use uuid::Uuid;

type WakeUps = Arc<Mutex<HashMap<String, Arc<Notify>>>>;

/// Any number of waiters on one connection, and one more for the wake-ups.
struct FairLocks {
    connection: MultiplexedConnection,
    wake_ups: WakeUps,
    id: String,
    count: AtomicU64,
    listener: JoinHandle<()>,
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

impl FairLocks {
    async fn new(client: &Client, connection: MultiplexedConnection) -> RedisResult<Self> {
        let id = Uuid::new_v4().to_string();
        let wake_ups = WakeUps::default();
        let subscription = subscribe(client, &id).await?;
        let listening = listen(
            client.clone(),
            id.clone(),
            subscription,
            Arc::clone(&wake_ups),
        );
        Ok(Self {
            connection,
            wake_ups,
            id,
            count: AtomicU64::default(),
            listener: tokio::spawn(listening),
        })
    }

    /// Waits at most so long.
    async fn acquire(
        &self,
        name: &str,
        wait: Duration,
        lease: Duration,
    ) -> Result<FairLock, LockError> {
        let mut lock = self.place(name);
        let end = Instant::now() + wait;
        let woken = Arc::default();
        lock.wake_ups()
            .insert(lock.owner.clone(), Arc::clone(&woken));
        loop {
            // ONCE: asked again after a lost reply, it adds no hold.
            let mut acquire = cmd("FAIRLOCK.ACQUIRE");
            acquire
                .arg(name)
                .arg(&lock.owner)
                .arg("ENQUEUE")
                .arg("ONCE");
            acquire.arg("LEASE").arg(milliseconds(lease));
            let reply: Value = acquire.query_async(&mut lock.connection).await?;
            if let Value::Int(token) = reply {
                lock.token = token;
                return Ok(lock);
            }
            let (_position, retry_after): (u64, u64) =
                redis::from_redis_value(reply).map_err(RedisError::from)?;
            let left = end.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Err(LockError::NotInTime);
            }
            // Whether it was woken or not, it is time to ask again.
            let _ = timeout(
                left.min(Duration::from_millis(retry_after)),
                woken.notified(),
            )
            .await;
        }
    }

    fn place(&self, name: &str) -> FairLock {
        // Nobody else has this owner's name, so no other task can take its place or its lock.
        let number = self.count.fetch_add(1, Ordering::Relaxed);
        FairLock {
            connection: self.connection.clone(),
            name: name.to_owned(),
            owner: format!("{}:{number}", self.id),
            token: 0,
            wake_ups: Arc::clone(&self.wake_ups),
            is_released: false,
        }
    }
}

impl Drop for FairLocks {
    fn drop(&mut self) {
        self.listener.abort();
    }
}

/// One pattern for all tasks, whatever lock they wait for. A cluster has no patterns: there, SSUBSCRIBE
/// to an owner's channel before it asks for the first time.
async fn subscribe(client: &Client, id: &str) -> RedisResult<PubSub> {
    let mut subscription = client.get_async_pubsub().await?;
    let pattern = format!("redisson_lock__channel:*:{id}:*");
    subscription.psubscribe(pattern).await?;
    Ok(subscription)
}

async fn listen(client: Client, id: String, first: PubSub, wake_ups: WakeUps) {
    let mut subscription = Some(first);
    loop {
        if let Some(subscription) = subscription {
            let mut messages = subscription.into_on_message();
            while let Some(message) = messages.next().await {
                let channel = message.get_channel_name();
                let owner = channel.rfind(&id).and_then(|at| channel.get(at..));
                let wake_ups = wake_ups.lock().unwrap_or_else(PoisonError::into_inner);
                if let Some(woken) = owner.and_then(|owner| wake_ups.get(owner)) {
                    woken.notify_one();
                }
            }
        }
        // The connection broke. What was missed meanwhile, retry-after makes up for.
        sleep(Duration::from_millis(100)).await;
        subscription = subscribe(&client, &id).await.ok();
    }
}

/// A lock that is held, or waited for, until it is released or dropped.
struct FairLock {
    connection: MultiplexedConnection,
    name: String,
    owner: String,
    /// Send it along with each write.
    token: i64,
    wake_ups: WakeUps,
    is_released: bool,
}

impl FairLock {
    /// Releases it, and tells whether it was held until now.
    async fn release(mut self) -> Result<(), LockError> {
        self.is_released = true;
        let mut release = cmd("FAIRLOCK.RELEASE");
        release.arg(&self.name).arg(&self.owner);
        let released = release.exec_async(&mut self.connection).await;
        released.map_err(|error| {
            if error.code() == Some("NOTHELD") {
                LockError::Lost
            } else {
                error.into()
            }
        })
    }

    fn wake_ups(&self) -> std::sync::MutexGuard<'_, HashMap<String, Arc<Notify>>> {
        self.wake_ups.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Where an error, a panic or a cancelled task leaves early, be it in the queue or with the lock.
impl Drop for FairLock {
    fn drop(&mut self) {
        self.wake_ups().remove(&self.owner);
        if self.is_released {
            return;
        }
        let (name, owner) = (self.name.clone(), self.owner.clone());
        let mut connection = self.connection.clone();
        tokio::spawn(async move {
            for command in ["FAIRLOCK.CANCEL", "FAIRLOCK.RELEASE"] {
                let mut command = cmd(command);
                // Nobody is there to be told.
                let _ = command
                    .arg(&name)
                    .arg(&owner)
                    .exec_async(&mut connection)
                    .await;
            }
        });
    }
}

/// Takes a lock for as long as a connection of its own is open, which is returned: drop it.
///
/// The server renews the lease, and frees the lock as soon as the process is gone; the lease bounds it
/// if the server is. Whoever works for long asks now and then by RENEW on this connection: an error
/// means that the lock is lost.
async fn session_lock(
    client: &Client,
    name: &str,
    wait: Duration,
    lease: Duration,
) -> Result<MultiplexedConnection, LockError> {
    let config =
        AsyncConnectionConfig::new().set_response_timeout(Some(wait + Duration::from_secs(5)));
    let mut connection = client
        .get_multiplexed_async_connection_with_config(&config)
        .await?;
    let mut acquire = cmd("FAIRLOCK.ACQUIRE");
    acquire.arg(name).arg("*").arg("SESSION");
    acquire.arg("WAIT").arg(milliseconds(wait));
    acquire.arg("LEASE").arg(milliseconds(lease));
    match acquire.query_async::<Option<i64>>(&mut connection).await? {
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

const LOCK: &str = "example:redis-rs-tokio";
const STOCK: &str = "example:redis-rs-tokio:stock";
const WAIT: Duration = Duration::from_secs(30);
const LEASE: Duration = Duration::from_secs(10);
/// Of the ordinary connection.
const TIMEOUT: Duration = Duration::from_secs(2);

type Outcome<T = ()> = Result<T, Box<dyn Error + Send + Sync>>;

#[tokio::main(flavor = "current_thread")]
async fn main() -> Outcome {
    let named = std::env::args()
        .nth(1)
        .or_else(|| std::env::var("FAIRLOCK_URL").ok());
    let client = Client::open(named.as_deref().unwrap_or("redis://127.0.0.1:6379"))?;
    let config = AsyncConnectionConfig::new().set_response_timeout(Some(TIMEOUT));
    let store = client
        .get_multiplexed_async_connection_with_config(&config)
        .await?;
    let locks = Arc::new(FairLocks::new(&client, store.clone()).await?);
    many_workers_lose_nothing(&store, &locks).await?;
    whoever_gives_up_leaves_the_queue(&store, &locks).await?;
    a_holder_past_its_lease_cannot_write(&store, &locks).await?;
    a_wait_outlives_the_timeout(&client, &store, &locks).await?;
    a_session_ends_with_its_connection(&client, &locks).await
}

async fn many_workers_lose_nothing(
    store: &MultiplexedConnection,
    locks: &Arc<FairLocks>,
) -> Outcome {
    let mut store = store.clone();
    cmd("DEL").arg(STOCK).exec_async(&mut store).await?;
    let workers: Vec<_> = (0..4)
        .map(|_| tokio::spawn(work(store.clone(), Arc::clone(locks))))
        .collect();
    for worker in workers {
        worker.await??;
    }
    expect(
        amount(&mut store).await? == 20,
        "4 workers, woken in turn, have added 5 each",
    )
}

async fn work(mut store: MultiplexedConnection, locks: Arc<FairLocks>) -> Outcome {
    for _ in 0..5 {
        // Nobody asks again before half of this lease is over unless woken, and by then it is too late.
        let lock = locks.acquire(LOCK, WAIT, Duration::from_mins(2)).await?;
        let before = amount(&mut store).await?;
        // Time enough for others to write, if they could.
        sleep(Duration::from_millis(2)).await;
        write(&mut store, lock.token, before + 1).await?;
        lock.release().await?;
    }
    Ok(())
}

async fn whoever_gives_up_leaves_the_queue(
    store: &MultiplexedConnection,
    locks: &FairLocks,
) -> Outcome {
    let mut store = store.clone();
    let lock = locks.acquire(LOCK, WAIT, LEASE).await?;
    let late = locks.acquire(LOCK, Duration::from_millis(50), LEASE).await;
    let is_late = matches!(late, Err(LockError::NotInTime));
    expect(is_late, "not in time: somebody else has the lock")?;
    let cancelled = timeout(Duration::from_millis(200), locks.acquire(LOCK, WAIT, LEASE));
    expect(cancelled.await.is_err(), "cancelled while it waited")?;
    // CANCEL is under way.
    for _ in 0..1000 {
        let mut queue = cmd("FAIRLOCK.QUEUE");
        let queue: Vec<Value> = queue.arg(LOCK).query_async(&mut store).await?;
        if queue.is_empty() {
            println!("both have left the queue");
            lock.release().await?;
            return Ok(());
        }
        sleep(Duration::from_millis(10)).await;
    }
    expect(false, "both have left the queue")
}

async fn a_holder_past_its_lease_cannot_write(
    store: &MultiplexedConnection,
    locks: &FairLocks,
) -> Outcome {
    let mut store = store.clone();
    let old = locks.acquire(LOCK, WAIT, Duration::from_millis(50)).await?;
    // This holder sleeps. Meanwhile its lease ends, and the next one takes the lock.
    let new = locks.acquire(LOCK, WAIT, LEASE).await?;
    expect(new.token > old.token, "tokens grow")?;
    write(&mut store, new.token, 7).await?;
    new.release().await?;
    let refusal = write(&mut store, old.token, 9).await.err();
    let is_stale = refusal.is_some_and(|error| error.code() == Some("STALE"));
    expect(is_stale, "the store refuses the old token")?;
    let is_lost = matches!(old.release().await, Err(LockError::Lost));
    expect(is_lost, "and the release tells that the lock was lost")?;
    expect(amount(&mut store).await? == 7, "the newer value stays")
}

async fn a_wait_outlives_the_timeout(
    client: &Client,
    store: &MultiplexedConnection,
    locks: &FairLocks,
) -> Outcome {
    take_for_three_seconds(store).await?;
    locks.acquire(LOCK, WAIT, LEASE).await?.release().await?;
    println!("ENQUEUE waits longer than the timeout");
    take_for_three_seconds(store).await?;
    drop(session_lock(client, LOCK, WAIT, LEASE).await?);
    println!("and so does a session's connection");
    take_for_three_seconds(store).await?;
    let config = AsyncConnectionConfig::new().set_response_timeout(Some(TIMEOUT));
    let mut hasty = client
        .get_multiplexed_async_connection_with_config(&config)
        .await?;
    let mut acquire = cmd("FAIRLOCK.ACQUIRE");
    let gives_up = acquire.arg(LOCK).arg("*").exec_async(&mut hasty).await;
    expect(
        gives_up.is_err_and(|error| error.is_timeout()),
        "a blocking call on an ordinary connection gives up",
    )
}

async fn take_for_three_seconds(store: &MultiplexedConnection) -> RedisResult<()> {
    let mut acquire = cmd("FAIRLOCK.ACQUIRE");
    acquire.arg(LOCK).arg("somebody").arg("LEASE").arg(3000);
    // The one before may have let go of it a moment ago; it is handed on then.
    acquire.arg("WAIT").arg(1000);
    acquire.exec_async(&mut store.clone()).await
}

async fn a_session_ends_with_its_connection(client: &Client, locks: &FairLocks) -> Outcome {
    let mut session = session_lock(client, LOCK, WAIT, Duration::from_mins(1)).await?;
    let mut renew = cmd("FAIRLOCK.RENEW");
    let renewed: u64 = renew.arg(LOCK).arg("*").query_async(&mut session).await?;
    expect(renewed == 60_000, "the session holds")?;
    let start = Instant::now();
    tokio::spawn(async move {
        sleep(Duration::from_millis(200)).await;
        drop(session); // As when the process dies: nobody releases.
    });
    locks.acquire(LOCK, WAIT, LEASE).await?.release().await?;
    let waited = start.elapsed();
    expect(
        waited >= Duration::from_millis(150),
        "the next one waits as long as the connection is open",
    )?;
    expect(
        waited < Duration::from_secs(20),
        "then it has the lock at once, not when a minute's lease ends",
    )
}

async fn amount(store: &mut MultiplexedConnection) -> RedisResult<i64> {
    let mut get = cmd("HGET");
    let amount: Option<i64> = get.arg(STOCK).arg("amount").query_async(store).await?;
    Ok(amount.unwrap_or(0))
}

async fn write(store: &mut MultiplexedConnection, token: i64, amount: i64) -> RedisResult<()> {
    Script::new(CONDITIONAL_WRITE)
        .key(STOCK)
        .arg(token)
        .arg(amount)
        .invoke_async(store)
        .await
}

fn expect(is_so: bool, what: &str) -> Outcome {
    if !is_so {
        return Err(format!("not so: {what}").into());
    }
    println!("{what}");
    Ok(())
}
