//! The driver of the Rust package (README.md beside): driver rust-tokio|rust-blocking.

use std::collections::HashMap;
use std::error::Error as _;
use std::sync::{Arc, LazyLock, Mutex, MutexGuard};
use std::time::Duration;

use fairlock_client::{Error, Event, Kind, Module, Options, Server};
use redis::sentinel::{SentinelClientBuilder, SentinelServerType};
use redis::{ClientTlsConfig, ConnectionAddr, TlsCertificates};
use serde_json::{Value, json};
use tokio::sync::oneshot;

type Table<T> = LazyLock<Mutex<HashMap<u64, T>>>;
static INSIDE: Table<oneshot::Sender<bool>> = LazyLock::new(Mutex::default);
static CALLS: Table<tokio::task::AbortHandle> = LazyLock::new(Mutex::default);

fn of<T>(table: &Table<T>) -> MutexGuard<'_, HashMap<u64, T>> {
    table.lock().unwrap()
}

/// What is not ok.
enum Not {
    Done(Error),
    Body(Option<Error>),
    Applicable(String),
    Known,
    Continued,
}

impl From<Error> for Not {
    fn from(error: Error) -> Self {
        Self::Done(error)
    }
}

fn say(line: &Value) {
    println!("{line}"); // It is flushed at the end of a line.
}

fn number(request: &Value, field: &str) -> u64 {
    request[field].as_u64().unwrap()
}

/// If the option's type has this value.
fn typed<T>(name: &str, value: Option<T>) -> Result<T, Not> {
    value.ok_or_else(|| Not::Applicable(format!("{name}: Rust's type does not have this")))
}

fn seconds(name: &str, value: &Value) -> Result<Duration, Not> {
    let number = typed(name, value.as_f64().filter(|number| *number >= 0.0))?;
    Ok(Duration::try_from_secs_f64(number).unwrap_or(Duration::MAX))
}

fn options(base: &Options, given: &Value, is_lock: bool) -> Result<Options, Not> {
    let mut all = base.clone();
    for (name, value) in given.as_object().unwrap() {
        match (name.as_str(), is_lock) {
            ("wait", _) if value.is_null() => all.wait = None,
            ("wait", _) => all.wait = Some(seconds(name, value)?),
            ("lease", _) => all.lease = seconds(name, value)?,
            ("patience", _) => all.patience = seconds(name, value)?,
            ("sync_timeout", _) => all.sync_timeout = seconds(name, value)?,
            ("retry_timeout", false) => all.retry_timeout = seconds(name, value)?,
            ("command_timeout", false) => all.command_timeout = seconds(name, value)?,
            ("release_timeout", false) => all.release_timeout = seconds(name, value)?,
            ("renew", _) => all.renew = typed(name, value.as_bool())?,
            ("session", _) => all.session = typed(name, value.as_bool())?,
            ("reentrant", _) => all.reentrant = typed(name, value.as_bool())?,
            ("shared", _) => all.shared = typed(name, value.as_bool())?,
            ("owner", _) => all.owner = Some(typed(name, value.as_str())?.into()),
            ("limit", _) => all.limit = Some(typed(name, value.as_u64().and_then(|it| it.try_into().ok()))?),
            ("min_replicas", _) => all.min_replicas = Some(typed(name, value.as_u64())? as usize),
            ("module", false) => all.module = Module::Required,
            _ => return Err(Not::Applicable(format!("there is no option {name}"))),
        }
    }
    Ok(all)
}

fn cause_of(error: &Error) -> Option<String> {
    let Kind::LockLost(cause) = error.kind else { return None };
    Some(format!("{cause:?}").to_lowercase())
}

fn hooks(locks: u64, is_telling: bool, all: &mut Options) {
    let hook = |which: &'static str| -> Option<fairlock_client::Hook> {
        Some(Arc::new(move |event: &Event| {
            assert!(is_telling, "a hook");
            let cause = event.cause.map(|cause| format!("{cause:?}").to_lowercase());
            let (waited, held) = (event.waited.map(|it| it.as_secs_f64()), event.held.map(|it| it.as_secs_f64()));
            say(&json!({"event": "hook", "locks": locks, "hook": which, "name": event.name, "owner": event.owner,
                "token": event.token, "waited": waited, "held": held, "cause": cause}));
        }))
    };
    (all.on_wait, all.on_acquired, all.on_lost, all.on_released) = (hook("wait"), hook("acquired"), hook("lost"), hook("released"));
}

/// The library's client; what it cannot do is not applicable.
fn server(client: &Value) -> Result<Server, Not> {
    typed("its client has no read timeout", client["timeout"].is_null().then_some(()))?;
    let [user, password] = ["user", "password"].map(|field| client[field].as_str());
    let at: Vec<_> = typed("no client", client["at"].as_array())?.iter().map(|at| at.as_str().unwrap()).collect();
    let file = |name: &str| client["tls"][name].as_str().map(|path| std::fs::read(path).unwrap());
    let tls = file("ca").map(|root| TlsCertificates {
        client_tls: Some(ClientTlsConfig { client_cert: file("cert").unwrap(), client_key: file("key").unwrap() }),
        root_cert: Some(root),
    });
    let scheme = if tls.is_some() { "rediss" } else { "redis" };
    let access = password.map(|password| format!("{}:{password}@", user.unwrap_or_default())).unwrap_or_default();
    let urls: Vec<_> = at.iter().map(|at| format!("{scheme}://{access}{at}")).collect();
    Ok(match client["kind"].as_str().unwrap() {
        "sentinel" => {
            let sentinels = at.iter().map(|at| {
                let (host, port) = at.split_once(':').unwrap();
                let (host, port) = (host.to_owned(), port.parse().unwrap());
                if tls.is_none() { return ConnectionAddr::Tcp(host, port) }
                ConnectionAddr::TcpTls { host, port, insecure: false, tls_params: None }
            });
            let mut made = SentinelClientBuilder::new(sentinels, "locks", SentinelServerType::Master).unwrap();
            if let Some(password) = password {
                made = made.set_client_to_redis_username(user.unwrap()).set_client_to_redis_password(password);
            }
            if let Some(tls) = tls {
                made = made.set_client_to_redis_tls_mode(redis::TlsMode::Secure);
                made = made.set_client_to_redis_certificates(tls.clone()).set_client_to_sentinel_certificates(tls);
            }
            made.build().unwrap().into()
        }
        "cluster" => {
            let mut made = redis::cluster::ClusterClient::builder(urls).use_protocol(redis::ProtocolVersion::RESP3);
            if let Some(tls) = tls {
                made = made.certs(tls);
            }
            if let Some(map) = client["map"].as_object() {
                let node = |text: &str| text.parse::<redis::cluster::NodeAddress>().unwrap();
                made = made.node_address_map(map.iter().map(|(from, to)| (node(from), node(to.as_str().unwrap()))).collect());
            }
            made.build().unwrap().into()
        }
        _ => match tls {
            Some(tls) => redis::Client::build_with_tls(urls[0].as_str(), tls).unwrap().into(),
            None => redis::Client::open(urls[0].as_str()).unwrap().into(),
        },
    })
}

/// The operations of a flavour, and what stands behind each call.
macro_rules! flavour {
    ($name:ident, $locks:ty, $guard:ty, [$($wait:tt)*]) => {
        mod $name {
            use super::*;

            static LOCKS: Table<(Arc<$locks>, Options)> = LazyLock::new(Mutex::default);
            static HOLDS: Table<Arc<$guard>> = LazyLock::new(Mutex::default);

            fn held(id: u64) -> Arc<$guard> {
                of(&HOLDS)[&id].clone()
            }

            async fn acquire(request: &Value, options_of: &str) -> Result<Option<Arc<$guard>>, Not> {
                let (locks, base) = of(&LOCKS)[&number(request, "locks")].clone();
                let name = typed("name", request["name"].as_str())?;
                let all = options(&base, &request[options_of], true)?;
                if request["try"] == json!(true) {
                    return Ok(locks.try_acquire(name, all)$($wait)*?.map(Arc::new));
                }
                Ok(Some(Arc::new(locks.acquire(name, all)$($wait)*?)))
            }

            async fn block(id: u64, request: &Value) -> Result<Value, Not> {
                let held = acquire(request, "options").await?.unwrap();
                let (leave, left) = oneshot::channel();
                of(&HOLDS).insert(id, held.clone());
                of(&INSIDE).insert(id, leave);
                let mut inner = None;
                if !request["inner"].is_null() {
                    let again = acquire(request, "inner").await;
                    let Ok(Some(again)) = again else {
                        held.release()$($wait)*?;
                        return again.map(|_| json!({}));
                    };
                    inner = Some(again.token());
                    again.release()$($wait)*?;
                }
                say(&json!({"event": "inside", "id": id, "token": held.token(), "owner": held.owner(), "inner": inner}));
                let is_failing = left.await.unwrap();
                let released = held.release()$($wait)*;
                if is_failing { Err(Not::Body(released.err())) } else { Ok(released.map(|()| json!({}))?) }
            }

            pub async fn operate(id: u64, op: &str, request: &Value) -> Result<Value, Not> {
                match op {
                    "new" => {
                        let mut all = options(&Options::default(), &request["options"], false)?;
                        if let Some(kind) = request["hooks"].as_str() {
                            hooks(id, kind == "tell", &mut all);
                        }
                        let made = <$locks>::with(server(&request["client"])?, all.clone())?;
                        of(&LOCKS).insert(id, (Arc::new(made), all));
                    }
                    "acquire" | "abandon" => {
                        let Some(held) = acquire(request, "options").await? else { return Ok(json!({})) };
                        let answer = json!({"token": held.token(), "owner": held.owner()});
                        if op == "acquire" { // Abandoned, it is dropped.
                            of(&HOLDS).insert(id, held);
                        }
                        return Ok(answer);
                    }
                    "block" => return block(id, request).await,
                    "leave" => of(&INSIDE).remove(&number(request, "block")).unwrap().send(request["fail"] == json!(true)).unwrap(),
                    "renew" => {
                        let held = held(number(request, "held"));
                        let lease = match &request["lease"] {
                            Value::Null => held.renew(None)$($wait)*?,
                            lease => held.renew(seconds("lease", lease)?)$($wait)*?,
                        };
                        return Ok(json!({"lease": lease.as_secs_f64()}));
                    }
                    "release" => held(number(request, "held")).release()$($wait)*?,
                    "lost" => {
                        let lost = held(number(request, "held")).lost(seconds("wait", &request["wait"])?)$($wait)*;
                        return Ok(json!({"cause": lost.err().as_ref().and_then(cause_of)}));
                    }
                    "cancel" => match of(&CALLS).get(&number(request, "call")) {
                        Some(call) => call.abort(),
                        None => return Err(Not::Applicable("a thread that waits cannot be cancelled".to_owned())),
                    },
                    "info" => {
                        let locks = of(&LOCKS)[&number(request, "locks")].0.clone();
                        let info = locks.info(request["name"].as_str().unwrap())$($wait)*?;
                        return Ok(json!({"owner": info.owner, "holds": info.holds, "lease": info.lease.map(|it| it.as_secs_f64()),
                            "token": info.token, "session": info.session, "waiting": info.waiting, "holders": info.holders, "limit": info.limit}));
                    }
                    "native" => return Ok(json!({"native": of(&LOCKS)[&number(request, "locks")].0.native()})),
                    "close" => {
                        let (locks, _) = of(&LOCKS).remove(&number(request, "locks")).unwrap();
                        locks.close()$($wait)*?;
                    }
                    _ => return Err(Not::Known),
                }
                Ok(json!({}))
            }
        }
    };
}
flavour!(tasks, fairlock_client::aio::Locks, fairlock_client::aio::Held, [.await]);
flavour!(threads, fairlock_client::Locks, fairlock_client::Held, []);

fn answer(id: u64, op: &str, outcome: Result<Value, Not>) {
    let failed = |kind: &str, text: &str, error: Option<&Error>, also: Option<&Error>| {
        let (code, cause) = (error.and_then(|error| error.code.clone()), error.and_then(cause_of));
        let because = error.and_then(|error| error.source()).map(ToString::to_string);
        let also: Vec<_> = also.iter().map(ToString::to_string).collect();
        json!({"id": id, "failed": {"type": kind, "code": code, "text": text, "cause": cause, "because": because, "also": also}})
    };
    say(&match outcome {
        Ok(value) => json!({"id": id, "ok": value}),
        Err(Not::Applicable(why)) => json!({"id": id, "na": why}),
        Err(Not::Known) => json!({"id": id, "unknown": op}),
        Err(Not::Continued) => failed("Cancelled", "", None, None),
        Err(Not::Body(also)) => failed("Body", "the body's own", None, also.as_ref()),
        Err(Not::Done(error)) => failed(format!("{:?}", error.kind).split('(').next().unwrap(), &error.to_string(), Some(&error), None),
    });
}

fn main() {
    let is_async = std::env::args().nth(1).as_deref() == Some("rust-tokio");
    let runtime = tokio::runtime::Runtime::new().unwrap();
    for line in std::io::stdin().lines() {
        let request: Value = serde_json::from_str(&line.unwrap()).unwrap();
        let (id, op) = (number(&request, "id"), request["op"].as_str().unwrap().to_owned());
        if is_async {
            let named = op.clone();
            let task = runtime.spawn(async move { tasks::operate(id, &named, &request).await });
            of(&CALLS).insert(id, task.abort_handle());
            runtime.spawn(async move { answer(id, &op, task.await.unwrap_or(Err(Not::Continued))) });
        } else {
            let runtime = runtime.handle().clone();
            std::thread::spawn(move || answer(id, &op, runtime.block_on(threads::operate(id, &op, &request))));
        }
    }
    std::process::exit(0); // Whatever is under way.
}
