//! What bcd tells about itself, on a UNIX socket and, by setting, on a loopback port: `/livez`, `/readyz`, `/metrics`,
//! `/status`. It never tells a secret, and nobody can change anything by it.
//!
//! Live means that attempts go on, whatever they come to; ready means that the node's certificate is good and the relay
//! has just said so.

use crate::{
    failure::{Exit, Failure},
    host::Host,
    join,
    state::{Final, State, Stored},
};
use bytes::Bytes;
use http::{Request, Response, StatusCode, header};
use http_body_util::{BodyExt as _, Full, Limited};
use hyper::{body::Incoming, service::service_fn};
use hyper_util::rt::TokioIo;
use serde::{Deserialize, Serialize};
use shared::{terminal::shown, time::Timestamp};
use std::{
    convert::Infallible,
    fmt::Write as _,
    io,
    net::SocketAddr,
    os::unix::fs::FileTypeExt as _,
    path::{Path, PathBuf},
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};
use tokio::{
    io::{AsyncRead, AsyncWrite},
    net::{TcpListener, UnixListener, UnixStream},
    sync::Semaphore,
    time::timeout,
};

/// The most connections at once, and how long one may last.
const MAX_CONNECTIONS: usize = 16;
const CONNECTION_LIMIT: Duration = Duration::from_secs(10);
/// The most bytes of `/status` that are read.
const MAX_STATUS_BYTES: usize = 64 * 1024;

/// What `/status` and `bcd status --json` say.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Status {
    /// `new`, `joining`, `waiting`, `enrolled` or `final`.
    pub state: String,
    /// Why it is so, or what failed last.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// What happens next, or what somebody has to do.
    pub next: String,
    /// The node.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub node_id: Option<String>,
    /// When its certificate ends.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cert_not_after: Option<Timestamp>,
    /// When the relay was last called.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_attempt: Option<Timestamp>,
    /// When it last answered as wished.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_success: Option<Timestamp>,
    /// How far this machine's clock is ahead of the relay's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub skew_seconds: Option<i64>,
}

impl Status {
    /// What the state on disk says, where no daemon runs.
    #[must_use]
    pub fn of(stored: &Stored) -> Self {
        let (reason, next) = match &stored.state {
            State::New => (None, "join: `bcd join`, or start the daemon".to_owned()),
            State::Joining(_) => {
                (None, "the join is tried again: `bcd join`, or start the daemon".to_owned())
            }
            State::Waiting(waiting) => (Some(join::describe(waiting)), "approve the request".to_owned()),
            State::Enrolled(_) => (None, "start the daemon: it renews and sends heartbeats".to_owned()),
            State::Final(over) => (Some(over.message.clone()), after(over)),
        };
        let noted = stored.last_failure.as_ref();
        let next = match noted.map(|noted| Exit::from_final(noted.exit).code() == noted.exit) {
            // bcd has ended by it, and a service manager leaves it down.
            Some(true) if reason.is_none() => {
                "put right what the reason says, then start bcd again".to_owned()
            }
            _ => next,
        };
        let reason = reason.or_else(|| noted.map(|noted| format!("{} (tried {})", noted.message, noted.at)));
        let node = match &stored.state {
            State::Enrolled(node) => Some(node),
            State::Final(over) => over.node.as_deref(),
            State::New | State::Joining(_) | State::Waiting(_) => None,
        };
        Self {
            state: stored.state.name().to_owned(),
            reason,
            next,
            node_id: node.map(|node| node.node_id.to_string()),
            cert_not_after: node.map(|node| node.expires_at),
            last_attempt: None,
            last_success: None,
            skew_seconds: None,
        }
    }

    /// The same, where its key is not the one that it needs: nothing goes on before that is put right.
    #[must_use]
    pub fn without_key(self, failure: Failure) -> Self {
        let next = "what the reason says; before that every start of bcd ends with it".to_owned();
        Self { reason: Some(failure.message), next, ..self }
    }

    /// The same, with what keeps bcd from starting where nothing else was said of why it does not run.
    #[must_use]
    pub fn or_reason(self, hindrance: impl FnOnce() -> Option<String>) -> Self {
        match self.reason {
            Some(_) => self,
            None => match hindrance() {
                None => self,
                reason => {
                    let next = "put right what the reason says, then start bcd again".to_owned();
                    Self { reason, next, ..self }
                }
            },
        }
    }

    /// In a line, for a probe of a machine that is not ready.
    #[must_use]
    pub fn to_line(&self) -> String {
        let reason = self.reason.as_ref().map(|reason| format!(": {reason}")).unwrap_or_default();
        shown(&format!("{}{reason}; next: {}", self.state, self.next))
    }

    /// For people.
    #[must_use]
    pub fn to_text(&self) -> String {
        let time = |time: Option<Timestamp>| time.map(|time| time.to_string());
        let lines = [
            ("state", Some(self.state.clone())),
            ("node", self.node_id.clone()),
            ("reason", self.reason.clone()),
            ("next", Some(self.next.clone())),
            ("certificate until", time(self.cert_not_after)),
            ("last attempt", time(self.last_attempt)),
            ("last success", time(self.last_success)),
            ("clock ahead by", self.skew_seconds.map(|seconds| format!("{seconds} s"))),
        ];
        let mut text = String::new();
        for (name, value) in lines.into_iter().filter_map(|(name, value)| Some((name, value?))) {
            let _ = writeln!(text, "{name:<18} {}", shown(&value));
        }
        text
    }
}

/// What somebody has to do after an end.
fn after(over: &Final) -> String {
    let node = over.node.as_ref().map_or_else(|| "NODE".to_owned(), |node| node.node_id.to_string());
    match Exit::from_final(over.exit) {
        Exit::Banned => format!(
            "if that is to end: `relay nodes unban {node} --pool POOL`, then start bcd again or `bcd join`; it needs no token"
        ),
        Exit::Released => "`bcd reset`, then `bcd join` with a new token".to_owned(),
        Exit::Denied => "ask who denied it; then `bcd join` asks anew".to_owned(),
        Exit::Identity => {
            "`bcd join` with a token for this machine, or after the other node was released".to_owned()
        }
        _ => "`bcd join` with a new token, or `bcd reset`".to_owned(),
    }
}

/// What the daemon has last told of itself, for all who ask.
#[derive(Debug)]
pub struct Board {
    host: Arc<dyn Host>,
    told: Mutex<Told>,
}

#[derive(Clone, Debug)]
struct Told {
    status: Status,
    is_ready: bool,
    live_until: Duration,
}

impl Board {
    /// A board that says this. `live_until` is a time since boot: by then there is to be news.
    #[must_use]
    pub fn new(host: Arc<dyn Host>, status: Status, live_until: Duration) -> Self {
        Self { host, told: Mutex::new(Told { status, is_ready: false, live_until }) }
    }

    /// The daemon got on.
    pub fn tell(&self, status: Status, is_ready: bool, live_until: Duration) {
        *self.told.lock().unwrap_or_else(PoisonError::into_inner) = Told { status, is_ready, live_until };
    }

    /// Whether attempts go on.
    #[must_use]
    pub fn is_live(&self) -> bool {
        self.host.boot() <= self.read().live_until
    }

    fn read(&self) -> Told {
        self.told.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// The answer to a GET of this path.
    fn answer(&self, path: &str) -> (StatusCode, &'static str, String) {
        const TEXT: &str = "text/plain; charset=utf-8";
        let told = self.read();
        let check = |good: bool, no: &str| match good {
            true => (StatusCode::OK, TEXT, "ok\n".to_owned()),
            false => (StatusCode::SERVICE_UNAVAILABLE, TEXT, format!("{no}\n")),
        };
        match path {
            "/livez" => check(self.is_live(), "no attempt for too long"),
            "/readyz" => check(told.is_ready, told.status.reason.as_deref().unwrap_or(&told.status.state)),
            "/metrics" => (StatusCode::OK, "text/plain; version=0.0.4", metrics(&told.status)),
            "/status" => match serde_json::to_string(&told.status) {
                Ok(json) => (StatusCode::OK, "application/json", json),
                Err(_) => (StatusCode::INTERNAL_SERVER_ERROR, TEXT, String::new()),
            },
            _ => (StatusCode::NOT_FOUND, TEXT, "try /livez, /readyz, /metrics or /status\n".to_owned()),
        }
    }
}

/// In the text format of Prometheus.
fn metrics(status: &Status) -> String {
    let mut text =
        "# HELP bcd_state Where this machine stands with its relay.\n# TYPE bcd_state gauge\n".to_owned();
    for state in ["new", "joining", "waiting", "enrolled", "final"] {
        let _ = writeln!(text, "bcd_state{{state=\"{state}\"}} {}", u8::from(status.state == state));
    }
    let gauges = [
        (
            "bcd_cert_not_after_seconds",
            "When the certificate ends.",
            status.cert_not_after.map(Timestamp::seconds),
        ),
        (
            "bcd_last_success_seconds",
            "When the relay last answered as wished.",
            status.last_success.map(Timestamp::seconds),
        ),
        ("bcd_clock_skew_seconds", "How far the clock is ahead of the relay's.", status.skew_seconds),
    ];
    for (name, help, value) in gauges {
        if let Some(value) = value {
            let _ = write!(text, "# HELP {name} {help}\n# TYPE {name} gauge\n{name} {value}\n");
        }
    }
    text
}

/// Where the status is served. The socket's file goes with it.
#[derive(Debug)]
pub struct Served(Option<PathBuf>);

impl Drop for Served {
    fn drop(&mut self) {
        if let Some(path) = &self.0 {
            let _ = std::fs::remove_file(path);
        }
    }
}

/// Serves the board from now on.
///
/// # Errors
/// A listener can't be bound.
pub async fn serve(
    board: Arc<Board>,
    socket: Option<&Path>,
    listen: Option<SocketAddr>,
) -> io::Result<Served> {
    let places = Arc::new(Semaphore::new(MAX_CONNECTIONS));
    if let Some(path) = socket {
        remove_stale(path)?;
        let listener = UnixListener::bind(path)?;
        let (board, places) = (Arc::clone(&board), Arc::clone(&places));
        tokio::spawn(async move {
            loop {
                let stream = listener.accept().await.map(|(stream, _)| stream);
                take(stream, &board, &places).await;
            }
        });
    }
    let served = Served(socket.map(Path::to_owned));
    if let Some(address) = listen {
        let listener = TcpListener::bind(address).await?;
        tokio::spawn(async move {
            loop {
                let stream = listener.accept().await.map(|(stream, _)| stream);
                take(stream, &board, &places).await;
            }
        });
    }
    Ok(served)
}

/// A socket that a killed bcd left behind. One that is served, or another kind of file, is somebody else's.
fn remove_stale(path: &Path) -> io::Result<()> {
    let is_socket = std::fs::symlink_metadata(path).is_ok_and(|found| found.file_type().is_socket());
    if is_socket && std::os::unix::net::UnixStream::connect(path).is_err() {
        return std::fs::remove_file(path);
    }
    Ok(())
}

async fn take<S>(stream: io::Result<S>, board: &Arc<Board>, places: &Arc<Semaphore>)
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let Ok(stream) = stream else {
        // No file descriptors, most likely: let some come back.
        return tokio::time::sleep(Duration::from_millis(100)).await;
    };
    let Ok(place) = Arc::clone(places).acquire_owned().await else { return };
    let board = Arc::clone(board);
    tokio::spawn(async move {
        let service = service_fn(move |request: Request<Incoming>| {
            let (status, kind, text) = board.answer(request.uri().path());
            let response = Response::builder().status(status).header(header::CONTENT_TYPE, kind);
            let response = response.body(Full::new(Bytes::from(text)));
            async move { Ok::<_, Infallible>(response.unwrap_or_default()) }
        });
        let connection = hyper::server::conn::http1::Builder::new()
            .keep_alive(false)
            .max_buf_size(8 * 1024)
            .serve_connection(TokioIo::new(stream), service);
        let _ = timeout(CONNECTION_LIMIT, connection).await;
        drop(place);
    });
}

/// Asks a running daemon.
///
/// # Errors
/// None runs, or it does not answer.
pub async fn ask(socket: &Path) -> io::Result<Status> {
    serde_json::from_slice(&get(socket, "/status").await?.1).map_err(io::Error::other)
}

/// Asks a running daemon whether this machine can be relied on.
///
/// # Errors
/// None runs, or it does not answer.
pub async fn is_ready(socket: &Path) -> io::Result<bool> {
    get(socket, "/readyz").await.map(|(status, _)| status.is_success())
}

async fn get(socket: &Path, path: &str) -> io::Result<(StatusCode, Bytes)> {
    let ask = async {
        let stream = UnixStream::connect(socket).await?;
        let (mut sender, connection) =
            hyper::client::conn::http1::handshake(TokioIo::new(stream)).await.map_err(io::Error::other)?;
        let driven = tokio::spawn(connection);
        let request = Request::get(path).header(header::HOST, "bcd").body(Full::<Bytes>::default());
        let response =
            sender.send_request(request.map_err(io::Error::other)?).await.map_err(io::Error::other)?;
        let status = response.status();
        let body =
            Limited::new(response.into_body(), MAX_STATUS_BYTES).collect().await.map_err(io::Error::other)?;
        driven.abort();
        Ok((status, body.to_bytes()))
    };
    timeout(CONNECTION_LIMIT, ask).await?
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{host::Fake, state::tests::enrolled};

    fn board(host: &Arc<Fake>) -> Board {
        let stored = Stored { state: State::Enrolled(enrolled()), ..Stored::default() };
        Board::new(Arc::clone(host) as _, Status::of(&stored), host.boot() + Duration::from_secs(10))
    }

    #[test]
    fn what_is_on_disk_says_why_and_what_next() {
        let noted =
            crate::state::Noted { message: "no such token".into(), exit: 12, at: Timestamp::from_seconds(0) };
        let joined =
            Stored { state: State::Enrolled(enrolled()), last_failure: Some(noted), ..Stored::default() };
        let reason = Status::of(&joined).reason.unwrap();
        assert!(reason.starts_with("no such token (tried 1970-"), "{reason}");
        let lacking = |exit: u8| {
            let noted = crate::state::Noted { message: "x".into(), exit, at: Timestamp::from_seconds(0) };
            Status::of(&Stored { last_failure: Some(noted), ..Stored::default() }).next
        };
        assert!(lacking(64).contains("put right") && !lacking(20).contains("put right"));
        let hindered = Status::of(&Stored::default()).or_reason(|| Some("no relay".into()));
        assert_eq!(hindered.reason.as_deref(), Some("no relay"));
        assert!(hindered.next.contains("put right"));
        assert!(
            Status::of(&joined).or_reason(|| Some("no relay".into())).reason.unwrap().starts_with("no such")
        );
        let over = |exit: Exit| {
            let node = Some(Box::new(enrolled()));
            let since = Timestamp::from_seconds(0);
            let over = Final { exit: exit.code(), message: "x".into(), token_id: None, node, since };
            Status::of(&Stored { state: State::Final(over), ..Stored::default() }).next
        };
        let banned = over(Exit::Banned);
        assert!(banned.contains("unban nd_") && banned.contains("--pool") && banned.contains("no token"));
        assert!(over(Exit::Released).contains("reset"));
        let lost = Status::of(&joined).without_key(Failure::new(Exit::Broken, "the node key is gone"));
        assert_eq!((lost.state.as_str(), lost.reason.as_deref()), ("enrolled", Some("the node key is gone")));
        assert!(lost.to_line().starts_with("enrolled: the node key is gone; next: what the reason"));
    }

    #[test]
    fn live_depends_on_progress_and_ready_on_what_was_told() {
        let host = Arc::new(Fake::at(Timestamp::from_seconds(0)));
        let board = board(&host);
        assert_eq!(board.answer("/livez").0, 200);
        assert_eq!(board.answer("/readyz").0, 503);
        host.pass(11);
        assert_eq!(board.answer("/livez").0, 503);
        let status = Status { reason: Some("x".into()), ..board.read().status };
        board.tell(status, true, host.boot());
        assert_eq!(board.answer("/livez").0, 200);
        assert_eq!(board.answer("/readyz").0, 200);
        assert_eq!(board.answer("/else").0, 404);
    }

    #[test]
    fn metrics_and_status_say_the_same() {
        let host = Arc::new(Fake::at(Timestamp::from_seconds(0)));
        let board = board(&host);
        let status = Status {
            last_success: Some(Timestamp::from_seconds(7)),
            skew_seconds: Some(-3),
            ..board.read().status
        };
        board.tell(status.clone(), true, Duration::ZERO);
        let text = board.answer("/metrics").2;
        for line in [
            "bcd_state{state=\"enrolled\"} 1\n",
            "bcd_state{state=\"final\"} 0\n",
            "bcd_cert_not_after_seconds 3\n",
            "bcd_last_success_seconds 7\n",
            "bcd_clock_skew_seconds -3\n",
        ] {
            assert!(text.contains(line), "{line}: {text}");
        }
        let json: Status = serde_json::from_str(&board.answer("/status").2).unwrap();
        assert_eq!(json, status);
        let members = serde_json::to_value(&json).unwrap();
        for member in ["state", "next", "certNotAfter", "lastSuccess", "skewSeconds", "nodeId"] {
            assert!(members.get(member).is_some(), "{member}");
        }
    }

    #[tokio::test]
    async fn it_is_served_on_a_socket_and_a_port_and_the_socket_goes_with_it() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("bcd.sock");
        drop(std::os::unix::net::UnixListener::bind(&path).unwrap());
        let host = Arc::new(Fake::at(Timestamp::from_seconds(0)));
        let board = Arc::new(board(&host));
        let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
        let served = serve(Arc::clone(&board), Some(&path), Some(port)).await.unwrap();
        assert_eq!(ask(&path).await.unwrap().state, "enrolled");
        assert!(!is_ready(&path).await.unwrap());
        board.tell(board.read().status, true, host.boot());
        assert!(is_ready(&path).await.unwrap());
        assert!(serve(Arc::clone(&board), Some(&path), None).await.is_err(), "it is taken");
        let mut stream = tokio::net::TcpStream::connect(port).await.unwrap();
        use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
        stream.write_all(b"GET /livez HTTP/1.1\r\nHost: x\r\n\r\n").await.unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await.unwrap();
        assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
        drop(served);
        assert!(!path.exists());
        assert!(ask(&path).await.is_err());
    }
}
