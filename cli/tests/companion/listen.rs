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

    /// A connection carries one answer: its status, head and body.
    fn ask(&self, method: &str, path: &str) -> (u16, String, String) {
        let (mut stream, mut text) = (self.connect(), String::new());
        write!(stream, "{method} {path} HTTP/1.1\r\nHost: me\r\n\r\n").expect("sent");
        stream.read_to_string(&mut text).expect("an answer");
        let (head, body) = text.split_once("\r\n\r\n").expect("a head");
        let status = head.split(' ').nth(1).and_then(|code| code.parse().ok());
        (status.expect("a status"), head.to_lowercase(), body.into())
    }

    fn get(&self, path: &str) -> (u16, String) {
        let (status, _, body) = self.ask("GET", path);
        (status, body)
    }

    /// The value of a metric at the moment.
    fn metric(&self, name: &str, labels: &[(&str, &str)]) -> f64 {
        value(&read(&self.get("/metrics").1), name, labels)
    }
}

#[test]
fn prometheus_gets_the_figures_of_the_moment() {
    let server = Server::start();
    let listening = Listening::start(server.port);
    let taken = || listening.metric("acquisitions_total", &[("way", "immediate")]);
    assert_eq!(taken(), 0.0);
    server.connect().int("FAIRLOCK.ACQUIRE k me");
    assert_eq!(taken(), 1.0);
    let (status, head, body) = listening.ask("HEAD", "/metrics");
    assert_eq!((status, body.as_str()), (200, ""), "{head}");
    let kind = "content-type: text/plain; version=0.0.4; charset=utf-8";
    assert!(head.contains(kind), "{head}");
    // Prometheus may be told to ask with parameters.
    for (path, status) in [("/metrics?name=value", 200), ("/", 200), ("/metrics/", 404)] {
        assert_eq!(listening.get(path).0, status, "{path}");
    }
}

#[test]
fn a_server_that_goes_away_is_told_of_and_waited_for_until_sigterm() {
    let server = Server::start();
    let listening = Listening::start(server.port);
    let up = || listening.metric("up", &[]);
    assert_eq!((up(), listening.get("/readyz").0), (1.0, 200));
    let mut client = server.connect();
    client.run("CONFIG SET requirepass secret");
    client.run("CLIENT KILL TYPE normal SKIPME yes");
    wait_until("the server is gone for it", || up() == 0.0);
    assert_eq!(up(), 0.0);
    let (status, said) = listening.get("/readyz");
    assert_eq!(status, 503, "{said}");
    assert!(said.contains("wants a password"), "{said}");
    // The program itself is well, and must not be restarted for that.
    assert_eq!(listening.get("/healthz").0, 200);
    let freed = client.raw(&[b"CONFIG", b"SET", b"requirepass", b""]);
    freed.expect("no password any more");
    wait_until("the server is back", || listening.get("/readyz").0 == 200);
    // It answers first and tells the operator next.
    listening.program.wait_for_error("all servers answer again");
    listening.program.signal("TERM");
    let ended = listening.program.end();
    ended.failed(0, "wants a password");
    let told = ended.errors.matches("wants a password").count();
    assert_eq!(told, 1, "{ended:?}");
}

#[test]
fn clients_that_say_nothing_or_nonsense_do_not_keep_others_from_an_answer() {
    let server = Server::start();
    let listening = Listening::start(server.port);
    let _silent: Vec<_> = (0..80).map(|_| listening.connect()).collect();
    let mut nonsense = listening.connect();
    // Longer than any head; it may be hung up on before all is sent.
    let _ = nonsense.write_all(&vec![0xff; 1 << 20]);
    assert_eq!(listening.get("/metrics").0, 200);
}

#[test]
fn an_address_that_is_taken_ends_it() {
    let server = Server::start();
    let address = format!("127.0.0.1:{}", server.port);
    let ended = Program::ended(server.port, &["metrics", "--listen", &address]);
    ended.failed(1, &format!("cannot listen on {address}: "));
}
