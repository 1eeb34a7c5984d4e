//! What services say of machines.

use super::{open, persona, refused};
use relay::metal::bmc::Reason;
use tests::{BMC_PASSWORD, FakeBmc, Ills, Media, PERSONAS};

#[tokio::test]
async fn a_machine_of_each_maker_is_read() {
    for persona in PERSONAS {
        let bmc = FakeBmc::start(persona);
        let driver = open(&bmc).await;
        let said = driver.identity().await.unwrap();
        // In whatever case a service writes them.
        assert_eq!(said.identity.product_uuid, Some(persona.uuid.to_lowercase()), "{}", persona.name);
        assert_eq!(said.identity.macs, ["00:16:3e:00:00:17", "00:16:3e:00:00:18"], "{}", persona.name);
        assert_eq!(said.identity.serial.as_deref(), Some(persona.serial));
        assert_eq!(said.identity.sku.as_deref(), Some(persona.sku).filter(|sku| !sku.is_empty()));
        // A service root without a maker: the machine's counts.
        assert_eq!(said.vendor.as_deref(), persona.vendor.or(Some("Maker")), "{}", persona.name);
        assert_eq!(said.firmware.as_deref(), Some("7.10.30.00"));
        assert_eq!(said.virtual_media, persona.media != Media::None, "{}", persona.name);

        let hardware = driver.inspect().await.unwrap();
        assert_eq!(hardware.processors, ["2 × AMD EPYC 9654 96-Core Processor"], "{}", persona.name);
        let accelerators: &[&str] = if persona.name == "generic" { &[] } else { &["1 × H100 80GB HBM3"] };
        assert_eq!(hardware.accelerators, accelerators, "{}", persona.name);
        assert_eq!((hardware.memory_mib, hardware.firmware.as_deref()), (Some(1_572_864), Some("2.4.8")));
        assert_eq!(hardware.disks, ["SAMSUNG MZQL21T9HCJR-00A07, 1788 GiB"], "{}", persona.name);
    }
}

#[tokio::test]
async fn a_member_that_is_away_is_left_out() {
    for persona in PERSONAS {
        let bmc = FakeBmc::start(persona);
        bmc.suffer(Ills { away: Some("/EthernetInterfaces/2"), ..Ills::default() });
        let said = open(&bmc).await.identity().await.unwrap();
        assert_eq!(said.identity.macs, ["00:16:3e:00:00:17"], "{}", persona.name);
        bmc.suffer(Ills { away: Some("/Drives/0"), ..Ills::default() });
        assert!(open(&bmc).await.inspect().await.unwrap().disks.is_empty(), "{}", persona.name);
        // The system itself is none that could be left out, and media that are away are not none.
        bmc.suffer(Ills { away: Some(persona.system), ..Ills::default() });
        assert_eq!(refused(&bmc).await.reason, Reason::Busy, "{}", persona.name);
        if let Some((slot, _)) = persona.slots.first() {
            bmc.suffer(Ills { away: Some(slot), ..Ills::default() });
            let reason = match super::opened(&bmc, BMC_PASSWORD).await {
                Ok(driver) => driver.identity().await.err().map(|error| error.reason),
                Err(error) => Some(error.reason),
            };
            assert_eq!(reason, Some(Reason::Busy), "{}", persona.name);
        }
    }
    let bmc = FakeBmc::start(persona("nvidia"));
    bmc.suffer(Ills { away: Some("HGX_Baseboard_0"), ..Ills::default() });
    open(&bmc).await;
}

#[tokio::test]
async fn a_uuid_that_is_none_is_none() {
    let bmc = FakeBmc::start(persona("generic"));
    bmc.suffer(Ills { uuid: Some(" "), serial: Some(""), ..Ills::default() });
    let said = open(&bmc).await.identity().await.unwrap().identity;
    assert_eq!((said.product_uuid, said.serial), (None, None));
}

#[tokio::test]
async fn a_password_that_a_service_says_is_not_told() {
    for persona in PERSONAS {
        let bmc = FakeBmc::start(persona);
        bmc.suffer(Ills { echoes: true, ..Ills::default() });
        let driver = open(&bmc).await;
        let said = driver.identity().await.unwrap();
        assert_eq!(said.identity.model, None, "{}", persona.name);
        let error = driver.insert("http://127.0.0.1/x.iso").await.err();
        assert!(!format!("{said:?} {error:?}").contains(BMC_PASSWORD), "{}", persona.name);
    }
}
