//! The `relay` program: reads the command line, and serves if that is what it says.

use relay::{
    api,
    cli::{self, Exit, Start, World},
    clock::Clock,
    config::Settings,
    fault::chain,
    log,
    random::Random,
    server,
};
use shared::api::Method;
use std::process::ExitCode;

fn main() -> ExitCode {
    let methods: Vec<Method> = match api::registry() {
        Ok(registry) => registry.methods().copied().collect(),
        Err(fault) => {
            cli::say(&format_args!("build the method table: {fault}"));
            return Exit::Refused.into();
        }
    };
    let world =
        World { env: &variable, names: &variables, clock: &Clock::system(), random: &Random::system() };
    match cli::start(std::env::args_os(), &methods, &world) {
        Start::Serve(settings) => serve(*settings).into(),
        Start::Ended(exit) => exit.into(),
    }
}

/// A variable of the environment. An empty one is none; odd bytes show as such and fail where they are judged.
fn variable(name: &str) -> Option<String> {
    let value = std::env::var_os(name)?.to_string_lossy().into_owned();
    if value.is_empty() { None } else { Some(value) }
}

fn variables() -> Vec<String> {
    std::env::vars_os().filter_map(|(name, _)| name.into_string().ok()).collect()
}

fn serve(settings: Settings) -> Exit {
    if let Err(error) = log::start(&settings.log) {
        cli::say(&error);
        return Exit::Refused;
    }
    let runtime = match tokio::runtime::Builder::new_multi_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => {
            tracing::error!(error = chain(&error), "the runtime can't start");
            return Exit::TryAgain;
        }
    };
    match runtime.block_on(server::serve(settings)) {
        Ok(()) => Exit::Ok,
        Err(error) => {
            tracing::error!(error = chain(&error), "the relay can't serve");
            error.exit()
        }
    }
}
