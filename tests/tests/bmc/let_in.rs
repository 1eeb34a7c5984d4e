//! Who lets us in, by what, and what stays behind.

use super::{credentials, networks, open, opened, persona, reach, refused};
use relay::metal::{
    bmc::{Bmc, Reason},
    facts::TlsTrust,
};
use shared::secret::Secret;
use std::time::{Duration, Instant};
use tests::{Auth, BMC_PASSWORD, BMC_USER, FakeBmc, Ills, PERSONAS, Stall};

const OTHER: &str = "another-17-pass";

#[tokio::test]
async fn a_wrong_password_is_tried_once() {
    for persona in PERSONAS {
        let bmc = FakeBmc::start(persona);
        let error = opened(&bmc, "wrong-17").await.err().unwrap();
        assert_eq!((error.reason, error.may_pass()), (Reason::Unauthorized, false), "{}", persona.name);
        assert_eq!(bmc.logins(), (0, 1), "{}: services lock out who tries too often", persona.name);
    }
}

#[tokio::test]
async fn a_password_that_must_be_changed_is_named() {
    for persona in PERSONAS {
        let bmc = FakeBmc::start(persona);
        bmc.suffer(Ills { password_change: true, ..Ills::default() });
        assert_eq!(refused(&bmc).await.reason, Reason::PasswordChangeRequired, "{}", persona.name);
        assert_eq!(bmc.sessions().1, 0, "{}", persona.name);
    }
}

#[tokio::test]
async fn no_session_stays_behind() {
    for persona in PERSONAS {
        let bmc = FakeBmc::start(persona);
        for _ in 0..2 * persona.max_sessions {
            let driver = open(&bmc).await;
            driver.identity().await.unwrap();
            driver.close().await;
        }
        let begun = if persona.auth == Auth::Sessions { 2 * persona.max_sessions } else { 0 };
        assert_eq!(bmc.sessions(), (begun, 0), "{}", persona.name);
    }
}

#[tokio::test]
async fn a_session_of_an_exchange_that_was_given_up_is_ended() {
    let bmc = FakeBmc::start(persona("nvidia"));
    drop(open(&bmc).await);
    until_no_session(&bmc).await;
    // As a step that takes too long: within an exchange.
    bmc.stall(Stall { after: 8, reads_too: true, done: false });
    let given_up = tokio::time::timeout(Duration::from_secs(2), async { open(&bmc).await.identity().await });
    assert!(given_up.await.is_err() && bmc.has_stalled());
    assert_eq!(bmc.sessions().0, 2);
    until_no_session(&bmc).await;
    // One whose systems are none.
    bmc.suffer(Ills { no_reset: true, ..Ills::default() });
    assert_eq!(refused(&bmc).await.reason, Reason::NoSystem);
    assert_eq!(bmc.sessions(), (3, 0));
}

async fn until_no_session(bmc: &FakeBmc) {
    let started = Instant::now();
    while bmc.sessions().1 > 0 {
        assert!(started.elapsed() < Duration::from_secs(10), "{:?}", bmc.sessions());
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

#[tokio::test]
async fn a_service_without_a_place_is_busy() {
    let bmc = FakeBmc::start(persona("nvidia"));
    bmc.suffer(Ills { sessions_full: true, ..Ills::default() });
    let error = refused(&bmc).await;
    assert_eq!((error.reason, error.status), (Reason::Busy, Some(503)));
    assert!(error.may_pass());
}

#[tokio::test]
async fn a_service_that_starts_anew_says_nothing_of_the_credentials() {
    for persona in PERSONAS {
        for after in 0..12 {
            let bmc = FakeBmc::start(persona);
            bmc.suffer(Ills { restarts_after: Some(after), ..Ills::default() });
            let said = match opened(&bmc, BMC_PASSWORD).await {
                Ok(driver) => driver.identity().await.map(drop),
                Err(error) => Err(error),
            };
            let reason = said.err().map(|error| error.reason);
            assert!(
                matches!(reason, None | Some(Reason::Busy)),
                "{} after {after}: {reason:?}",
                persona.name
            );
            bmc.suffer(Ills::default());
            open(&bmc).await.identity().await.unwrap();
        }
    }
}

#[tokio::test]
async fn a_certificate_is_judged_before_a_credential_leaves() {
    let bmc = FakeBmc::start(persona("dell"));
    let other = FakeBmc::start(persona("dell"));
    let try_by = async |tls: TlsTrust| {
        let opened = Bmc::open(&reach(bmc.address(), tls), credentials(BMC_PASSWORD), &networks()).await;
        opened.err().map(|error| error.reason)
    };
    assert_eq!(try_by(TlsTrust::Pin(other.pin())).await, Some(Reason::PinChanged));
    assert_eq!(try_by(TlsTrust::Ca(other.certificate())).await, Some(Reason::Tls));
    assert_eq!(try_by(TlsTrust::Ca("no certificate".to_owned())).await, Some(Reason::TlsUnsaid));
    assert_eq!(try_by(TlsTrust::Unsaid).await, Some(Reason::TlsUnsaid));
    assert_eq!(bmc.logins(), (0, 0));
    assert_eq!(try_by(TlsTrust::Pin(bmc.pin())).await, None);
    assert_eq!(try_by(TlsTrust::Ca(bmc.certificate())).await, None);
    assert_eq!(try_by(TlsTrust::Insecure).await, None);
    let first = reach(bmc.address(), TlsTrust::FirstUse);
    let before = bmc.logins();
    assert_eq!(Bmc::shown_key(&first, &networks()).await, Ok(Some(bmc.pin())));
    assert_eq!(bmc.logins(), before, "the key is read without a credential");

    let (pin, ca) = (TlsTrust::Pin(bmc.pin()), TlsTrust::Ca(bmc.certificate()));
    bmc.renew_certificate();
    assert_eq!((try_by(pin).await, try_by(ca).await), (Some(Reason::PinChanged), Some(Reason::Tls)));
    assert_eq!(bmc.logins(), before);
}

#[tokio::test]
async fn a_password_is_changed_where_it_is_kept() {
    for persona in PERSONAS {
        let bmc = FakeBmc::start(persona);
        let driver = open(&bmc).await;
        driver.set_password(BMC_USER, &Secret::new(OTHER.to_owned())).await.unwrap();
        drop(driver);
        assert_eq!(
            opened(&bmc, BMC_PASSWORD).await.err().map(|error| error.reason),
            Some(Reason::Unauthorized)
        );
        let driver = opened(&bmc, OTHER).await.ok().unwrap();
        // One that the service does not take is told without it.
        let error = driver.set_password(BMC_USER, &Secret::new("short".to_owned())).await.unwrap_err();
        assert_eq!((error.reason, error.status), (Reason::Refused, Some(400)), "{}", persona.name);
        let nobody = driver.set_password("nobody", &Secret::new(OTHER.to_owned())).await;
        assert_eq!(nobody.unwrap_err().reason, Reason::Unsupported);
    }
}

#[tokio::test]
async fn connections_are_kept_where_services_bear_it() {
    for (name, kept) in [("dell", true), ("hpe", true), ("supermicro", false), ("generic", false)] {
        let bmc = FakeBmc::start(persona(name));
        let driver = open(&bmc).await;
        driver.inspect().await.unwrap();
        driver.close().await;
        let most = if kept { 2 } else { usize::MAX };
        assert!(
            bmc.connections() <= most && (kept || bmc.connections() > 5),
            "{name}: {}",
            bmc.connections()
        );
    }
}
