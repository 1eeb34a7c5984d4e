//! Where `relay login` waits for its browser: one path on the loopback, for one answer that names the login's own state.
//! Whatever else comes is refused; nothing is shown but that the page may be closed.

use crate::config::RelayUrl;
use bytes::Bytes;
use http::{
    HeaderValue, Request, Response, StatusCode,
    header::{CACHE_CONTROL, CONNECTION, CONTENT_TYPE, HOST},
};
use http_body_util::Full;
use hyper::{body::Incoming, server::conn::http1, service::service_fn};
use hyper_util::rt::{TokioIo, TokioTimer};
use reqwest::Url;
use shared::secret::{Secret, same_bytes};
use std::{convert::Infallible, io, net::Ipv4Addr, sync::Arc, time::Duration};
use tokio::{net::TcpListener, sync::mpsc, task::JoinSet, time::timeout};

/// How long a connection may take.
const CONNECTION_TIMEOUT: Duration = Duration::from_secs(10);
/// How long the page may take to get out once the answer is here.
const LAST_WORDS: Duration = Duration::from_secs(1);
/// The most connections at a time: a browser opens a few that it does not use.
const MAX_CONNECTIONS: usize = 32;
/// The most bytes of a request's header.
const MAX_HEADER_BYTES: usize = 16 << 10;

/// A port that waits.
pub(super) struct Loopback {
    listener: TcpListener,
    host: String,
}

/// What came.
pub(super) enum Came {
    /// The code for the token.
    Code(Secret),
    /// A refusal: its code and what it says.
    Refused(String, String),
}

impl Loopback {
    /// Waits on a free port of 127.0.0.1.
    ///
    /// # Errors
    /// There is none.
    pub(super) async fn bind() -> io::Result<Self> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?;
        let host = listener.local_addr()?.to_string();
        Ok(Self { listener, host })
    }

    /// Where the browser is to come.
    #[must_use]
    pub(super) fn address(&self) -> String {
        format!("http://{}/callback", self.host)
    }

    /// Waits for the answer that names `state`.
    ///
    /// # Errors
    /// The port fails.
    pub(super) async fn wait(self, state: &str, relay: &RelayUrl) -> io::Result<Came> {
        let (tell, mut told) = mpsc::channel(1);
        let expected = Arc::new((self.host, state.to_owned(), relay.to_string()));
        let mut connections = JoinSet::new();
        let came = loop {
            let stream = tokio::select! {
                Some(came) = told.recv() => break came,
                Some(_) = connections.join_next() => continue,
                accepted = self.listener.accept(), if connections.len() < MAX_CONNECTIONS => accepted?.0,
            };
            let (tell, expected) = (tell.clone(), expected.clone());
            connections.spawn(timeout(CONNECTION_TIMEOUT, async move {
                let service = service_fn(move |request| answer(request, tell.clone(), expected.clone()));
                let mut builder = http1::Builder::new();
                builder.timer(TokioTimer::new()).max_buf_size(MAX_HEADER_BYTES).keep_alive(false);
                // A browser that went away is no news.
                drop(builder.serve_connection(TokioIo::new(stream), service).await);
            }));
        };
        drop(timeout(LAST_WORDS, async { while connections.join_next().await.is_some() {} }).await);
        Ok(came)
    }
}

async fn answer(
    request: Request<Incoming>,
    tell: mpsc::Sender<Came>,
    expected: Arc<(String, String, String)>,
) -> Result<Response<Full<Bytes>>, Infallible> {
    let (host, state, relay) = &*expected;
    let named = request.headers().get(HOST).and_then(|value| value.to_str().ok());
    let target = request.uri().to_string();
    // Another name for this machine is another site's script.
    let found = named == Some(host.as_str()) && request.method() == http::Method::GET;
    let Some(came) = came(&target, state).filter(|_| found) else {
        return Ok(page(StatusCode::NOT_FOUND, "Nothing is waiting for this here."));
    };
    let text = match &came {
        Came::Code(_) => format!("The login goes on in your terminal ({relay}). You may close this page."),
        Came::Refused(..) => {
            "Nobody was logged in; your terminal says why. You may close this page.".to_owned()
        }
    };
    // A second answer finds nobody.
    let _ = tell.try_send(came);
    Ok(page(StatusCode::OK, &text))
}

/// What a request's target says, if it is for this login.
fn came(target: &str, state: &str) -> Option<Came> {
    let url = Url::parse("http://loopback/").ok()?.join(target).ok()?;
    if url.path() != "/callback" || url.host_str() != Some("loopback") {
        return None;
    }
    let one = |wanted: &str| {
        let mut values =
            url.query_pairs().filter(|(name, _)| name == wanted).map(|(_, value)| value.into_owned());
        values.next().filter(|_| values.next().is_none())
    };
    if !same_bytes(one("state")?.as_bytes(), state.as_bytes()) {
        return None;
    }
    match (one("code"), one("error")) {
        (Some(code), None) => Some(Came::Code(Secret::new(code))),
        (None, Some(error)) => Some(Came::Refused(error, one("detail").unwrap_or_default())),
        _ => None,
    }
}

/// A page of text alone: what it says is known here.
fn page(status: StatusCode, text: &str) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::from(format!("{text}\n")));
    *response.status_mut() = status;
    let headers = [
        (CONTENT_TYPE, "text/plain; charset=utf-8"),
        (CACHE_CONTROL, "no-store"),
        (CONNECTION, "close"),
        (http::header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
        (http::header::REFERRER_POLICY, "no-referrer"),
    ];
    for (name, value) in headers {
        response.headers_mut().insert(name, HeaderValue::from_static(value));
    }
    response
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_an_answer_to_this_login_counts() {
        let code = |target: &str| match came(target, "s") {
            Some(Came::Code(code)) => Some(code.expose().to_owned()),
            _ => None,
        };
        assert_eq!(code("/callback?code=a%2Bb&state=s").as_deref(), Some("a+b"));
        for bad in [
            "/callback",
            "/callback?code=a",
            "/callback?code=a&state=t",
            "/callback?code=a&state=s&state=s",
            "/callback?code=a&code=b&state=s",
            "/callback?code=a&error=b&state=s",
            "/other?code=a&state=s",
            "//evil/callback?code=a&state=s",
            "/callback/?code=a&state=s",
        ] {
            assert!(came(bad, "s").is_none(), "{bad}");
        }
        let refused = came("/callback?error=PERMISSION_DENIED&detail=no%21&state=s", "s");
        assert!(
            matches!(refused, Some(Came::Refused(code, detail)) if code == "PERMISSION_DENIED" && detail == "no!")
        );
    }
}
