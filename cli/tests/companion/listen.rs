//! `fairlock metrics --listen`.

use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::time::Duration;

use fairlock_testing::{Server, wait_until};

use crate::metrics::{read, value};
use crate::program::Program;

/// The program, listening on a port that the system chose.
struct Listening {
    program: Program,
    port: u16,
}

/// What it answered.
#[derive(Debug)]
struct Answer {
    status: u16,
    head: String,
    body: String,
}

impl Listening {
    fn start(server: u16) -> Self {
        // All addresses of the machine.
        let program = Program::start(server, &["metrics", "--listen", ":0"]);
        program.wait_for_error("/metrics");
        let said = program.errors();
        let at = said.trim().trim_end_matches("/metrics");
        let port = at.rsplit(':').next().and_then(|port| port.parse().ok());
        let port = port.unwrap_or_else(|| panic!("no port: {said}"));
        Self { program, port }
    }

    fn connect(&self) -> TcpStream {
        let stream = TcpStream::connect(("127.0.0.1", self.port)).expect("it listens");
        let longest = Some(Duration::from_mins(1));
        stream.set_read_timeout(longest).expect("a time limit");
        stream
    }

    /// A connection carries one answer.
    fn ask(&self, method: &str, path: &str) -> Answer {
        let (mut stream, mut text) = (self.connect(), String::new());
        write!(stream, "{method} {path} HTTP/1.1\r\nHost: me\r\n\r\n").expect("sent");
        stream.read_to_string(&mut text).expect("an answer");
        let (head, body) = text.split_once("\r\n\r\n").expect("a head");
        let status = head.split(' ').nth(1).and_then(|code| code.parse().ok());
        Answer {
            status: status.expect("a status"),
            head: head.to_lowercase(),
            body: body.to_owned(),
        }
    }

    fn get(&self, path: &str) -> Answer {
        self.ask("GET", path)
    }
}

#[test]
fn prometheus_gets_the_figures_of_the_moment() {
    let server = Server::start();
    let listening = Listening::start(server.port);
    let taken = |body: &str| {
        let immediate = [("way", "immediate")];
        value(&read(body), "acquisitions_total", &immediate)
    };
    let first = listening.get("/metrics");
    assert_eq!(first.status, 200, "{first:?}");
    let kind = "content-type: text/plain; version=0.0.4; charset=utf-8";
    assert!(first.head.contains(kind), "{first:?}");
    assert_eq!(taken(&first.body), 0.0);
    server.connect().int("FAIRLOCK.ACQUIRE k me");
    assert_eq!(taken(&listening.get("/metrics").body), 1.0);
}

#[test]
fn a_server_that_goes_away_is_told_of_and_waited_for_until_sigterm() {
    let server = Server::start();
    let listening = Listening::start(server.port);
    let up = || value(&read(&listening.get("/metrics").body), "up", &[]);
    assert_eq!((up(), listening.get("/readyz").status), (1.0, 200));
    let mut client = server.connect();
    client.run("CONFIG SET requirepass secret");
    client.run("CLIENT KILL TYPE normal SKIPME yes");
    wait_until("the server is gone for it", || up() == 0.0);
    let refused = listening.get("/readyz");
    assert_eq!(refused.status, 503, "{refused:?}");
    assert!(refused.body.contains("wants a password"), "{refused:?}");
    // The program itself is well, and must not be restarted for that.
    assert_eq!(listening.get("/healthz").status, 200);
    let freed = client.raw(&[b"CONFIG", b"SET", b"requirepass", b""]);
    freed.expect("no password any more");
    wait_until("the server is back", || {
        listening.get("/readyz").status == 200
    });
    // It answers first and tells the operator next.
    listening.program.wait_for_error("all servers answer again");
    listening.program.signal("TERM");
    let ended = listening.program.end();
    ended.failed(0, "wants a password");
    assert_eq!(
        ended.errors.matches("wants a password").count(),
        1,
        "{ended:?}"
    );
}

#[test]
fn other_paths_and_methods_are_refused() {
    let server = Server::start();
    let listening = Listening::start(server.port);
    for (method, path, status) in [
        ("GET", "/", 200),
        ("GET", "/metric", 404),
        ("GET", "/metrics/", 404),
        ("POST", "/metrics", 405),
        ("DELETE", "/", 405),
    ] {
        let answer = listening.ask(method, path);
        assert_eq!(answer.status, status, "{method} {path}: {answer:?}");
    }
    let head = listening.ask("HEAD", "/metrics");
    assert_eq!((head.status, head.body.as_str()), (200, ""));
    // Prometheus may be told to ask with parameters.
    assert_eq!(listening.get("/metrics?name=value").status, 200);
}

#[test]
fn clients_that_say_nothing_or_nonsense_do_not_keep_others_from_an_answer() {
    let server = Server::start();
    let listening = Listening::start(server.port);
    let _silent: Vec<_> = (0..80).map(|_| listening.connect()).collect();
    let mut nonsense = listening.connect();
    // Longer than any head; it may be hung up on before all is sent.
    let _ = nonsense.write_all(&vec![0xff; 1 << 20]);
    assert_eq!(listening.get("/metrics").status, 200);
}

#[test]
fn an_address_that_is_taken_ends_it() {
    let server = Server::start();
    let address = format!("127.0.0.1:{}", server.port);
    let ended = Program::ended(server.port, &["metrics", "--listen", &address]);
    ended.failed(1, &format!("cannot listen on {address}: "));
}
