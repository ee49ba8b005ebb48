//! The driver of the Rust package (README.md beside): driver rust-tokio|rust-blocking. Each request has a thread, which for
//! tokio is a task. A line that is printed is flushed.

mod given;

use std::collections::HashMap;
use std::error::Error as _;
use std::sync::{Arc, LazyLock, Mutex, OnceLock};
use std::time::Duration;

use fairlock_client::{Call, Error, Event, Held, Hook, Locks, Options};
use given::options;
use serde_json::{Value, from_value, json};
use tokio::runtime::Builder;
use tokio::sync::Notify;

static IS_BLOCKING: LazyLock<bool> =
    LazyLock::new(|| std::env::args().nth(1).as_deref() == Some("rust-blocking"));

async fn end<T: Send + 'static>(call: Call<T>) -> Result<T, Value> {
    let ended = if *IS_BLOCKING {
        call.wait()
    } else {
        call.await
    };
    ended.map_err(failure)
}

/// What a request has made, and what ends its wait or its block.
type Made = Arc<(OnceLock<Locks>, OnceLock<Held>, Notify)>;
type Requests = Arc<Mutex<HashMap<u64, Made>>>;
type Answer = Result<Value, Value>;

fn made(id: &Value, all: &Requests) -> Made {
    let id = id.as_u64().unwrap_or_default();
    all.lock().unwrap().entry(id).or_default().clone()
}

fn failure(error: Error) -> Value {
    let because = error.source().map(ToString::to_string);
    json!({"type": format!("{:?}", error.kind), "text": error.to_string(), "code": error.code, "because": because})
}

fn hook(new: &Value, which: &'static str) -> Option<Hook> {
    let (is_telling, id) = (new["hooks"].as_str()? == "tell", new["id"].clone());
    Some(Arc::new(move |event: &Event| {
        assert!(is_telling, "a hook");
        let with = json!({
            "name": event.name, "owner": event.owner, "token": event.token, "waited": event.waited,
            "held": event.held, "cause": event.cause.map(|cause| format!("{cause:?}")),
        });
        println!(
            "{}",
            json!({"event": "hook", "locks": id, "hook": which, "with": with})
        );
    }))
}

fn new(r: &Value) -> Result<Locks, Value> {
    let mut options = options(Options::default(), r);
    (options.on_wait, options.on_acquired) = (hook(r, "wait"), hook(r, "acquired"));
    (options.on_lost, options.on_released) = (hook(r, "lost"), hook(r, "released"));
    Locks::with(given::server(&r["client"]), options).map_err(failure)
}

async fn acquire(r: &Value, locks: &Locks, all: &Requests) -> Answer {
    let (name, mine) = (r["name"].as_str().unwrap(), made(&r["id"], all));
    let held = tokio::select! {
        held = end(locks.acquire(name, options(locks.options(), r))) => held?,
        () = mine.2.notified() => return Err(json!({"type": "Cancelled"})),
    };
    let held = mine.1.get_or_init(|| held);
    let (token, owner) = (held.token(), held.owner());
    let inside = json!({"event": "inside", "id": r["id"], "token": token, "owner": owner});
    if r["op"] == "block" {
        println!("{inside}");
        if r["inner"].is_object() {
            Box::pin(answer(r["inner"].clone(), all.clone())).await;
        }
        mine.2.notified().await;
        let released = end(held.release()).await;
        if r["fail"] == true {
            return Err(json!({"type": "Body"}));
        }
        released?;
    }
    Ok(inside)
}

async fn operate(r: &Value, all: &Requests) -> Answer {
    let (of, name) = (made(&r["of"], all), r["name"].as_str().unwrap_or_default());
    let length = |name| from_value::<Option<Duration>>(r[name].clone()).unwrap();
    Ok(match (r["op"].as_str().unwrap(), of.0.get(), of.1.get()) {
        ("new", ..) => json!(made(&r["id"], all).0.set(new(r)?).is_ok()),
        ("acquire" | "block", Some(locks), _) => acquire(r, locks, all).await?,
        ("tryAcquire" | "abandon", Some(locks), _) => {
            let held = end(locks.try_acquire(name, options(locks.options(), r))).await?;
            json!(held.map(|held| json!({"token": held.token(), "owner": held.owner()}))) // It is dropped.
        }
        ("end", ..) => json!(of.2.notify_one()),
        ("renew", _, Some(held)) => json!({"lease": end(held.renew(length("lease"))).await?}),
        ("release", _, Some(held)) => json!(end(held.release()).await?),
        ("lost", _, Some(held)) => json!(end(held.lost(length("wait"))).await?),
        ("info", Some(locks), _) => {
            let it = end(locks.info(name)).await?;
            json!({
                "owner": it.owner, "holds": it.holds, "lease": it.lease, "token": it.token,
                "session": it.session, "waiting": it.waiting, "holders": it.holders, "limit": it.limit,
            })
        }
        ("native", Some(locks), _) => json!({"native": locks.native()}),
        ("close", Some(locks), _) => json!(end(locks.close()).await?),
        (op, ..) => return Err(json!({"type": "Unknown", "text": op})),
    })
}

async fn answer(r: Value, all: Requests) {
    let answer = match operate(&r, &all).await {
        Ok(ok) => json!({"id": r["id"], "ok": ok}),
        Err(failed) => json!({"id": r["id"], "failed": failed}),
    };
    println!("{answer}");
}

fn main() {
    let mut runtime = Builder::new_multi_thread();
    let runtime = runtime.enable_all().max_blocking_threads(5000).build();
    let (runtime, all) = (runtime.unwrap(), Requests::default());
    for line in std::io::stdin().lines() {
        let work = answer(serde_json::from_str(&line.unwrap()).unwrap(), all.clone());
        let handle = runtime.handle().clone();
        runtime.spawn_blocking(move || handle.block_on(work));
    }
    std::process::exit(0); // Whatever is under way.
}
