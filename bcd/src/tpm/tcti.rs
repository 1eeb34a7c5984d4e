//! Which TPM: the setting `tcti`, as the TSS names it (TCG TSS 2.0 TCTI).

use super::{
    TpmError,
    error::{failed, is_io},
};
use std::{
    fs::OpenOptions,
    os::unix::fs::FileTypeExt as _,
    path::{Path, PathBuf},
    str::FromStr as _,
};
use tss_esapi::{
    Error,
    tcti_ldr::{DeviceConfig, TctiNameConf},
};

/// The kernel's TPM behind its resource manager; there only for a TPM 2.0.
pub const DEFAULT_TCTI: &str = "device:/dev/tpmrm0";
const DEFAULT_DEVICE: &str = "/dev/tpmrm0";

/// EBUSY: somebody has a device that only one can have, such as `/dev/tpm0`.
const BUSY: i32 = libc::EBUSY;

/// How a TPM is reached.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Tcti {
    /// A character device.
    Device(PathBuf),
    /// Somebody who answers for a TPM: swtpm, a simulator, a resource manager.
    Server {
        /// As it was written.
        text: String,
        /// As the library wants it.
        conf: TctiNameConf,
    },
}

impl Default for Tcti {
    fn default() -> Self {
        Self::Device(DEFAULT_DEVICE.into())
    }
}

impl Tcti {
    /// Reads the setting.
    ///
    /// # Errors
    /// The rule that it breaks.
    pub fn parse(text: &str) -> Result<Self, &'static str> {
        const FORM: &str = "must be device:/PATH (device:/dev/tpmrm0), swtpm:host=HOST,port=PORT, mssim:host=HOST,port=PORT or tabrmd";
        if let Some(path) = text.strip_prefix("device:") {
            return if path.starts_with('/') { Ok(Self::Device(path.into())) } else { Err(FORM) };
        }
        match TctiNameConf::from_str(text) {
            Ok(TctiNameConf::Device(_)) | Err(_) => Err(FORM),
            Ok(conf) => Ok(Self::Server { text: text.to_owned(), conf }),
        }
    }

    /// Whether there is no such device.
    #[must_use]
    pub fn is_absent(&self) -> bool {
        matches!(self, Self::Device(path) if !path.exists())
    }

    /// What the library is given. The path is looked at first: a missing device and a dead port look the same to the
    /// library, and it would write commands into a regular file.
    pub(super) fn name_conf(&self) -> Result<TctiNameConf, TpmError> {
        match self {
            Self::Server { conf, .. } => Ok(conf.clone()),
            Self::Device(path) => {
                let found = path.metadata().map_err(|error| missing(path, &error))?;
                if !found.file_type().is_char_device() {
                    return Err(TpmError::NoDevice(path.clone()));
                }
                let conf = DeviceConfig::from_str(&path.to_string_lossy());
                conf.map(TctiNameConf::Device).map_err(|_| TpmError::NoDevice(path.clone()))
            }
        }
    }

    /// Why the library could not open it; that is asked only after it could not.
    pub(super) fn diagnose(&self, error: Error) -> TpmError {
        if !is_io(error) {
            return failed("loading the library for this tcti (is its package there, libtss2-tcti-…?)")(
                error,
            );
        }
        let path = match self {
            Self::Server { text, .. } => return TpmError::NoAnswer(text.clone()),
            Self::Device(path) => path,
        };
        unopened(path, OpenOptions::new().read(true).write(true).open(path).map(drop))
    }
}

/// Why the library could not open a device that we try to open now.
fn unopened(path: &Path, tried: std::io::Result<()>) -> TpmError {
    match tried {
        // It has been given back meanwhile.
        Ok(()) => TpmError::Busy,
        Err(error) if error.raw_os_error() == Some(BUSY) => TpmError::Busy,
        Err(error) => TpmError::Unusable { path: path.to_owned(), why: error.to_string() },
    }
}

fn missing(path: &Path, error: &std::io::Error) -> TpmError {
    match error.kind() {
        std::io::ErrorKind::NotFound => TpmError::Missing(path.to_owned()),
        _ => TpmError::Unusable { path: path.to_owned(), why: error.to_string() },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_have_one_of_the_forms() {
        assert_eq!(Tcti::parse(DEFAULT_TCTI), Ok(Tcti::default()));
        for text in ["swtpm:host=127.0.0.1,port=2321", "mssim:host=localhost,port=1", "tabrmd"] {
            assert!(matches!(Tcti::parse(text), Ok(Tcti::Server { .. })), "{text}");
        }
        for text in ["", "device", "device:", "device:tpm0", "/dev/tpm0", "swtpm:port=99999", "cmd:sh"] {
            assert!(Tcti::parse(text).is_err(), "{text}");
        }
    }

    #[test]
    fn a_device_that_another_program_has_is_busy_and_one_that_is_denied_is_not() {
        let path = Path::new("/dev/tpm0");
        let of = |number: i32| unopened(path, Err(std::io::Error::from_raw_os_error(number)));
        assert_eq!((of(libc::EBUSY), unopened(path, Ok(()))), (TpmError::Busy, TpmError::Busy));
        for number in [libc::EACCES, libc::EPERM, libc::ENODEV] {
            assert!(matches!(of(number), TpmError::Unusable { .. }), "{number}");
        }
    }

    #[test]
    fn a_path_that_is_no_device_is_never_written_to() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("tpm0");
        let tcti = Tcti::Device(path.clone());
        assert!(tcti.is_absent());
        assert_eq!(tcti.name_conf(), Err(TpmError::Missing(path.clone())));
        std::fs::write(&path, "precious").unwrap();
        assert!(!tcti.is_absent());
        assert_eq!(tcti.name_conf(), Err(TpmError::NoDevice(path)));
    }
}
