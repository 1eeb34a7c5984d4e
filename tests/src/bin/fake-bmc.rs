//! `fake-bmc`: the fake BMC of the stories as a program, for tools that test services, see [`tests::FakeBmc`].

use clap::Parser;
use std::{
    fs,
    io::{self, Write as _},
    net::SocketAddr,
    path::PathBuf,
    process::ExitCode,
    thread,
};
use tests::{FakeBmc, PERSONAS};

/// A BMC that speaks Redfish like one of several makers', until it is killed. It writes its address and its certificate's pin.
#[derive(Parser)]
#[command(version)]
struct Flags {
    /// Whose kind it is of
    #[arg(long, value_name = "NAME", default_value = "dell")]
    persona: String,
    /// Where it listens
    #[arg(long, value_name = "ADDRESS:PORT", default_value = "127.0.0.1:0")]
    listen: SocketAddr,
    /// Where its certificate is written to, in PEM, for whoever trusts it
    #[arg(long, value_name = "FILE")]
    certificate: Option<PathBuf>,
}

fn main() -> ExitCode {
    let flags = Flags::parse();
    let Some(persona) = PERSONAS.iter().find(|persona| persona.name == flags.persona) else {
        let names: Vec<&str> = PERSONAS.iter().map(|persona| persona.name).collect();
        drop(writeln!(io::stderr(), "--persona must be one of {}", names.join(", ")));
        return ExitCode::from(64);
    };
    let bmc = FakeBmc::start_at(persona, flags.listen);
    if let Some(file) = flags.certificate
        && let Err(error) = fs::write(&file, bmc.certificate())
    {
        drop(writeln!(io::stderr(), "write {}: {error}", file.display()));
        return ExitCode::FAILURE;
    }
    drop(writeln!(io::stdout(), "{} {}", bmc.address(), bmc.pin()));
    loop {
        thread::park();
    }
}
