//! What the stories share: a database of a test's own, machines that do not exist, and the built programs as
//! processes.
//!
//! A helper here never decides what is right; stories do. Whatever a helper started ends with it, also when its test
//! fails. Failing to set up is a panic that says what to do: there is no test without its world.
#![forbid(unsafe_code)]

mod bcd;
mod bmc;
pub mod client;
mod cluster;
mod database;
mod hold;
pub mod load;
mod local;
mod machine;
mod metal_vm;
mod oidc;
mod programs;
mod real_metal;
mod relay;
mod simulated_tpm;
mod swtpm;
mod tpm_maker;
mod vm;
mod wire;

pub use self::{
    bcd::{Bcd, BcdProcess},
    bmc::{
        Asked as AskedOfBmc, Auth, BMC_PASSWORD, BMC_USER, Disable, Etags, FakeBmc, Ills, Insert, Media,
        Mode, PERSONAS, Persona, Stall,
    },
    client::{post, try_post},
    cluster::{Asked, Cluster, FakeCluster},
    database::{Database, Kind},
    hold::Hold,
    local::{IMAGE_REGION, LocalRelay, Machine, unique},
    machine::FakeMachine,
    metal_vm::{MetalHardware, MetalVm, StartFrom, agent_image, free_port},
    oidc::{Browser, FakeProvider, Lie, Page, RealProvider},
    programs::{Finished, finish, program},
    real_metal::{Emulator, RealMetal},
    relay::{Answer, RelayProcess},
    simulated_tpm::{SimulatedTpm, key_public},
    swtpm::{Device, Made, Swtpm},
    tpm_maker::TpmMaker,
    vm::{HOST, Hardware, Vm, disk_image},
    wire::{Fault, Wire},
};

/// Makes two tests of one story, an async function of a [`Database`]: on SQLite and on PostgreSQL.
#[macro_export]
macro_rules! on_both_databases {
    ($($story:ident),+ $(,)?) => {
        mod on_sqlite {
            $(#[tokio::test]
            async fn $story() {
                super::$story($crate::Database::sqlite()).await;
            })+
        }
        mod on_postgres {
            $(#[tokio::test]
            async fn $story() {
                super::$story($crate::Database::postgres()).await;
            })+
        }
    };
}
