//! What clients, observers and the fault injector share.

use std::net::TcpStream;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU16, AtomicU32, Ordering};
use std::sync::{Mutex, MutexGuard};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use fairlock_testing::Server;

use crate::history::Recorder;
use crate::wire::{Handle, Wire};

/// How busy the clients are; milliseconds, drawn below these limits.
#[derive(Clone, Copy, Debug)]
pub struct Load {
    /// Between two attempts.
    pub think: u64,
    /// How long a lock is held.
    pub hold: u64,
    /// One attempt in this many ends with the client's death or with a hold beyond its lease.
    pub deaths: u64,
    /// Between two looks at the keys.
    pub look: u64,
}

/// As many of each kind.
pub const CLIENTS: usize = 36;
pub const LOCKS: usize = 4;

/// The shared world.
pub struct World {
    pub recorder: Recorder,
    pub load: Load,
    /// Where the master is.
    port: AtomicU16,
    /// Its process.
    server: AtomicU32,
    /// By which others can do something to a client.
    handles: Vec<Mutex<Option<Handle>>>,
    /// Seconds that the server's wall clock is ahead.
    ahead: AtomicI64,
    /// The master has the module.
    has_module: AtomicBool,
    /// Clients begin nothing new.
    over: AtomicBool,
    /// Clients no longer wait.
    closing: AtomicBool,
}

impl World {
    pub fn new(recorder: Recorder, load: Load) -> Self {
        Self {
            recorder,
            load,
            port: AtomicU16::new(0),
            server: AtomicU32::new(0),
            ahead: AtomicI64::new(0),
            handles: (0..CLIENTS).map(|_| Mutex::default()).collect(),
            has_module: AtomicBool::new(true),
            over: AtomicBool::new(false),
            closing: AtomicBool::new(false),
        }
    }

    /// From now on this is the master.
    pub fn set_master(&self, server: &Server) {
        self.port.store(server.port, Ordering::SeqCst);
        self.server.store(server.pid(), Ordering::SeqCst);
    }

    /// The master's process.
    pub fn server(&self) -> u32 {
        self.server.load(Ordering::SeqCst)
    }

    /// Whether clients that connect find the module.
    pub fn set_module(&self, is_there: bool) {
        self.has_module.store(is_there, Ordering::SeqCst);
    }

    pub fn has_module(&self) -> bool {
        self.has_module.load(Ordering::SeqCst)
    }

    pub fn is_over(&self) -> bool {
        self.over.load(Ordering::SeqCst)
    }

    pub fn is_closing(&self) -> bool {
        self.closing.load(Ordering::SeqCst)
    }

    pub fn set_clock(&self, seconds: i64) {
        self.ahead.store(seconds, Ordering::SeqCst);
    }

    /// Milliseconds by the wall clock of clients that agree with the server's.
    pub fn clock(&self) -> i64 {
        let now = SystemTime::now().duration_since(UNIX_EPOCH);
        let now = now.expect("after 1970").as_millis();
        i64::try_from(now).expect("milliseconds") + self.ahead.load(Ordering::SeqCst) * 1000
    }

    /// From now on clients begin nothing new.
    pub fn end(&self) {
        self.over.store(true, Ordering::SeqCst);
    }

    /// A client that still waits has been forgotten: its connection ends.
    pub fn close(&self) {
        self.end();
        self.closing.store(true, Ordering::SeqCst);
        for client in 0..CLIENTS {
            if let Some(handle) = &*self.handle_of(client) {
                handle.close();
            }
        }
    }

    /// Connects to the master, wherever it is by now. `None` when all is over.
    pub fn connect(&self) -> Option<Wire> {
        while !self.is_closing() {
            if let Ok(wire) = Wire::connect(self.port.load(Ordering::SeqCst)) {
                return Some(wire);
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        None
    }

    fn handle_of(&self, client: usize) -> MutexGuard<'_, Option<Handle>> {
        self.handles[client].lock().expect("no panic elsewhere")
    }

    /// Connects one of the clients.
    pub fn connect_client(&self, client: usize) -> Option<Wire> {
        let wire = self.connect()?;
        if let Ok(handle) = wire.handle() {
            *self.handle_of(client) = Some(handle);
        }
        // The world may have closed before the handle was there.
        (!self.is_closing()).then_some(wire)
    }

    /// The id of a client's connection, and its address. It may have gone with the server to which it was.
    pub fn connection_of(&self, client: usize) -> Option<(i64, String)> {
        let handle = self.handle_of(client);
        let handle = handle.as_ref()?;
        Some((handle.id, handle.address()?))
    }

    /// Cuts a client's connection off, see [`Handle::cut`].
    pub fn cut(&self, client: usize) -> Option<TcpStream> {
        self.handle_of(client).take().map(Handle::cut)
    }
}

/// The name of a lock.
pub fn lock_name(lock: usize) -> String {
    format!("lock{lock}")
}

/// The owner that a client is.
pub fn owner(client: usize) -> String {
    format!("c{client}")
}

/// The client that an owner is.
pub fn client_of(owner: &str) -> Option<usize> {
    owner.strip_prefix('c')?.parse().ok()
}

/// The name of one of a lock's keys, as Redisson has it.
pub fn key(prefix: &str, lock: usize) -> String {
    format!("redisson_lock_{prefix}:{{{}}}", lock_name(lock))
}
