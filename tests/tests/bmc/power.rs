//! The power of machines.

use super::{open, persona};
use relay::metal::{bmc::Reason, facts::Asked};
use shared::api::metal::PowerState;
use tests::{FakeBmc, Ills, PERSONAS};

fn resets(bmc: &FakeBmc) -> Vec<String> {
    let all = bmc.asked().into_iter().filter(|asked| asked.what == "POST ComputerSystem.Reset");
    all.map(|asked| asked.body.replace("{\"ResetType\":\"", "").replace("\"}", "")).collect()
}

#[tokio::test]
async fn what_is_on_or_off_already_is_no_failure() {
    for persona in PERSONAS {
        let bmc = FakeBmc::start(persona);
        let driver = open(&bmc).await;
        assert_eq!(driver.power(), PowerState::Off, "{}", persona.name);
        // Somebody is faster, at the button.
        bmc.switch(true);
        driver.ask(Asked::On).await.unwrap();
        let driver = open(&bmc).await;
        assert_eq!(driver.power(), PowerState::On);
        bmc.switch(false);
        driver.ask(Asked::ForceOff).await.unwrap();
        assert_eq!((bmc.is_on(), resets(&bmc).len()), (false, 2), "{}", persona.name);
    }
}

#[tokio::test]
async fn a_conflict_soon_after_a_power_off_may_pass() {
    for persona in PERSONAS {
        let bmc = FakeBmc::start(persona);
        bmc.suffer(Ills { conflicts: 1, ..Ills::default() });
        let driver = open(&bmc).await;
        let error = driver.ask(Asked::On).await.unwrap_err();
        assert_eq!((error.reason, error.status), (Reason::Refused, Some(409)), "{}", persona.name);
        assert!(error.may_pass() && !bmc.is_on());
        driver.ask(Asked::On).await.unwrap();
        assert!(bmc.is_on(), "{}", persona.name);
    }
}

#[tokio::test]
async fn what_is_asked_is_one_of_what_is_allowed() {
    for persona in PERSONAS {
        let bmc = FakeBmc::start(persona);
        bmc.switch(true);
        let driver = open(&bmc).await;
        let cycled = driver.ask(Asked::PowerCycle).await;
        let best = ["PowerCycle", "ForceRestart"].into_iter().find(|word| persona.resets.contains(word));
        match best {
            Some(word) => {
                assert_eq!((cycled, resets(&bmc)), (Ok(()), vec![word.to_owned()]), "{}", persona.name);
            }
            None => assert_eq!((cycled.unwrap_err().reason, resets(&bmc).len()), (Reason::Unsupported, 0)),
        }
        let shut = driver.ask(Asked::GracefulShutdown).await;
        let can = persona.resets.contains(&"GracefulShutdown");
        assert_eq!(shut.map_err(|error| error.reason), if can { Ok(()) } else { Err(Reason::Unsupported) });
        assert_eq!(bmc.is_on(), !can, "{}", persona.name);
    }
}

#[tokio::test]
async fn a_machine_that_is_off_is_not_restarted_but_switched_on() {
    for name in ["dell", "hpe"] {
        let bmc = FakeBmc::start(persona(name));
        open(&bmc).await.ask(Asked::PowerCycle).await.unwrap();
        assert!(bmc.is_on(), "{name}");
        assert_eq!(resets(&bmc).last().map(String::as_str), Some("On"), "{name}");
        assert_eq!(resets(&bmc).len(), 2, "{name}");
    }
}

#[tokio::test]
async fn a_refusal_that_was_done_is_none() {
    for persona in PERSONAS {
        let bmc = FakeBmc::start(persona);
        bmc.suffer(Ills { lies_about_reset: true, ..Ills::default() });
        open(&bmc).await.ask(Asked::On).await.unwrap();
        assert_eq!((bmc.is_on(), resets(&bmc).len()), (true, 1), "{}", persona.name);
        // One that was not done is one, and a restart is not sent again.
        bmc.suffer(Ills {
            lies_about_reset: true,
            ignores: vec!["ForceOff", "PowerCycle"],
            ..Ills::default()
        });
        let driver = open(&bmc).await;
        assert_eq!(driver.ask(Asked::ForceOff).await.unwrap_err().status, Some(400), "{}", persona.name);
        if persona.resets.contains(&"PowerCycle") {
            driver.ask(Asked::PowerCycle).await.unwrap_err();
            assert_eq!(resets(&bmc).iter().filter(|word| *word == "PowerCycle").count(), 1);
        }
    }
}
