//! Services that mean harm, or are broken: bounded in size and time, and leading nowhere.

use super::{credentials, networks, open, persona, reach, refused};
use relay::metal::{
    bmc::{Bmc, Networks, Reason},
    facts::TlsTrust,
};
use shared::api::sites::Cidr;
use std::{
    io::ErrorKind,
    net::TcpListener,
    time::{Duration, Instant},
};
use tests::{BMC_PASSWORD, FakeBmc, Ills, PERSONAS};

#[tokio::test]
async fn an_answer_that_is_too_long_is_not_read_to_its_end() {
    for ills in [Ills { big: true, ..Ills::default() }, Ills { endless: true, ..Ills::default() }] {
        let bmc = FakeBmc::start(persona("generic"));
        bmc.suffer(ills.clone());
        let started = Instant::now();
        assert_eq!(refused(&bmc).await.reason, Reason::TooLarge, "{ills:?}");
        assert!(started.elapsed() < Duration::from_secs(20), "{ills:?}");
    }
}

#[tokio::test]
async fn an_answer_leads_nowhere_but_to_its_own_service() {
    let elsewhere = TcpListener::bind("127.0.0.1:0").unwrap();
    elsewhere.set_nonblocking(true).unwrap();
    let port = elsewhere.local_addr().unwrap().port();
    let leaked = |path: &str| -> &'static str { format!("https://127.0.0.1:{port}{path}").leak() };
    let target = Some(leaked("/redfish/v1/x"));
    for persona in PERSONAS {
        let bmc = FakeBmc::start(persona);
        for (ills, reason) in [
            (Ills { systems: target, ..Ills::default() }, Reason::Malformed),
            (Ills { reset_target: target, ..Ills::default() }, Reason::NoSystem),
            (Ills { redirects: target.map(str::to_owned), ..Ills::default() }, Reason::Malformed),
        ] {
            bmc.suffer(ills.clone());
            assert_eq!(refused(&bmc).await.reason, reason, "{}: {ills:?}", persona.name);
        }
        // A session or a task elsewhere is none that is followed, and no reason to give up.
        bmc.suffer(Ills { location: target, media_target: target, ..Ills::default() });
        let driver = open(&bmc).await;
        drop(driver.insert("http://127.0.0.1/x.iso").await);
        drop(driver.boot_media_once().await);
        drop(driver.clear().await);
        driver.close().await;
        assert_eq!(bmc.sessions().1, 0, "{}", persona.name);
    }
    let nobody = elsewhere.accept().map(|(_, from)| from).map_err(|error| error.kind());
    assert_eq!(nobody, Err(ErrorKind::WouldBlock));
}

#[tokio::test]
async fn an_address_is_one_of_the_sites_networks() {
    let bmc = FakeBmc::start(persona("dell"));
    let port = bmc.address().rsplit(':').next().unwrap().to_owned();
    let open_in = async |host: &str, network: &[&str]| {
        let networks: Vec<Cidr> = network.iter().map(|network| Cidr((*network).to_owned())).collect();
        let reach = reach(format!("{host}:{port}"), TlsTrust::Insecure);
        let opened = Bmc::open(&reach, credentials(BMC_PASSWORD), &Networks::of(&networks)).await;
        opened.err().map(|error| error.reason)
    };
    assert_eq!(open_in("127.0.0.1", &["127.0.0.1/32"]).await, None);
    // A name is judged by what it resolves to; loopback is listed singly or not at all.
    assert_eq!(open_in("localhost", &["127.0.0.1/32", "::1/128"]).await, None);
    for network in [&[][..], &["10.0.0.0/8"], &["127.0.0.0/8"], &["0.0.0.0/0"]] {
        for host in ["127.0.0.1", "localhost"] {
            assert_eq!(open_in(host, network).await, Some(Reason::AddressRefused), "{host} {network:?}");
        }
    }
    for bad in ["127.0.0.1/x", "user@127.0.0.1", "http://127.0.0.1", "0x7f000001", ""] {
        assert_eq!(open_in(bad, &["127.0.0.1/32"]).await, Some(Reason::AddressRefused), "{bad}");
    }
    assert_eq!(bmc.logins().1, 0);
}

#[tokio::test]
async fn nobody_there_is_named_so() {
    let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let reach = reach(format!("127.0.0.1:{port}"), TlsTrust::Insecure);
    let error = Bmc::open(&reach, credentials(BMC_PASSWORD), &networks()).await.err().unwrap();
    assert_eq!((error.reason, error.may_pass()), (Reason::Unreachable, true));
}

mod slow {
    use super::{FakeBmc, Ills, Instant, Reason, persona, refused};

    #[tokio::test]
    async fn an_answer_that_comes_byte_by_byte_or_never_is_given_up() {
        let both = [Ills { slow: true, ..Ills::default() }, Ills { silent: true, ..Ills::default() }];
        let waits = both.map(|ills| async move {
            let bmc = FakeBmc::start(persona("generic"));
            bmc.suffer(ills);
            let started = Instant::now();
            assert_eq!(refused(&bmc).await.reason, Reason::Timeout);
            let seconds = started.elapsed().as_secs();
            assert!((55..70).contains(&seconds), "{seconds} s");
        });
        let [one, other] = waits;
        tokio::join!(one, other);
    }
}
