//! Answers Prometheus and probes by HTTP.
//!
//! Each request asks the servers, as `fairlock metrics` does, so figures are never older than the answer.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use http_body_util::Full;
use hyper::body::{Bytes, Incoming};
use hyper::header::{CONTENT_TYPE, HeaderValue};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Request, Response, StatusCode};
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Mutex;
use tokio::time::{sleep, timeout};

use prometheus_client::encoding::prometheus_text::CONTENT_TYPE as METRICS;

use crate::failure::{Failure, tell};
use crate::server::Masters;

use super::look;

/// How long a client may take to send its request.
const HEAD: Duration = Duration::from_secs(5);
/// How long a connection may last, with waiting for the servers. One carries one request.
const ALL: Duration = Duration::from_secs(30);
/// How long to pause if no connection can be accepted: there may be too many open files.
const BREATH: Duration = Duration::from_millis(100);

const TEXT: &str = "text/plain; charset=utf-8";
const INDEX: &str = "/metrics  figures for Prometheus\n\
    /healthz  whether this program is well\n";

/// The servers, which one request asks at a time, and what the operator was told of them.
struct Asked {
    masters: Masters,
    told: Vec<String>,
}

type Shared = Arc<Mutex<Asked>>;

/// Answers for ever at `HOST:PORT`; `:PORT` is all addresses of the machine, of both kinds where it has both.
pub async fn serve(address: &str, masters: Masters) -> Result<u8, Failure> {
    let bound = match address.strip_prefix(':') {
        Some(port) => match TcpListener::bind(format!("[::]:{port}")).await {
            Err(_) => TcpListener::bind(format!("0.0.0.0:{port}")).await,
            bound => bound,
        },
        None => TcpListener::bind(address).await,
    };
    let listener =
        bound.map_err(|error| Failure::new(1, format!("cannot listen on {address}: {error}")))?;
    let at = listener.local_addr()?;
    tell(format_args!("listening on http://{at}/metrics"));
    let told = Vec::new();
    let asked = Arc::new(Mutex::new(Asked { masters, told }));
    loop {
        match listener.accept().await {
            Ok((stream, _)) => drop(tokio::spawn(talk(stream, Arc::clone(&asked)))),
            Err(_) => sleep(BREATH).await,
        }
    }
}

/// One request and its answer.
async fn talk(stream: TcpStream, asked: Shared) {
    let service = service_fn(move |request: Request<Incoming>| {
        let asked = Arc::clone(&asked);
        async move { Ok::<_, Infallible>(answer(request.uri().path(), &asked).await) }
    });
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEAD)
        .keep_alive(false)
        .serve_connection(TokioIo::new(stream), service);
    // Errors here are the client's: it has gone, or does not speak HTTP.
    let _ = timeout(ALL, connection).await;
}

/// By any method: nothing is changed.
async fn answer(path: &str, asked: &Shared) -> Response<Full<Bytes>> {
    match path {
        "/metrics" => {
            let asked = &mut *asked.lock().await;
            match look(&mut asked.masters).await {
                Ok((figures, troubles)) => {
                    asked.tell(troubles);
                    response(StatusCode::OK, METRICS, figures)
                }
                Err(failure) => text(StatusCode::INTERNAL_SERVER_ERROR, failure.text),
            }
        }
        "/healthz" => text(StatusCode::OK, "ok\n"),
        "/" => text(StatusCode::OK, INDEX),
        _ => text(StatusCode::NOT_FOUND, INDEX),
    }
}

impl Asked {
    /// Reports servers that do not answer: once for each error, and once when all is well again.
    fn tell(&mut self, troubles: Vec<String>) {
        let is_new = |trouble: &&String| !self.told.contains(trouble);
        for trouble in troubles.iter().filter(is_new) {
            tell(format_args!("{trouble}. Trying again"));
        }
        if troubles.is_empty() && !self.told.is_empty() {
            tell("all servers answer again");
        }
        self.told = troubles;
    }
}

fn text(status: StatusCode, body: impl Into<Bytes>) -> Response<Full<Bytes>> {
    response(status, TEXT, body)
}

fn response(
    status: StatusCode,
    kind: &'static str,
    body: impl Into<Bytes>,
) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::new(body.into()));
    *response.status_mut() = status;
    let kind = HeaderValue::from_static(kind);
    response.headers_mut().insert(CONTENT_TYPE, kind);
    response
}
