//! The wire between a machine and its relay, which a test cuts or holds where it wants.
//!
//! It sees TLS 1.3 from outside, where the turns tell what is what: the relay says nothing after its part of the
//! handshake (it sends no tickets) until it answers. Threads of its own, so that it works while a test waits for a
//! program.

use std::{
    io::{Read as _, Write as _},
    net::{Shutdown, SocketAddr, TcpListener, TcpStream},
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, AtomicU32, Ordering},
    },
    thread,
    time::{Duration, Instant},
};

/// How long a fault may take to happen.
const LONGEST_WAIT: Duration = Duration::from_secs(60);
/// A record that says nothing: rustls sends one before its part of the handshake ends (RFC 8446, appendix D.4).
const CHANGE_CIPHER_SPEC: [u8; 6] = [20, 3, 3, 0, 1, 1];

/// What happens to a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// Nothing: all goes through.
    None,
    /// The request never gets through; the connection stays.
    HoldRequest,
    /// So many bytes get through of what the client sends once the relay has shown itself (the end of the handshake,
    /// then the request); then both ends are cut off.
    CutRequest(usize),
    /// The request gets through, nothing of its answer does; the connection stays.
    HoldAnswer,
    /// The request gets through, and so many bytes of its answer; then both ends are cut off.
    CutAnswer(usize),
}

/// A way to a relay. It is gone when this value is; connections end with their ends.
pub struct Wire {
    address: SocketAddr,
    shared: Arc<Shared>,
}

struct Shared {
    relay: String,
    fault: Mutex<Fault>,
    happened: AtomicU32,
    closed: AtomicBool,
}

impl Wire {
    /// A way to the relay at `https://HOST:PORT`, without faults.
    ///
    /// # Panics
    /// There is no free port.
    #[must_use]
    #[expect(clippy::panic, reason = "a test without its wire fails")]
    pub fn to(url: &str) -> Self {
        let relay = url.trim_start_matches("https://").to_owned();
        let listener = TcpListener::bind("127.0.0.1:0").and_then(|bound| Ok((bound.local_addr()?, bound)));
        let (address, listener) = listener.unwrap_or_else(|error| panic!("a port for a wire: {error}"));
        let shared = Arc::new(Shared {
            relay,
            fault: Mutex::new(Fault::None),
            happened: AtomicU32::new(0),
            closed: AtomicBool::new(false),
        });
        let accepting = shared.clone();
        thread::spawn(move || accept(&listener, &accepting));
        Self { address, shared }
    }

    /// `https://127.0.0.1:PORT`.
    #[must_use]
    pub fn url(&self) -> String {
        format!("https://{}", self.address)
    }

    /// What happens to connections that are made from now on.
    pub fn set(&self, fault: Fault) {
        *self.shared.fault.lock().unwrap_or_else(PoisonError::into_inner) = fault;
    }

    /// How often a fault has happened.
    #[must_use]
    pub fn happened(&self) -> u32 {
        self.shared.happened.load(Ordering::SeqCst)
    }

    /// Waits until faults have happened so often, without blocking other tasks.
    ///
    /// # Panics
    /// They don't within a minute.
    pub async fn wait_for(&self, times: u32) {
        let started = Instant::now();
        while self.happened() < times {
            assert!(started.elapsed() < LONGEST_WAIT, "the wire was not used");
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }
}

impl Drop for Wire {
    fn drop(&mut self) {
        self.shared.closed.store(true, Ordering::SeqCst);
        // Who waits for a connection is woken by one.
        drop(TcpStream::connect(self.address));
    }
}

fn accept(listener: &TcpListener, shared: &Arc<Shared>) {
    for client in listener.incoming() {
        if shared.closed.load(Ordering::SeqCst) {
            return;
        }
        let fault = *shared.fault.lock().unwrap_or_else(PoisonError::into_inner);
        let (Ok(client), Ok(relay)) = (client, TcpStream::connect(&shared.relay)) else { continue };
        let (Ok(client2), Ok(relay2)) = (client.try_clone(), relay.try_clone()) else { continue };
        let shown = Arc::new(AtomicBool::new(false));
        let asked = Arc::new(AtomicBool::new(false));
        let up = Way { from: client, to: relay, fault, shared: shared.clone(), shown, asked };
        let down = Way {
            from: relay2,
            to: client2,
            shown: up.shown.clone(),
            asked: up.asked.clone(),
            shared: shared.clone(),
            fault,
        };
        thread::spawn(move || up.carry_requests());
        thread::spawn(move || down.carry_answers());
    }
}

/// One direction of one connection.
struct Way {
    from: TcpStream,
    to: TcpStream,
    fault: Fault,
    shared: Arc<Shared>,
    /// The relay has shown itself.
    shown: Arc<AtomicBool>,
    /// The client has sent more since.
    asked: Arc<AtomicBool>,
}

impl Way {
    fn carry_requests(mut self) {
        let mut passed = 0;
        while let Some(bytes) = self.read() {
            let is_request = self.shown.load(Ordering::SeqCst) && bytes != CHANGE_CIPHER_SPEC;
            if is_request {
                self.asked.store(true, Ordering::SeqCst);
            }
            let goes_on = match self.fault {
                Fault::HoldRequest if is_request => self.hold(),
                Fault::CutRequest(limit) if is_request => self.pass_up_to(limit, &mut passed, &bytes),
                _ => self.to.write_all(&bytes).is_ok(),
            };
            if !goes_on {
                break;
            }
        }
        self.cut();
    }

    fn carry_answers(mut self) {
        let mut passed = 0;
        while let Some(bytes) = self.read() {
            let is_answer = self.asked.load(Ordering::SeqCst);
            self.shown.store(true, Ordering::SeqCst);
            let goes_on = match self.fault {
                Fault::HoldAnswer if is_answer => self.hold(),
                Fault::CutAnswer(limit) if is_answer => self.pass_up_to(limit, &mut passed, &bytes),
                _ => self.to.write_all(&bytes).is_ok(),
            };
            if !goes_on {
                break;
            }
        }
        self.cut();
    }

    fn read(&mut self) -> Option<Vec<u8>> {
        let mut buffer = vec![0; 64 * 1024];
        let read = self.from.read(&mut buffer).ok().filter(|read| *read > 0)?;
        buffer.truncate(read);
        Some(buffer)
    }

    /// Swallows all that comes, until the sender goes.
    fn hold(&mut self) -> bool {
        self.shared.happened.fetch_add(1, Ordering::SeqCst);
        while self.read().is_some() {}
        false
    }

    fn pass_up_to(&mut self, limit: usize, passed: &mut usize, bytes: &[u8]) -> bool {
        let room = limit.saturating_sub(*passed).min(bytes.len());
        let sent = self.to.write_all(bytes.get(..room).unwrap_or_default()).is_ok();
        *passed += room;
        let goes_on = sent && room == bytes.len();
        if !goes_on {
            self.shared.happened.fetch_add(1, Ordering::SeqCst);
        }
        goes_on
    }

    fn cut(&self) {
        drop(self.from.shutdown(Shutdown::Both));
        drop(self.to.shutdown(Shutdown::Both));
    }
}
