//! The PROXY protocol, version 2 (HAProxy's `proxy-protocol.txt`): a load balancer that passes TCP through says in a few
//! bytes before the client's own who the client is.
//!
//! Believed of nobody but trusted proxies, and demanded of those: one that says nothing would make all its clients one. For
//! everybody else these bytes are a broken TLS handshake. Version 1, which is text, is refused. Who the client is, is all
//! that is taken: a client certificate comes by the client's own TLS and never from a header.

use ipnet::IpNet;
use std::{
    io,
    net::{IpAddr, Ipv4Addr, Ipv6Addr},
    time::Duration,
};
use tokio::{
    io::{AsyncRead, AsyncReadExt as _},
    time::timeout,
};

/// How long the header may take; a proxy sends it with the connection.
const HEADER_TIMEOUT: Duration = Duration::from_secs(5);
/// How a header begins.
const SIGNATURE: [u8; 12] = *b"\r\n\r\n\0\r\nQUIT\n";
/// The bytes before the addresses.
const FIXED_BYTES: usize = 16;
/// The most bytes of addresses and of what a proxy adds to them.
const MAX_BYTES: u16 = 2_048;

/// The networks of proxies whose word on who the client is counts.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Trusted(Vec<IpNet>);

/// Why a trusted proxy's connection ends at once.
#[derive(Debug, thiserror::Error)]
pub enum ProxyError {
    /// It does not begin with the header.
    #[error(
        "it sent no PROXY protocol header of version 2; let it send one (send-proxy-v2), or don't name it in trusted_proxies"
    )]
    Absent,
    /// The header is none that there may be.
    #[error("its PROXY protocol header is not right: {0}")]
    Invalid(&'static str),
    /// It did not come whole.
    #[error("its PROXY protocol header did not come whole: {0}")]
    Io(#[from] io::Error),
    /// It did not come in time.
    #[error("its PROXY protocol header did not come within {} seconds", HEADER_TIMEOUT.as_secs())]
    Late,
}

impl Trusted {
    /// Trusts these networks.
    #[must_use]
    pub const fn new(networks: Vec<IpNet>) -> Self {
        Self(networks)
    }

    fn covers(&self, peer: IpAddr) -> bool {
        self.0.iter().any(|network| network.contains(&peer))
    }

    /// The client's address: the peer's, or what the peer says if it is a trusted proxy. Of a trusted one exactly the header
    /// is read, of others nothing.
    ///
    /// # Errors
    /// The peer is a trusted proxy and says nothing that counts.
    pub(super) async fn client<S>(&self, stream: &mut S, peer: IpAddr) -> Result<IpAddr, ProxyError>
    where
        S: AsyncRead + Unpin,
    {
        let peer = peer.to_canonical();
        if !self.covers(peer) {
            return Ok(peer);
        }
        let said = timeout(HEADER_TIMEOUT, header(stream)).await.map_err(|_| ProxyError::Late)??;
        Ok(said.map_or(peer, |client| client.to_canonical()))
    }
}

/// Reads a header; `None` if the proxy speaks for itself.
async fn header<S: AsyncRead + Unpin>(stream: &mut S) -> Result<Option<IpAddr>, ProxyError> {
    let mut fixed = [0; FIXED_BYTES];
    stream.read_exact(&mut fixed).await?;
    let (signature, [command, family, high, low]) = split(fixed);
    if signature != SIGNATURE {
        return Err(ProxyError::Absent);
    }
    let length = u16::from_be_bytes([high, low]);
    if length > MAX_BYTES {
        return Err(ProxyError::Invalid("it is too long"));
    }
    let mut addresses = vec![0; usize::from(length)];
    stream.read_exact(&mut addresses).await?;
    source(command, family, &addresses)
}

const fn split(fixed: [u8; FIXED_BYTES]) -> ([u8; 12], [u8; 4]) {
    let [a, b, c, d, e, f, g, h, i, j, k, l, rest @ ..] = fixed;
    ([a, b, c, d, e, f, g, h, i, j, k, l], rest)
}

/// The source of a connection, by version and command, family and protocol, and the addresses. Pure.
fn source(command: u8, family: u8, addresses: &[u8]) -> Result<Option<IpAddr>, ProxyError> {
    let short = || ProxyError::Invalid("its addresses are cut off");
    match (command, family) {
        // The proxy itself, as when it looks whether the relay is there: whatever it adds does not count.
        (0x20, _) => Ok(None),
        // A client of which it does not know the address.
        (0x21, 0x00) => Ok(None),
        (0x21, 0x11) => {
            // Source and destination, and both ports.
            let block = addresses.first_chunk::<12>().ok_or_else(short)?;
            Ok(block.first_chunk::<4>().map(|octets| Ipv4Addr::from(*octets).into()))
        }
        (0x21, 0x21) => {
            let block = addresses.first_chunk::<36>().ok_or_else(short)?;
            Ok(block.first_chunk::<16>().map(|octets| Ipv6Addr::from(*octets).into()))
        }
        (0x21, _) => Err(ProxyError::Invalid("it names neither IPv4 nor IPv6 over TCP")),
        (command, _) if command >> 4 != 2 => Err(ProxyError::Invalid("its version is not 2")),
        _ => Err(ProxyError::Invalid("its command is neither LOCAL nor PROXY")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PEER: IpAddr = IpAddr::V4(Ipv4Addr::new(10, 0, 0, 7));

    fn trusted() -> Trusted {
        Trusted::new(vec!["10.0.0.0/24".parse().unwrap(), "fd00::/64".parse().unwrap()])
    }

    fn header(command: u8, family: u8, addresses: &[u8]) -> Vec<u8> {
        let length = u16::try_from(addresses.len()).unwrap().to_be_bytes();
        [SIGNATURE.as_slice(), &[command, family], &length, addresses].concat()
    }

    /// What is made of these bytes from this peer, and how many of them are left for TLS.
    async fn client(peer: IpAddr, bytes: &[u8]) -> (Result<IpAddr, ProxyError>, usize) {
        let mut stream = bytes;
        let client = trusted().client(&mut stream, peer).await;
        (client, stream.len())
    }

    const V4: [u8; 12] = [192, 0, 2, 33, 10, 0, 0, 7, 0xdc, 0x04, 0x20, 0xfb];

    /// Behaviour 67.
    #[tokio::test]
    async fn a_trusted_proxy_names_its_client() {
        let hello = b"\x16\x03\x01";
        let v6: Vec<u8> =
            "2001:db8::5".parse::<Ipv6Addr>().unwrap().octets().into_iter().chain([0; 20]).collect();
        let mapped: Vec<u8> =
            "::ffff:192.0.2.9".parse::<Ipv6Addr>().unwrap().octets().into_iter().chain([0; 20]).collect();
        // PP2_TYPE_NOOP, as padding.
        let with_more = [V4.as_slice(), &[0x04, 0x00, 0x02, 0, 0]].concat();
        for (command, family, addresses, expected) in [
            (0x21, 0x11, V4.as_slice(), "192.0.2.33"),
            (0x21, 0x11, &with_more, "192.0.2.33"),
            (0x21, 0x21, &v6, "2001:db8::5"),
            (0x21, 0x21, &mapped, "192.0.2.9"),
            (0x20, 0x00, &[], "10.0.0.7"),
            (0x20, 0x11, V4.as_slice(), "10.0.0.7"),
            (0x21, 0x00, &[], "10.0.0.7"),
        ] {
            let bytes = [header(command, family, addresses).as_slice(), hello].concat();
            let (client, left) = client(PEER, &bytes).await;
            assert_eq!(
                (client.unwrap().to_string().as_str(), left),
                (expected, hello.len()),
                "{command:x} {family:x}"
            );
        }
    }

    #[tokio::test]
    async fn the_bytes_of_the_specification() {
        // Its section 2.2: "\x0D\x0A\x0D\x0A\x00\x0D\x0A\x51\x55\x49\x54\x0A", \x21, \x11, \x00\x0C.
        let bytes =
            [0x0d, 0x0a, 0x0d, 0x0a, 0x00, 0x0d, 0x0a, 0x51, 0x55, 0x49, 0x54, 0x0a, 0x21, 0x11, 0x00, 0x0c];
        let (client, left) = client(PEER, &[bytes.as_slice(), &V4].concat()).await;
        assert_eq!((client.unwrap().to_string().as_str(), left), ("192.0.2.33", 0));
    }

    #[tokio::test]
    async fn a_trusted_proxy_that_says_nothing_right_is_refused() {
        for bytes in [
            b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03aaaaaaaaaaaaaaaa".to_vec(),
            b"PROXY TCP4 192.0.2.33 10.0.0.7 56324 8443\r\n".to_vec(),
            header(0x11, 0x11, &V4),
            header(0x22, 0x11, &V4),
            header(0x21, 0x12, &V4),
            header(0x21, 0x31, &[0; 216]),
            header(0x21, 0x11, &[192, 0, 2, 33, 10, 0, 0]),
            header(0x21, 0x21, &V4),
            header(0x21, 0x11, &[0; 2049]),
            SIGNATURE.to_vec(),
            Vec::new(),
        ] {
            assert!(client(PEER, &bytes).await.0.is_err(), "{bytes:x?}");
        }
    }

    #[tokio::test]
    async fn nobody_else_is_listened_to() {
        let bytes = header(0x21, 0x11, &V4);
        for peer in ["10.0.1.7", "192.0.2.33", "fd00:0:0:1::1", "::1"] {
            let peer: IpAddr = peer.parse().unwrap();
            let (client, left) = client(peer, &bytes).await;
            assert_eq!((client.unwrap(), left), (peer, bytes.len()), "nothing is read");
        }
        // A peer is what it is, however its socket writes it.
        let (client, _) = client("::ffff:10.0.0.7".parse().unwrap(), &bytes).await;
        assert_eq!(client.unwrap().to_string(), "192.0.2.33");
    }

    #[tokio::test(start_paused = true)]
    async fn a_header_that_does_not_come_is_not_waited_for() {
        let (mut here, _there) = tokio::io::duplex(64);
        assert!(matches!(trusted().client(&mut here, PEER).await, Err(ProxyError::Late)));
    }
}
