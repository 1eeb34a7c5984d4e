//! Virtual media, and what machines start from.

use super::{open, persona, with};
use futures_util::future::join_all;
use relay::metal::{bmc::Reason, facts::Asked};
use tests::{FakeBmc, Ills, Media, PERSONAS, Persona};

const IMAGE: &str = "http://127.0.0.1:8080/boot/0123456789abcdef/agent.iso";

fn with_media() -> impl Iterator<Item = &'static Persona> {
    PERSONAS.iter().filter(|persona| persona.media != Media::None)
}

/// Starts the machine from an image, as a workflow does, with a BMC that is opened for each step.
async fn start_from(bmc: &FakeBmc, name: &str) {
    for step in 0..4 {
        let done = with(bmc, async |driver| match step {
            0 => driver.clear().await,
            1 => driver.insert(IMAGE).await,
            2 => driver.boot_media_once().await,
            _ => driver.ask(Asked::On).await,
        });
        assert_eq!(done.await, Ok(()), "{name}: step {step}: {:?}", bmc.asked());
    }
}

#[tokio::test]
async fn a_machine_of_each_maker_starts_from_an_image_and_then_from_its_disk() {
    for persona in with_media() {
        let bmc = FakeBmc::start(persona);
        start_from(&bmc, persona.name).await;
        assert_eq!(bmc.started(), [IMAGE], "{}", persona.name);
        // Nothing is done twice.
        let before = bmc.asked().len();
        with(&bmc, async |it| it.insert(IMAGE).await).await.unwrap();
        assert_eq!(bmc.asked().len(), before, "{}", persona.name);

        with(&bmc, async |it| it.ask(Asked::ForceOff).await).await.unwrap();
        with(&bmc, async |it| it.clear().await).await.unwrap();
        assert_eq!((bmc.inserted(), bmc.boot().0.as_str()), (None, "Disabled"), "{}", persona.name);
        let before = bmc.asked().len();
        with(&bmc, async |it| it.clear().await).await.unwrap();
        assert_eq!(bmc.asked().len(), before, "{}: what is clear is left alone", persona.name);
        with(&bmc, async |it| it.ask(Asked::On).await).await.unwrap();
        assert_eq!(bmc.started(), [IMAGE, "disk"], "{}", persona.name);
        assert_eq!((bmc.most_at_once(), bmc.sessions().1), (1, 0), "{}", persona.name);
    }
}

#[tokio::test]
async fn a_boot_source_that_was_never_used_is_cleared() {
    for persona in with_media() {
        let bmc = FakeBmc::start(persona);
        let driver = open(&bmc).await;
        driver.insert(IMAGE).await.unwrap();
        driver.boot_media_once().await.unwrap();
        let (enabled, target) = bmc.boot();
        assert_eq!((enabled.as_str(), target.as_str()), (persona.once, persona.cd), "{}", persona.name);
        driver.close().await;
        with(&bmc, async |it| it.clear().await).await.unwrap();
        assert_eq!((bmc.inserted(), bmc.boot().0.as_str()), (None, "Disabled"), "{}", persona.name);
    }
}

#[tokio::test]
async fn a_refusal_that_was_applied_is_none() {
    for persona in with_media() {
        let bmc = FakeBmc::start(persona);
        bmc.suffer(Ills { lies_about_changes: true, ..Ills::default() });
        start_from(&bmc, persona.name).await;
        assert_eq!(bmc.started(), [IMAGE], "{}", persona.name);
        with(&bmc, async |it| it.clear().await).await.unwrap();
        assert_eq!(bmc.inserted(), None, "{}", persona.name);
    }
}

#[tokio::test]
async fn another_image_is_taken_out_first() {
    for persona in with_media() {
        let bmc = FakeBmc::start(persona);
        let driver = open(&bmc).await;
        driver.insert("http://127.0.0.1/old.iso").await.unwrap();
        driver.insert(IMAGE).await.unwrap();
        assert_eq!(bmc.inserted().as_deref(), Some(IMAGE), "{}", persona.name);
    }
}

#[tokio::test]
async fn an_insertion_that_fails_by_the_services_own_fault_is_tried_so_often_and_no_more() {
    let each = with_media().map(async |persona| {
        let bmc = FakeBmc::start(persona);
        bmc.suffer(Ills { insert_errors: 2, ..Ills::default() });
        with(&bmc, async |it| it.insert(IMAGE).await).await.unwrap();
        assert_eq!(bmc.inserted().as_deref(), Some(IMAGE), "{}", persona.name);

        let bmc = FakeBmc::start(persona);
        bmc.suffer(Ills { insert_errors: 100, ..Ills::default() });
        let error = with(&bmc, async |it| it.insert(IMAGE).await).await.unwrap_err();
        assert_eq!((error.reason, error.status), (Reason::Refused, Some(500)), "{}", persona.name);
        let tried = bmc.asked().iter().filter(|asked| asked.body.contains(IMAGE)).count();
        assert!(error.may_pass() && tried == 3, "{}: {tried}", persona.name);
    });
    join_all(each).await;
}

#[tokio::test]
async fn what_is_inserted_a_while_later_is_waited_for() {
    for name in ["dell", "nvidia"] {
        let bmc = FakeBmc::start(persona(name));
        bmc.suffer(Ills { looks: 2, ..Ills::default() });
        with(&bmc, async |it| it.insert(IMAGE).await).await.unwrap();
        assert_eq!(bmc.inserted().as_deref(), Some(IMAGE), "{name}");
        assert_eq!(bmc.asked().len(), 1, "{name}: it is asked once");
    }
}

#[tokio::test]
async fn a_machine_that_starts_is_not_asked_in_every_form() {
    for persona in with_media() {
        let bmc = FakeBmc::start(persona);
        bmc.suffer(Ills { starting: 1, ..Ills::default() });
        let driver = open(&bmc).await;
        let error = driver.boot_media_once().await.unwrap_err();
        assert_eq!(error.reason, Reason::Busy, "{}: {error}", persona.name);
        assert_eq!(error.message_id.as_deref(), Some("iLO.2.14.UnableToModifyDuringSystemPOST"));
        let asked = bmc.asked().len();
        assert!(error.may_pass() && asked == 1, "{}: {:?}", persona.name, bmc.asked());
        driver.boot_media_once().await.unwrap();
        assert_eq!(bmc.boot().1, persona.cd, "{}", persona.name);
    }
}

#[tokio::test]
async fn a_boot_source_that_is_taken_and_forgotten_is_not_believed() {
    let each = with_media().map(async |persona| {
        let bmc = FakeBmc::start(persona);
        bmc.suffer(Ills { forgets_boot: true, ..Ills::default() });
        let error = with(&bmc, async |it| it.boot_media_once().await).await.unwrap_err();
        assert_eq!(error.reason, Reason::Unsettled, "{}", persona.name);
        assert!(error.may_pass(), "{}", persona.name);
    });
    join_all(each).await;
}

#[tokio::test]
async fn a_task_is_followed_and_one_that_is_gone_has_ended() {
    let bmc = FakeBmc::start(persona("nvidia"));
    bmc.suffer(Ills { tasks_vanish: true, looks: 1, ..Ills::default() });
    start_from(&bmc, "nvidia").await;
    assert_eq!(bmc.inserted().as_deref(), Some(IMAGE));

    let bmc = FakeBmc::start(persona("nvidia"));
    bmc.suffer(Ills { tasks_fail: true, ..Ills::default() });
    let error = with(&bmc, async |it| it.insert(IMAGE).await).await.unwrap_err();
    assert_eq!(error.message_id.as_deref(), Some("Base.1.8.InternalError"), "{error}");
    assert_eq!(error.reason, Reason::Refused);
}

#[tokio::test]
async fn a_service_without_media_says_so() {
    let bmc = FakeBmc::start(persona("generic"));
    let driver = open(&bmc).await;
    assert!(!driver.identity().await.unwrap().virtual_media);
    assert_eq!(driver.insert(IMAGE).await.unwrap_err().reason, Reason::NoVirtualMedia);
    driver.clear().await.unwrap();
}
