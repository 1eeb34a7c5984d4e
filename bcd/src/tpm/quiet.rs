//! Keeps the C library quiet. It reads `TSS2_LOG` before `main` could change it safely, so bcd starts itself once more,
//! as the same process, with the variable set; the unit file sets it, and saves that.

use super::Tcti;
use std::{convert::Infallible, env, io, os::unix::process::CommandExt as _, process::Command};

/// The variable, and what makes the library write nothing.
const VARIABLE: &str = "TSS2_LOG";
const NOTHING: &str = "all+NONE";

/// Starts this program again with the variable set, if it is not and there is a TPM to talk to. Call it before anything is
/// read from standard input.
///
/// # Errors
/// That can't be done: then the library is not quiet, and all else is as well.
pub fn quiet(tcti: &Tcti) -> io::Result<()> {
    if env::var_os(VARIABLE).is_some() || tcti.is_absent() {
        return Ok(());
    }
    again().map(|never| match never {})
}

/// By its path, not by /proc/self/exe: that would be its name from then on.
fn again() -> io::Result<Infallible> {
    let mut arguments = env::args_os();
    let mut command = Command::new(env::current_exe()?);
    if let Some(name) = arguments.next() {
        command.arg0(name);
    }
    Err(command.args(arguments).env(VARIABLE, NOTHING).exec())
}
