//! A connection of the package's own: to a server.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use redis::aio::MultiplexedConnection;
use redis::io::tcp::socket2::TcpKeepalive;
use redis::{AsyncConnectionConfig, Client, ConnectionInfo, PushKind, Value};
use tokio::sync::{Notify, watch};

use crate::core::words;
use crate::error::{Failure, Outcome};
use crate::options::ms;
use crate::scripts::{self, Native, Server};

/// Clones share the connection; it closes when the last is dropped.
#[derive(Clone)]
pub(crate) struct Line {
    connection: MultiplexedConnection,
    address: Arc<str>,
    ended: watch::Receiver<bool>,
    /// The server must not be asked any more.
    gone: watch::Receiver<bool>,
    native: Arc<Native>,
    server: Arc<Server>,
    /// It uses scripts while the server's number of loads is this.
    missed_at: Arc<AtomicUsize>,
    /// A message has come, or none can come any more.
    woken: Arc<Notify>,
}

/// The confirmation by replicas that a write needs.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Sync {
    /// Zero: they are not asked.
    pub(crate) timeout: Duration,
    /// At least this many, and one if any is connected.
    pub(crate) least: usize,
}

/// A command's reply, and whether it counts; or why replicas could not be asked.
pub(crate) struct Reply {
    pub(crate) value: Value,
    pub(crate) is_confirmed: Outcome<bool>,
}

/// A command to send, or its reply.
type Call = std::result::Result<Vec<String>, Outcome<Value>>;

impl Line {
    /// RESP3, because only there the library reports the end of an idle connection; `broken` is told as well.
    pub(crate) async fn open(
        info: ConnectionInfo,
        gone: Option<watch::Receiver<bool>>,
        broken: Arc<Notify>,
        native: Arc<Native>,
        server: Arc<Server>,
        longest: Duration,
    ) -> Outcome<Self> {
        let address: Arc<str> = info.addr().to_string().into();
        let redis = info
            .redis_settings()
            .clone()
            .set_protocol(redis::ProtocolVersion::RESP3);
        let tcp = info.tcp_settings().clone().set_nodelay(true);
        let tcp = tcp.set_keepalive(TcpKeepalive::new().with_time(Duration::from_mins(1)));
        let (end, ended) = watch::channel(false);
        let woken = Arc::<Notify>::default();
        let message = woken.clone();
        let config = AsyncConnectionConfig::new()
            .set_connection_timeout(Some(longest))
            .set_response_timeout(None)
            .set_push_sender(move |push: redis::PushInfo| {
                match push.kind {
                    PushKind::Disconnection => {
                        end.send_replace(true);
                        broken.notify_one();
                    }
                    // The last comes when the slot of a channel has moved away.
                    PushKind::Message | PushKind::SMessage | PushKind::SUnsubscribe => {
                        message.notify_one();
                    }
                    _ => (),
                }
                Ok::<_, redis::aio::SendError>(())
            });
        let opening = Box::pin(async {
            let client = Client::open(info.set_redis_settings(redis).set_tcp_settings(tcp))?;
            client
                .get_multiplexed_async_connection_with_config(&config)
                .await
        });
        let connection = match tokio::time::timeout(longest, opening).await {
            Ok(Ok(connection)) => connection,
            Ok(Err(error)) => return Err(Failure::of(&error, &address)),
            Err(_) => {
                return Err(Failure::Broken(format!("{address}: no connection in time")));
            }
        };
        Ok(Self {
            connection,
            address,
            gone: gone.unwrap_or_else(|| ended.clone()),
            ended,
            native,
            server,
            missed_at: Arc::new(usize::MAX.into()),
            woken,
        })
    }

    /// A command; `None`: without a time limit.
    pub(crate) async fn call(
        &mut self,
        words: &[String],
        longest: Option<Duration>,
    ) -> Outcome<Value> {
        let mut values = self.run(std::slice::from_ref(&words), longest).await?;
        values.pop().unwrap_or_else(|| Err(self.broken("no reply")))
    }

    /// Commands one after another, each with an outcome of its own. Those of the module go as scripts to a server
    /// without it.
    pub(crate) async fn run(
        &mut self,
        all: &[&[String]],
        longest: Option<Duration>,
    ) -> Outcome<Vec<Outcome<Value>>> {
        let as_script = |words: &[String]| scripts::translated(words).map_err(Err);
        if self.is_by_scripts() {
            let calls = all.iter().map(|words| as_script(words)).collect();
            return self.run_scripts(calls, longest).await;
        }
        let replies = self.send(all, longest).await?;
        let is_denied = |reply: &Outcome<Value>| reply.as_ref().is_err_and(Failure::is_denied);
        let is_out_of_reach = |reply: &Outcome<Value>| {
            is_denied(reply) || reply.as_ref().is_err_and(Failure::is_no_module)
        };
        if !replies.iter().any(is_out_of_reach) {
            if all.iter().any(|words| scripts::is_command(words)) {
                self.native.found();
                self.server.found();
            }
            return Ok(replies);
        }
        // A user may lack INFO alone.
        let is_info = |words: &[String]| words.first().is_some_and(|word| word == "FAIRLOCK.INFO");
        let mut both = all.iter().zip(&replies);
        if !both.all(|(words, reply)| !is_out_of_reach(reply) || is_denied(reply) && is_info(words))
        {
            if !self
                .native
                .missed(&self.address, replies.iter().any(is_denied))
            {
                return Ok(replies);
            }
            self.missed_at
                .store(self.server.missed(), Ordering::Relaxed);
        }
        let calls = all.iter().zip(replies).map(|(words, reply)| {
            if !is_out_of_reach(&reply) {
                return Err(reply);
            }
            match as_script(words) {
                // What no script can do is what the user may not.
                Err(_) if is_denied(&reply) => Err(reply),
                call => call,
            }
        });
        self.run_scripts(calls.collect(), longest).await
    }

    /// Calls of scripts, with their text where the server does not know them yet.
    async fn run_scripts(
        &mut self,
        calls: Vec<Call>,
        longest: Option<Duration>,
    ) -> Outcome<Vec<Outcome<Value>>> {
        let replies = self.send_calls(&calls, longest).await?;
        let is_new = |reply: &Outcome<Value>| {
            let failure = reply.as_ref().err();
            failure.is_some_and(|failure| failure.is("NOSCRIPT"))
        };
        let again = calls
            .into_iter()
            .zip(replies)
            .map(|(call, reply)| match call {
                Ok(words) if is_new(&reply) => Ok(scripts::with_text(words)),
                _ => Err(reply),
            });
        let again: Vec<Call> = again.collect();
        self.send_calls(&again, longest).await
    }

    /// Merges the replies to the sent ones with the others.
    async fn send_calls(
        &mut self,
        calls: &[Call],
        longest: Option<Duration>,
    ) -> Outcome<Vec<Outcome<Value>>> {
        let words = calls.iter().filter_map(|call| call.as_deref().ok());
        let words: Vec<&[String]> = words.collect();
        let mut sent = Vec::new();
        if !words.is_empty() {
            sent = self.send(&words, longest).await?;
        }
        let (mut sent, none) = (sent.into_iter(), self.broken("no reply"));
        let replies = calls.iter().map(|call| match call {
            Ok(_) => sent.next().unwrap_or_else(|| Err(none.clone())),
            Err(reply) => reply.clone(),
        });
        Ok(replies.collect())
    }

    async fn send(
        &mut self,
        all: &[&[String]],
        longest: Option<Duration>,
    ) -> Outcome<Vec<Outcome<Value>>> {
        let (this, late) = (self.clone(), self.broken("no answer in time"));
        let ended = async {
            this.ended().await;
            Err(this.broken("the connection has ended"))
        };
        let address = self.address.clone();
        let replies = async {
            let mut pipeline = redis::pipe();
            for words in all {
                pipeline.cmd(&words[0]).arg(&words[1..]);
            }
            let replies = self
                .connection
                .send_packed_commands(&pipeline, 0, all.len());
            let replies = replies.await.map_err(|error| Failure::of(&error, &address));
            let own = |value: Value| {
                value
                    .extract_error()
                    .map_err(|error| Failure::of(&error, &address))
            };
            Ok(replies?.into_iter().map(own).collect())
        };
        let replies = async {
            tokio::select! {
                biased;
                replies = replies => replies,
                ended = ended => ended,
            }
        };
        match longest {
            None => replies.await,
            Some(longest) => tokio::time::timeout(longest, replies)
                .await
                .unwrap_or(Err(late)),
        }
    }

    /// Commands, with confirmation by replicas. WAIT covers the writes of this connection, and grants while it was
    /// blocked; ROLE tells how many to wait for.
    pub(crate) async fn exchange(
        &mut self,
        all: &[(Vec<String>, Sync)],
        longest: Option<Duration>,
        at_once: Duration,
    ) -> Outcome<Vec<Outcome<Reply>>> {
        let role = vec!["ROLE".to_owned()];
        let mut words: Vec<&[String]> = all.iter().map(|(words, _)| &words[..]).collect();
        let is_wanted = all.iter().any(|(_, sync)| !sync.timeout.is_zero());
        if is_wanted {
            words.push(&role);
        }
        let mut values = self.run(&words, longest).await?;
        let role = values.pop_if(|_| is_wanted);
        let has_changed = |value: &Outcome<Value>, sync: &Sync| {
            matches!(value, Ok(Value::Int(_))) && !sync.timeout.is_zero()
        };
        let changed = values.iter().zip(all);
        let changed = changed.filter(|(value, (_, sync))| has_changed(value, sync));
        let changed: Vec<Sync> = changed.map(|(_, (_, sync))| *sync).collect();
        let state = match role {
            Some(role) if !changed.is_empty() => self.confirm(role, &changed, at_once).await,
            _ => Ok((0, 0)),
        };
        if let Err(failure) = &state
            && failure.is_broken()
        {
            return Err(failure.clone());
        }
        let outcomes = values.into_iter().zip(all).map(|(value, (_, sync))| {
            let is_confirmed = if has_changed(&value, sync) {
                let state = state.clone();
                state.map(|(connected, confirmed)| confirmed >= sync.least.max(connected.min(1)))
            } else {
                Ok(true)
            };
            let value = value?;
            Ok(Reply {
                value,
                is_confirmed,
            })
        });
        Ok(outcomes.collect())
    }

    /// How many replicas are connected, and how many have confirmed.
    async fn confirm(
        &mut self,
        role: Outcome<Value>,
        changed: &[Sync],
        at_once: Duration,
    ) -> Outcome<(usize, usize)> {
        let connected = match role {
            Err(failure) if failure.is_unknown() => 0, // A service with replicas of its own.
            role => items(&role?).get(2).map_or(0, |all| items(all).len()),
        };
        let least = changed.iter().map(|sync| sync.least).max();
        let wanted = connected.max(least.unwrap_or(0));
        if wanted == 0 {
            return Ok((0, 0));
        }
        let timeout = changed.iter().map(|sync| sync.timeout).max();
        let timeout = timeout.unwrap_or_default();
        let words = ["WAIT".to_owned(), wanted.to_string(), ms(timeout)];
        let longest = timeout.saturating_add(at_once);
        match self.call(&words, Some(longest)).await? {
            Value::Int(count) => Ok((connected, count.try_into().unwrap_or_default())),
            _ => Ok((connected, 0)),
        }
    }

    /// Whether it leads to a master, by the server's ROLE. Without the permission, the first refusal tells.
    pub(crate) async fn is_master(&mut self, longest: Duration) -> Outcome<bool> {
        match self.call(&["ROLE".to_owned()], Some(longest)).await {
            Ok(role) => Ok(items(&role)
                .first()
                .is_some_and(|first| text(first) == "master")),
            Err(failure) if failure.is("NOPERM") => Ok(true),
            Err(failure) => Err(failure),
        }
    }

    /// Whether the server is known not to have the module.
    pub(crate) fn is_by_scripts(&self) -> bool {
        self.missed_at.load(Ordering::Relaxed) == self.server.loads()
    }

    /// Listens on a channel, until [`Self::unsubscribe`]. A server from before Redis 7.0 knows no channels in slots.
    pub(crate) async fn subscribe(
        &mut self,
        channel: &str,
        is_cluster: bool,
        longest: Duration,
    ) -> Outcome<&'static str> {
        if is_cluster {
            match self
                .call(&words(["SSUBSCRIBE", channel]), Some(longest))
                .await
            {
                Err(failure) if failure.is("ERR") => (),
                other => return other.map(|_| "SUNSUBSCRIBE"),
            }
        }
        let all = words(["SUBSCRIBE", channel]);
        self.call(&all, Some(longest)).await.map(|_| "UNSUBSCRIBE")
    }

    /// Waits for a message.
    pub(crate) async fn woken(&self) {
        self.woken.notified().await;
    }

    fn broken(&self, what: &str) -> Failure {
        Failure::Broken(format!("{}: {what}", self.address))
    }

    /// Waits until the connection has ended, or must not be used any more.
    pub(crate) async fn ended(&self) {
        let (mut ended, mut gone) = (self.ended.clone(), self.gone.clone());
        // An error: the connection is gone, and the sender with it.
        tokio::select! {
            _ = ended.wait_for(|is_so| *is_so) => (),
            _ = gone.wait_for(|is_so| *is_so) => (),
        }
    }

    pub(crate) fn is_open(&self) -> bool {
        let is_driven = self.ended.has_changed().is_ok(); // False once the runtime has ended.
        is_driven && !*self.ended.borrow() && !*self.gone.borrow()
    }
}

pub(crate) fn items(value: &Value) -> &[Value] {
    match value {
        Value::Array(items) => items,
        _ => &[],
    }
}

pub(crate) fn text(value: &Value) -> String {
    redis::from_redis_value_ref(value).unwrap_or_default()
}

/// Work of callers one after another, in the order in which they came. Callers that waited for one that failed share
/// its failure: a silent server is not asked by each of them in turn.
#[derive(Default)]
pub(crate) struct Turn(tokio::sync::Mutex<Option<(Instant, Failure)>>);

impl Turn {
    pub(crate) async fn take<T>(&self, work: impl Future<Output = Outcome<T>>) -> Outcome<T> {
        let came = Instant::now();
        let mut last = self.0.lock().await;
        if let Some((at, failure)) = &*last
            && *at >= came
        {
            return Err(failure.clone());
        }
        let done = work.await;
        if let Err(failure) = &done {
            *last = Some((Instant::now(), failure.clone()));
        }
        done
    }
}

/// One connection for many callers, opened when the first needs it.
#[derive(Default)]
pub(crate) struct Shared {
    line: Mutex<Option<Line>>,
    turn: Turn,
}

impl Shared {
    pub(crate) async fn line(&self, opening: impl Future<Output = Outcome<Line>>) -> Outcome<Line> {
        if let Some(line) = self.open_line() {
            return Ok(line);
        }
        let open = async {
            if let Some(line) = self.open_line() {
                return Ok(line);
            }
            let line = opening.await?;
            self.set(Some(line.clone()));
            Ok(line)
        };
        self.turn.take(open).await
    }

    fn set(&self, line: Option<Line>) {
        *self.line.lock().unwrap_or_else(PoisonError::into_inner) = line;
    }

    pub(crate) fn clear(&self) {
        self.set(None);
    }

    pub(crate) fn current(&self) -> Option<Line> {
        self.line
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
    }

    pub(crate) fn open_line(&self) -> Option<Line> {
        self.current().filter(Line::is_open)
    }
}
