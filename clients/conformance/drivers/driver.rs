//! The driver of the Rust package (README.md beside): driver rust-tokio|rust-blocking.

use std::collections::HashMap;
use std::error::Error as _;
use std::sync::{Arc, Mutex, OnceLock};
use std::time::Duration;

use fairlock_client::locks::{Flavour, Held, Locks, Tasks, Threads};
use fairlock_client::{Error, Event, Hook, Module, Options, Result as Outcome, Server};
use redis::cluster::{ClusterClient, NodeAddress};
use redis::sentinel::{SentinelClientBuilder, SentinelServerType};
use redis::{Client, ClientTlsConfig, IntoConnectionInfo as _, TlsCertificates, TlsMode};
use serde_json::{Value, from_value, json};
use tokio::runtime::Runtime;
use tokio::sync::Notify;
use tokio::task::{AbortHandle, JoinHandle};

/// How the calls of a flavour are carried out, and a request.
trait Driven: Flavour {
    fn end<T: Send + 'static>(call: Self::Of<T>) -> impl Future<Output = Outcome<T>> + Send;
    fn spawn(on: &Runtime, work: impl Future<Output = ()> + Send + 'static) -> JoinHandle<()>;
}

impl Driven for Tasks {
    fn end<T: Send + 'static>(call: Self::Of<T>) -> impl Future<Output = Outcome<T>> + Send {
        call
    }
    fn spawn(on: &Runtime, work: impl Future<Output = ()> + Send + 'static) -> JoinHandle<()> {
        on.spawn(work)
    }
}

impl Driven for Threads {
    async fn end<T: Send + 'static>(call: Self::Of<T>) -> Outcome<T> {
        call
    }
    fn spawn(on: &Runtime, work: impl Future<Output = ()> + Send + 'static) -> JoinHandle<()> {
        let handle = on.handle().clone();
        on.spawn_blocking(move || handle.block_on(work))
    }
}

fn say(line: &Value) {
    println!("{line}"); // It is flushed at the end of a line.
}

struct Failure(Value);

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        let because = error.source().map(ToString::to_string);
        Self(json!({
            "type": format!("{:?}", error.kind), "text": error.to_string(),
            "code": error.code, "because": because,
        }))
    }
}

fn options(mut all: Options, given: &Value) -> Options {
    macro_rules! set {
        ($($field:ident)*) => {
            for (name, value) in given.as_object().unwrap() {
                match name.as_str() {
                    $(stringify!($field) => all.$field = from_value(value.clone()).unwrap(),)*
                    "owner" => all.owner = value.as_str().map(Into::into),
                    _ => all.module = Module::Required,
                }
            }
        };
    }
    set!(wait lease renew session reentrant shared limit sync_timeout min_replicas patience retry_timeout command_timeout release_timeout);
    all
}

fn hook(new: &Value, which: &'static str) -> Option<Hook> {
    let (is_telling, id) = (new["hooks"].as_str()? == "tell", new["id"].clone());
    Some(Arc::new(move |event: &Event| {
        assert!(is_telling, "a hook");
        say(
            &json!({"event": "hook", "locks": id, "hook": which, "with": {
                "name": event.name, "owner": event.owner, "token": event.token, "waited": event.waited,
                "held": event.held, "cause": event.cause.map(|cause| format!("{cause:?}")),
            }}),
        );
    }))
}

fn server(to: &Value) -> Server {
    let file = |name| std::fs::read(to["tls"][name].as_str()?).ok();
    let tls = file("cert").map(|client_cert| TlsCertificates {
        root_cert: file("ca"),
        client_tls: file("key").map(|client_key| ClientTlsConfig {
            client_cert,
            client_key,
        }),
    });
    let urls: Vec<String> = from_value(to["urls"].clone()).unwrap();
    let url = urls[0].clone();
    match to["kind"].as_str().unwrap() {
        "sentinel" => {
            let info = |url: String| url.into_connection_info().unwrap();
            let at = urls.into_iter().map(|url| info(url).addr().clone());
            let master = SentinelServerType::Master;
            let mut made = SentinelClientBuilder::new(at, "locks", master).unwrap();
            if let Some(password) = to["password"].as_str() {
                made = made.set_client_to_redis_username(to["username"].as_str().unwrap());
                made = made.set_client_to_redis_password(password);
            }
            if let Some(tls) = tls {
                made = made.set_client_to_redis_tls_mode(TlsMode::Secure);
                made = made.set_client_to_redis_certificates(tls.clone());
                made = made.set_client_to_sentinel_certificates(tls);
            }
            made.build().unwrap().into()
        }
        "cluster" => {
            let mut made = ClusterClient::builder(urls).use_protocol(redis::ProtocolVersion::RESP3);
            if let Some(tls) = tls {
                made = made.certs(tls);
            }
            if let Some(map) = to["map"].as_object() {
                let node = |text: &str| text.parse::<NodeAddress>().unwrap();
                let pair = |(from, to): (&String, &Value)| (node(from), node(to.as_str().unwrap()));
                made = made.node_address_map(map.iter().map(pair).collect());
            }
            made.build().unwrap().into()
        }
        _ => match tls {
            Some(tls) => Client::build_with_tls(url, tls).unwrap().into(),
            None => Client::open(url).unwrap().into(),
        },
    }
}

/// A request, and what came of it.
struct Request<F: Flavour> {
    said: Value,
    locks: OnceLock<Locks<F>>,
    held: OnceLock<Held<F>>,
    left: Notify,
    task: OnceLock<AbortHandle>,
}

type Requests<F> = Arc<Mutex<HashMap<u64, Arc<Request<F>>>>>;

fn request<F: Driven>(said: Value, all: &Requests<F>) -> Arc<Request<F>> {
    let id = said["id"].as_u64().unwrap();
    let made = Arc::new(Request {
        said,
        locks: OnceLock::new(),
        held: OnceLock::new(),
        left: Notify::new(),
        task: OnceLock::new(),
    });
    all.lock().unwrap().insert(id, made.clone());
    made
}

async fn operate<F: Driven>(request: &Request<F>, all: &Requests<F>) -> Result<Value, Failure> {
    let (r, op) = (&request.said, request.said["op"].as_str().unwrap());
    if op == "new" {
        let mut options = options(Options::default(), &r["options"]);
        (options.on_wait, options.on_acquired) = (hook(r, "wait"), hook(r, "acquired"));
        (options.on_lost, options.on_released) = (hook(r, "lost"), hook(r, "released"));
        let made = Locks::with(server(&r["client"]), options)?;
        request.locks.get_or_init(|| made);
        return Ok(Value::Null);
    }
    let of = all.lock().unwrap()[&r["of"].as_u64().unwrap()].clone();
    let name = r["name"].as_str().unwrap_or_default();
    match (op, of.locks.get(), of.held.get()) {
        ("acquire" | "abandon" | "block", Some(locks), _) => {
            let asked = options(locks.options(), &r["options"]);
            let held = if r["isTry"] == true {
                F::end(locks.try_acquire(name, asked)).await?
            } else {
                Some(F::end(locks.acquire(name, asked)).await?)
            };
            let Some(held) = held else {
                return Ok(Value::Null);
            };
            let (token, owner) = (held.token(), held.owner());
            let inside = json!({"event": "inside", "id": r["id"], "token": token, "owner": owner});
            if op == "abandon" {
                return Ok(inside); // It is dropped.
            }
            let held = request.held.get_or_init(|| held);
            if op == "acquire" {
                return Ok(inside);
            }
            say(&inside);
            if r["inner"].is_object() {
                let inner = self::request(r["inner"].clone(), all);
                Box::pin(answer(inner, all.clone())).await;
            }
            request.left.notified().await;
            let released = F::end(held.release()).await;
            if r["fail"] == true {
                return Err(Failure(json!({"type": "Body"})));
            }
            released?;
        }
        ("leave", ..) => of.left.notify_one(),
        ("renew", _, Some(held)) => {
            let lease: Option<Duration> = from_value(r["lease"].clone()).unwrap();
            return Ok(json!({"lease": F::end(held.renew(lease)).await?}));
        }
        ("release", _, Some(held)) => F::end(held.release()).await?,
        ("lost", _, Some(held)) => {
            let longest: Duration = from_value(r["wait"].clone()).unwrap();
            F::end(held.lost(longest)).await?;
        }
        ("cancel", ..) => of.task.get().unwrap().abort(),
        ("info", Some(locks), _) => {
            let it = F::end(locks.info(name)).await?;
            return Ok(json!({
                "owner": it.owner, "holds": it.holds, "lease": it.lease, "token": it.token,
                "session": it.session, "waiting": it.waiting, "holders": it.holders, "limit": it.limit,
            }));
        }
        ("native", Some(locks), _) => return Ok(json!({"native": locks.native()})),
        ("close", Some(locks), _) => F::end(locks.close()).await?,
        _ => return Err(Failure(json!({"type": "Unknown", "text": op}))),
    }
    Ok(Value::Null)
}

async fn answer<F: Driven>(request: Arc<Request<F>>, all: Requests<F>) {
    let id = &request.said["id"];
    match operate(&request, &all).await {
        Ok(ok) => say(&json!({"id": id, "ok": ok})),
        Err(Failure(failed)) => say(&json!({"id": id, "failed": failed})),
    }
}

fn serve<F: Driven>() {
    let (runtime, all) = (Runtime::new().unwrap(), Requests::<F>::default());
    for line in std::io::stdin().lines() {
        let its = request(serde_json::from_str(&line.unwrap()).unwrap(), &all);
        let task = F::spawn(&runtime, answer(its.clone(), all.clone()));
        its.task.set(task.abort_handle()).unwrap();
        runtime.spawn(async move {
            if task.await.is_err() {
                say(&json!({"id": its.said["id"], "failed": {"type": "Cancelled"}}));
            }
        });
    }
    std::process::exit(0); // Whatever is under way.
}

fn main() {
    match std::env::args().nth(1).as_deref() {
        Some("rust-tokio") => serve::<Tasks>(),
        _ => serve::<Threads>(),
    }
}
