//! Words to the service manager (sd_notify(3)): one datagram each to `$NOTIFY_SOCKET`. Without one, nothing.

use std::{
    os::{
        linux::net::SocketAddrExt as _,
        unix::net::{SocketAddr, UnixDatagram},
    },
    time::Duration,
};

/// The service manager, if there is one.
#[derive(Debug)]
pub struct Notifier {
    socket: Option<(UnixDatagram, SocketAddr)>,
    watchdog: Option<Duration>,
}

impl Notifier {
    /// From the environment that the service manager gave.
    #[must_use]
    pub fn new(variable: impl Fn(&str) -> Option<String>) -> Self {
        let socket = variable("NOTIFY_SOCKET").and_then(|name| {
            let address = match name.strip_prefix('@') {
                Some(name) => SocketAddr::from_abstract_name(name).ok()?,
                None => SocketAddr::from_pathname(&name).ok()?,
            };
            Some((UnixDatagram::unbound().ok()?, address))
        });
        let is_for_us = variable("WATCHDOG_PID").is_none_or(|pid| pid == std::process::id().to_string());
        let watchdog = variable("WATCHDOG_USEC")
            .filter(|_| is_for_us)
            .and_then(|text| text.parse().ok())
            .filter(|micros| *micros > 0)
            .map(Duration::from_micros);
        Self { socket, watchdog }
    }

    /// How often it wants to hear that we live; we tell it twice as often.
    #[must_use]
    pub fn watchdog(&self) -> Option<Duration> {
        self.watchdog
    }

    /// The service is up.
    pub fn ready(&self) {
        self.send("READY=1");
    }

    /// Settings are read again; `boot` is not asked for here but CLOCK_MONOTONIC, as the protocol wants it.
    pub fn reloading(&self) {
        let now = nix::time::clock_gettime(nix::time::ClockId::CLOCK_MONOTONIC)
            .map_or(Duration::ZERO, Duration::from);
        self.send(&format!("RELOADING=1\nMONOTONIC_USEC={}", now.as_micros()));
    }

    /// The service goes down.
    pub fn stopping(&self) {
        self.send("STOPPING=1");
    }

    /// We live.
    pub fn alive(&self) {
        self.send("WATCHDOG=1");
    }

    /// One line for `systemctl status`.
    pub fn status(&self, text: &str) {
        self.send(&format!("STATUS={}", text.replace('\n', " ")));
    }

    fn send(&self, text: &str) {
        if let Some((socket, address)) = &self.socket
            && let Err(error) = socket.send_to_addr(text.as_bytes(), address)
        {
            tracing::debug!(%error, "the service manager does not listen");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn heard(name: &str, listener: &UnixDatagram) {
        let variable = |key: &str| match key {
            "NOTIFY_SOCKET" => Some(name.to_owned()),
            "WATCHDOG_USEC" => Some("30000000".to_owned()),
            _ => None,
        };
        let notifier = Notifier::new(variable);
        assert_eq!(notifier.watchdog(), Some(Duration::from_secs(30)));
        notifier.ready();
        notifier.reloading();
        notifier.status("one\nline");
        let receive = || {
            let mut buffer = [0; 256];
            let length = listener.recv(&mut buffer).unwrap();
            String::from_utf8(buffer[..length].to_vec()).unwrap()
        };
        assert_eq!(receive(), "READY=1");
        let reloading = receive();
        let micros = reloading.strip_prefix("RELOADING=1\nMONOTONIC_USEC=").unwrap();
        assert!(micros.parse::<u64>().unwrap() > 0);
        assert_eq!(receive(), "STATUS=one line");
    }

    #[test]
    fn it_is_heard_on_a_path_and_on_an_abstract_name() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("notify");
        let listener = UnixDatagram::bind(&path).unwrap();
        heard(path.to_str().unwrap(), &listener);
        let name = format!("bcd-notify-test-{}", std::process::id());
        let address = SocketAddr::from_abstract_name(&name).unwrap();
        heard(&format!("@{name}"), &UnixDatagram::bind_addr(&address).unwrap());
    }

    #[test]
    fn nobody_there_is_no_error_and_another_processs_watchdog_is_not_ours() {
        Notifier::new(|_| None).ready();
        Notifier::new(|name| (name == "NOTIFY_SOCKET").then(|| "/nonexistent/socket".into())).ready();
        let other = Notifier::new(|name| match name {
            "WATCHDOG_USEC" => Some("1000".into()),
            "WATCHDOG_PID" => Some("1".into()),
            _ => None,
        });
        assert_eq!(other.watchdog(), None);
    }
}
