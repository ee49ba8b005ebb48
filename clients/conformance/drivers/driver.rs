//! The driver of the Rust package (README.md beside): driver rust-tokio|rust-blocking.

use std::collections::HashMap;
use std::error::Error as _;
use std::sync::{Arc, LazyLock, Mutex, MutexGuard};
use std::time::Duration;

use fairlock_client::{Error, Event, Hook, Kind, Module, Options, Server, aio};
use redis::sentinel::{SentinelClientBuilder, SentinelServerType};
use redis::{ClientTlsConfig, IntoConnectionInfo, TlsCertificates, TlsMode, cluster};
use serde_json::{Value, from_value, json};
use tokio::sync::mpsc;
use tokio::task::AbortHandle;

type Table<T> = LazyLock<Mutex<HashMap<u64, T>>>;
static INSIDE: Table<mpsc::UnboundedSender<Value>> = LazyLock::new(Mutex::default);
static CALLS: Table<AbortHandle> = LazyLock::new(Mutex::default);

fn of<T>(table: &Table<T>) -> MutexGuard<'_, HashMap<u64, T>> {
    table.lock().unwrap()
}

enum Failure {
    Package(Error),
    Other(&'static str, String),
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        Self::Package(error)
    }
}

/// The type does not have this value.
impl From<serde_json::Error> for Failure {
    fn from(error: serde_json::Error) -> Self {
        Self::Other("NotApplicable", error.to_string())
    }
}

fn say(line: &Value) {
    println!("{line}"); // It is flushed at the end of a line.
}

fn options(base: &Options, given: &Value) -> Result<Options, Failure> {
    let mut all = base.clone();
    macro_rules! set {
        ($($field:ident)*) => {
            for (name, value) in given.as_object().unwrap() {
                match name.as_str() {
                    $(stringify!($field) => all.$field = from_value(value.clone())?,)*
                    "owner" => all.owner = Some(value.as_str().unwrap().into()),
                    _ => all.module = Module::Required,
                }
            }
        };
    }
    set!(wait lease renew session reentrant shared limit sync_timeout min_replicas patience retry_timeout command_timeout release_timeout);
    Ok(all)
}

fn set_hooks(all: &mut Options, locks: u64, is_telling: bool) {
    let hook = |which: &'static str| -> Option<Hook> {
        Some(Arc::new(move |event: &Event| {
            assert!(is_telling, "a hook");
            let cause = event.cause.map(|cause| format!("{cause:?}"));
            say(
                &json!({"event": "hook", "locks": locks, "hook": which, "with": {
                    "name": event.name, "owner": event.owner, "token": event.token,
                    "waited": event.waited, "held": event.held, "cause": cause,
                }}),
            );
        }))
    };
    (all.on_wait, all.on_acquired) = (hook("wait"), hook("acquired"));
    (all.on_lost, all.on_released) = (hook("lost"), hook("released"));
}

fn cause_of(error: &Error) -> Option<String> {
    match error.kind {
        Kind::LockLost(cause) => Some(format!("{cause:?}")),
        _ => None,
    }
}

fn tls(client: &Value) -> Option<TlsCertificates> {
    let file = |name: &str| Some(std::fs::read(client["tls"][name].as_str()?).unwrap());
    let (client_cert, client_key) = (file("cert")?, file("key")?);
    let client_tls = Some(ClientTlsConfig {
        client_cert,
        client_key,
    });
    Some(TlsCertificates {
        client_tls,
        root_cert: file("ca"),
    })
}

fn server(client: &Value) -> Result<Server, Failure> {
    if !client["timeout"].is_null() {
        let why = "its client has no read timeout".to_owned();
        return Err(Failure::Other("NotApplicable", why));
    }
    let (tls, password) = (tls(client), client["password"].as_str());
    let user = client["user"].as_str().unwrap_or_default();
    let access = password
        .map(|it| format!("{user}:{it}@"))
        .unwrap_or_default();
    let scheme = if tls.is_some() { "rediss" } else { "redis" };
    let at: Vec<String> = from_value(client["at"].clone())?;
    let urls: Vec<_> = at
        .iter()
        .map(|at| format!("{scheme}://{access}{at}"))
        .collect();
    Ok(match client["kind"].as_str().unwrap() {
        "sentinel" => {
            let address =
                |url: &String| url.as_str().into_connection_info().unwrap().addr().clone();
            let sentinels = urls.iter().map(address);
            let mut made =
                SentinelClientBuilder::new(sentinels, "locks", SentinelServerType::Master).unwrap();
            if let Some(password) = password {
                made = made
                    .set_client_to_redis_username(user)
                    .set_client_to_redis_password(password);
            }
            if let Some(tls) = tls {
                made = made.set_client_to_redis_tls_mode(TlsMode::Secure);
                made = made
                    .set_client_to_redis_certificates(tls.clone())
                    .set_client_to_sentinel_certificates(tls);
            }
            made.build().unwrap().into()
        }
        "cluster" => {
            let mut made =
                cluster::ClusterClient::builder(urls).use_protocol(redis::ProtocolVersion::RESP3);
            if let Some(tls) = tls {
                made = made.certs(tls);
            }
            if let Some(map) = client["map"].as_object() {
                let node = |text: &str| text.parse::<cluster::NodeAddress>().unwrap();
                let map = map
                    .iter()
                    .map(|(from, to)| (node(from), node(to.as_str().unwrap())));
                made = made.node_address_map(map.collect());
            }
            made.build().unwrap().into()
        }
        _ => match tls {
            Some(tls) => redis::Client::build_with_tls(urls[0].as_str(), tls)
                .unwrap()
                .into(),
            None => redis::Client::open(urls[0].as_str()).unwrap().into(),
        },
    })
}

/// The operations of a flavour: its types, and what stands behind each call.
macro_rules! flavour {
    ($name:ident, $locks:ty, $held:ty, [$($wait:tt)*]) => {
        mod $name {
            use super::*;

            static LOCKS: Table<(Arc<$locks>, Options)> = LazyLock::new(Mutex::default);
            static HOLDS: Table<Arc<$held>> = LazyLock::new(Mutex::default);

            pub async fn operate(request: &Value) -> Result<Value, Failure> {
                let number = |field: &str| request[field].as_u64().unwrap_or_default();
                let (id, op) = (number("id"), request["op"].as_str().unwrap());
                let locks = of(&LOCKS).get(&number("locks")).cloned();
                let held = of(&HOLDS).get(&number("held")).cloned();
                match (op, locks, held) {
                    ("new", ..) => {
                        let mut all = options(&Options::default(), &request["options"])?;
                        if let Some(kind) = request["hooks"].as_str() {
                            set_hooks(&mut all, id, kind == "tell");
                        }
                        let made = <$locks>::with(server(&request["client"])?, all.clone())?;
                        of(&LOCKS).insert(id, (Arc::new(made), all));
                    }
                    ("acquire" | "abandon" | "block", Some((locks, base)), _) => {
                        let (name, all) = (request["name"].as_str().unwrap(), options(&base, &request["options"])?);
                        let held = if request["try"] == true {
                            locks.try_acquire(name, all)$($wait)*?
                        } else {
                            Some(locks.acquire(name, all)$($wait)*?)
                        };
                        let Some(held) = held.map(Arc::new) else { return Ok(Value::Null) };
                        let mut answer = json!({"token": held.token(), "owner": held.owner()});
                        if op != "abandon" { // Else it is dropped.
                            of(&HOLDS).insert(id, held.clone());
                        }
                        if op != "block" {
                            return Ok(answer);
                        }
                        let (sender, mut inside) = mpsc::unbounded_channel();
                        of(&INSIDE).insert(id, sender);
                        (answer["event"], answer["id"]) = (json!("inside"), json!(id));
                        say(&answer);
                        let mut inner = Value::Null;
                        while inner["op"] != "leave" {
                            inner = inside.recv().await.unwrap();
                            super::answer(&inner, Box::pin(operate(&inner)).await);
                        }
                        let released = held.release()$($wait)*;
                        if inner["fail"] == true {
                            return Err(Failure::Other("Body", String::new()));
                        }
                        released?;
                    }
                    ("leave", ..) => {}
                    ("renew", _, Some(held)) => {
                        let lease: Option<Duration> = from_value(request["lease"].clone())?;
                        return Ok(json!({"lease": held.renew(lease)$($wait)*?}));
                    }
                    ("release", _, Some(held)) => held.release()$($wait)*?,
                    ("lost", _, Some(held)) => {
                        let longest: Duration = from_value(request["wait"].clone())?;
                        let lost = held.lost(longest)$($wait)*;
                        return Ok(json!({"cause": lost.err().as_ref().and_then(cause_of)}));
                    }
                    ("cancel", ..) => match of(&CALLS).get(&number("call")) {
                        Some(call) => call.abort(),
                        None => return Err(Failure::Other("NotApplicable", "a thread that waits cannot be cancelled".to_owned())),
                    },
                    ("info", Some((locks, _)), _) => {
                        let info = locks.info(request["name"].as_str().unwrap())$($wait)*?;
                        return Ok(json!({"owner": info.owner, "holds": info.holds, "lease": info.lease, "token": info.token,
                            "session": info.session, "waiting": info.waiting, "holders": info.holders, "limit": info.limit}));
                    }
                    ("native", Some((locks, _)), _) => return Ok(json!({"native": locks.native()})),
                    ("close", Some((locks, _)), _) => {
                        of(&LOCKS).remove(&number("locks"));
                        locks.close()$($wait)*?;
                    }
                    _ => return Err(Failure::Other("Unknown", op.to_owned())),
                }
                Ok(Value::Null)
            }
        }
    };
}
flavour!(tasks, aio::Locks, aio::Held, [.await]);
flavour!(threads, fairlock_client::Locks, fairlock_client::Held, []);

fn answer(request: &Value, outcome: Result<Value, Failure>) {
    let failed = match outcome {
        Ok(value) => return say(&json!({"id": request["id"], "ok": value})),
        Err(Failure::Other(kind, text)) => json!({"type": kind, "text": text}),
        Err(Failure::Package(error)) => {
            let kind = format!("{:?}", error.kind);
            json!({"type": kind.split('(').next(), "text": error.to_string(), "code": error.code,
                "cause": cause_of(&error), "because": error.source().map(ToString::to_string)})
        }
    };
    say(&json!({"id": request["id"], "failed": failed}));
}

fn main() {
    let is_async = std::env::args().nth(1).as_deref() == Some("rust-tokio");
    let runtime = tokio::runtime::Runtime::new().unwrap();
    for line in std::io::stdin().lines() {
        let request: Arc<Value> = Arc::new(serde_json::from_str(&line.unwrap()).unwrap());
        if let Some(block) = request["block"].as_u64() {
            of(&INSIDE)[&block].send(Value::clone(&request)).unwrap();
        } else if is_async {
            let its = request.clone();
            let task = runtime.spawn(async move { tasks::operate(&its).await });
            of(&CALLS).insert(request["id"].as_u64().unwrap(), task.abort_handle());
            runtime.spawn(async move {
                let cancelled = Err(Failure::Other("Cancelled", String::new()));
                answer(&request, task.await.unwrap_or(cancelled));
            });
        } else {
            let runtime = runtime.handle().clone();
            std::thread::spawn(move || {
                answer(&request, runtime.block_on(threads::operate(&request)))
            });
        }
    }
    std::process::exit(0); // Whatever is under way.
}
