//! Where the relay connects to, where it does not, and what becomes of whatever is answered there.

use super::{
    testing::{Answers, Face, Receiver},
    *,
};
use tokio::net::TcpListener;

fn outside(listed: &[&str]) -> Outside {
    Outside::new(listed.iter().map(|network| network.parse().unwrap()).collect(), None).unwrap()
}

fn target(url: &str) -> Target {
    url.parse().unwrap()
}

#[test]
fn one_refused_address_among_good_ones_refuses_a_name() {
    let (good, bad) = ("1.1.1.1".parse().unwrap(), "10.0.0.1".parse().unwrap());
    let outside = outside(&[]);
    assert!(outside.allows(&[good]));
    for addresses in [&[good, bad][..], &[bad, good], &[bad], &[]] {
        assert!(!outside.allows(addresses), "{addresses:?}");
    }
    assert!(self::outside(&["10.0.0.0/8"]).allows(&[good, bad]));
}

#[test]
fn the_machines_own_addresses_are_known() {
    let own = own().unwrap();
    assert!(own.contains(&IpAddr::from([127, 0, 0, 1])), "{own:?}");
}

#[tokio::test]
async fn a_name_is_judged_by_what_it_resolves_to() {
    let outside = outside(&[]);
    for url in [
        "https://localhost/",
        "https://LOCALHOST:8443/",
        "https://127.0.0.1/",
        "https://0x7f.1/",
        "https://[::ffff:127.0.0.1]/",
        "https://[::1]/",
        "https://169.254.169.254/latest/meta-data/",
    ] {
        assert_eq!(outside.open(&target(url)).await.err(), Some(Unreached::RefusedAddress), "{url}");
    }
    // Not every resolver knows it with its dot.
    assert!(outside.open(&target("https://localhost./")).await.is_err());
    let listed = self::outside(&["127.0.0.0/8", "::1/128"]);
    for url in ["https://localhost/", "https://127.0.0.1/", "https://[::ffff:127.0.0.1]/"] {
        assert!(listed.open(&target(url)).await.is_ok(), "{url}");
    }
    let none = outside.open(&target("https://no-such-name.invalid/")).await.err();
    assert_eq!(none, Some(Unreached::NotResolved));
    assert!(outside.may_name(&target("https://hooks.example.org")));
    assert!(!outside.may_name(&target("https://192.168.0.1")));
}

#[tokio::test]
async fn the_connection_goes_to_what_was_judged_whatever_the_name_says_by_then() {
    let judged: SocketAddr = "127.0.0.9:443".parse().unwrap();
    let resolver = Judged(vec![judged]);
    for name in ["localhost", "hooks.example.org"] {
        let found: Vec<SocketAddr> = resolver.resolve(name.parse().unwrap()).await.unwrap().collect();
        assert_eq!(found, [judged]);
    }
}

/// Sends a body, as a delivery does.
async fn sent(way: &Outside, url: &str) -> Result<(), Unreached> {
    let client = way.open(&target(url)).await?;
    let by = Instant::now() + client::REQUEST_TIMEOUT;
    settled(client.post(url).body("{}").send().await.map_err(|error| unreached(&error))?, by).await
}

#[tokio::test]
async fn only_a_status_of_success_is_success_and_no_redirect_is_followed() {
    let receiver = Receiver::start(Face::Good).await;
    let other = Receiver::start(Face::Good).await;
    let way = receiver.outside();
    for status in [200, 201, 202, 204, 299] {
        receiver.answer(Answers::Status(status));
        assert_eq!(sent(&way, &receiver.url("hook")).await, Ok(()), "{status}");
    }
    for status in [301, 302, 303, 307, 308] {
        for to in [receiver.url("elsewhere"), other.url("elsewhere"), "http://127.0.0.1/".to_owned()] {
            receiver.answer(Answers::Redirect(status, to));
            assert_eq!(sent(&way, &receiver.url("hook")).await, Err(Unreached::Status(status)));
        }
    }
    for status in [300, 304, 400, 401, 404, 410, 429, 500, 503] {
        receiver.answer(Answers::Status(status));
        assert_eq!(sent(&way, &receiver.url("hook")).await, Err(Unreached::Status(status)));
    }
    assert!(receiver.taken().iter().all(|taken| taken.path == "/hook" && taken.body == "{}"));
    assert!(other.taken().is_empty());
}

#[tokio::test]
async fn a_receiver_that_lies_costs_a_bounded_time_and_room() {
    let receiver = Receiver::start(Face::Good).await;
    let way = receiver.outside();
    for (answers, expected, seconds) in [
        (Answers::Endless, Ok(()), 0..3),
        (Answers::SlowBody, Ok(()), 1..3),
        (Answers::HangsUp, Err(Unreached::NotReached), 0..3),
        (Answers::Never, Err(Unreached::Timeout), 9..12),
    ] {
        receiver.answer(answers.clone());
        let began = Instant::now();
        assert_eq!(sent(&way, &receiver.url("hook")).await, expected, "{answers:?}");
        assert!(seconds.contains(&began.elapsed().as_secs()), "{answers:?}: {:?}", began.elapsed());
    }
    let nobody = TcpListener::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap();
    assert_eq!(sent(&way, &format!("https://{nobody}/")).await, Err(Unreached::NotReached));
}

#[tokio::test]
async fn a_receiver_that_is_another_or_speaks_old_tls_is_sent_nothing() {
    for face in [Face::WrongName, Face::WrongCa, Face::Old] {
        let receiver = Receiver::start(face).await;
        assert_eq!(sent(&receiver.outside(), &receiver.url("hook")).await, Err(Unreached::Tls), "{face:?}");
        assert!(receiver.taken().is_empty(), "{face:?}");
    }
    // The system's CAs do not know it.
    let receiver = Receiver::start(Face::Good).await;
    let system = outside(&["127.0.0.0/8", "::1/128"]);
    assert_eq!(sent(&system, &receiver.url("hook")).await, Err(Unreached::Tls));
}

#[test]
fn what_is_told_of_a_failure_is_one_of_a_few_words() {
    let all = [
        (Unreached::RefusedAddress, "refusedAddress"),
        (Unreached::NotResolved, "notResolved"),
        (Unreached::NotReached, "notReached"),
        (Unreached::Tls, "tls"),
        (Unreached::Timeout, "timeout"),
        (Unreached::Status(503), "status 503"),
    ];
    for (why, word) in all {
        assert_eq!(why.to_string(), word);
    }
}
