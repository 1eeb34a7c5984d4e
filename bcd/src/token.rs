//! Where the join token comes from. It is read at each attempt, so that a file that was replaced counts at once, and it
//! is never shown: what is wrong with it is said by place.

use crate::{
    config::{TokenFile, fragment::TOKEN_VARIABLE},
    files, modes, state,
};
use shared::{
    access::Use,
    secret::Secret,
    token::{InvalidToken, JoinToken, MAX_LENGTH},
};
use std::{
    io::{self, Read},
    path::{Path, PathBuf},
};

/// Where systemd puts what it passes on (`systemd.exec(5)`).
pub const CREDENTIALS: &str = "CREDENTIALS_DIRECTORY";
/// The credential's name under systemd, also where a VM or BMC passes it as an SMBIOS OEM string.
const CREDENTIAL: &str = "bcd.join-token";
/// The most bytes that are read: a token, and more white space than anybody adds.
const MAX_BYTES: u64 = 4096;

/// The places, in the order in which they are asked; the first that has something is the one.
#[derive(Clone, Default)]
pub struct Sources {
    /// `$CREDENTIALS_DIRECTORY`.
    pub credentials: Option<PathBuf>,
    /// The setting `token_file`, where it is a file.
    pub file: Option<PathBuf>,
    /// What standard input had, where the setting is `-`.
    pub input: Option<Secret>,
    /// `BCD_JOIN_TOKEN`.
    pub variable: Option<Secret>,
}

/// Why there is no token.
#[derive(Debug, thiserror::Error)]
pub enum TokenError {
    /// No place has one.
    #[error(
        "there is no join token; give one as credential bcd.join-token, in the file that token_file names (in \
         /etc/bcd/bcd.toml; or --token-file), on standard input (--token-file -) or in BCD_JOIN_TOKEN (looked at: {0})"
    )]
    Absent(String),
    /// A place cannot be read.
    #[error(
        "the join token in {place} cannot be read: {source}{}",
        files::remedy(Path::new(place), Use::Read, source)
    )]
    Unreadable {
        /// Where.
        place: String,
        /// Why.
        source: io::Error,
    },
    /// What is there is no token.
    #[error("what is in {place} is no join token (it is not shown here): it {source}")]
    Malformed {
        /// Where.
        place: String,
        /// The rule it breaks.
        source: InvalidToken,
    },
}

impl Sources {
    /// Collects them; reads standard input to its end if that is the setting, since it can be read only once.
    ///
    /// # Errors
    /// Standard input cannot be read.
    pub fn new(
        setting: Option<&TokenFile>,
        variable: impl Fn(&str) -> Option<String>,
        input: impl Read,
    ) -> Result<Self, TokenError> {
        let from_input = (setting == Some(&TokenFile::StandardInput))
            .then(|| read_bounded(input))
            .transpose()
            .map_err(|source| TokenError::Unreadable { place: "standard input".into(), source })?;
        Ok(Self {
            credentials: variable(CREDENTIALS).map(PathBuf::from),
            file: match setting {
                Some(TokenFile::Path(path)) => Some(path.clone()),
                _ => None,
            },
            input: from_input,
            variable: variable(TOKEN_VARIABLE).map(Secret::new),
        })
    }

    /// The token, as it stands now.
    ///
    /// # Errors
    /// No place has one, or the first that has something has no token.
    pub fn read(&self) -> Result<JoinToken, TokenError> {
        let mut looked_at = Vec::new();
        for path in [self.credentials.as_ref().map(|folder| folder.join(CREDENTIAL)), self.file.clone()] {
            let Some(path) = path else { continue };
            match read_file(&path) {
                Ok(text) => return parse(&text, path.display().to_string()),
                Err(error) if error.kind() == io::ErrorKind::NotFound => {
                    looked_at.push(path.display().to_string());
                }
                Err(source) => {
                    return Err(TokenError::Unreadable { place: path.display().to_string(), source });
                }
            }
        }
        match (&self.input, &self.variable) {
            (Some(text), _) => parse(text, "standard input".into()),
            (None, Some(text)) => parse(text, TOKEN_VARIABLE.into()),
            (None, None) => Err(TokenError::Absent(match looked_at.as_slice() {
                [] => "no place was named".into(),
                places => places.join(", "),
            })),
        }
    }
}

fn parse(text: &Secret, place: String) -> Result<JoinToken, TokenError> {
    JoinToken::parse(text.expose().trim()).map_err(|source| TokenError::Malformed { place, source })
}

fn read_file(path: &Path) -> io::Result<Secret> {
    let text = read_bounded(files::open(path)?)?;
    let in_memory = state::volatile_filesystem(path) == Some(state::IN_MEMORY);
    modes::warn_if_open(modes::Kind::Token { in_memory }, path);
    Ok(text)
}

fn read_bounded(from: impl Read) -> io::Result<Secret> {
    const { assert!(MAX_LENGTH < 4096) };
    let mut text = String::with_capacity(MAX_LENGTH + 2);
    from.take(MAX_BYTES).read_to_string(&mut text)?;
    Ok(Secret::new(text))
}

#[cfg(test)]
mod tests {
    use super::*;
    use shared::id::JoinTokenId;

    fn token(number: u8) -> Secret {
        JoinToken::mint(JoinTokenId::derive(&[number; 32]), &[number; 32]).0.bearer()
    }

    fn id(sources: &Sources) -> Result<String, String> {
        sources.read().map(|token| token.id.to_string()).map_err(|error| error.to_string())
    }

    #[test]
    fn the_first_place_that_has_one_counts() {
        let folder = tempfile::tempdir().unwrap();
        let named = |number: u8| Ok(JoinTokenId::derive(&[number; 32]).to_string());
        let mut sources = Sources { variable: Some(token(4)), ..Sources::default() };
        assert_eq!(id(&sources), named(4));
        sources.input = Some(token(3));
        assert_eq!(id(&sources), named(3));
        let file = folder.path().join("token");
        sources.file = Some(file.clone());
        assert_eq!(id(&sources), named(3), "a file that is not there is passed over");
        std::fs::write(&file, format!(" \t{}\r\n", token(2).expose())).unwrap();
        assert_eq!(id(&sources), named(2));
        sources.credentials = Some(folder.path().to_owned());
        std::fs::write(folder.path().join(CREDENTIAL), token(1).expose()).unwrap();
        assert_eq!(id(&sources), named(1));
    }

    #[test]
    fn what_is_wrong_is_said_without_showing_it() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("token");
        let sources = Sources { file: Some(file.clone()), ..Sources::default() };
        assert!(id(&sources).unwrap_err().contains(file.to_str().unwrap()));
        for wrong in ["", "bcjt_hush", "bcjt_hush.hush", &format!("{0}{0}", token(1).expose())] {
            std::fs::write(&file, wrong).unwrap();
            let error = id(&sources).unwrap_err();
            assert!(error.contains("no join token") && !error.contains("hush"), "{error}");
        }
        std::fs::write(&file, [0xff, 0xfe]).unwrap();
        assert!(id(&sources).unwrap_err().contains("cannot be read"));
        std::fs::remove_file(&file).unwrap();
        nix::unistd::mkfifo(&file, nix::sys::stat::Mode::S_IRUSR).unwrap();
        assert!(id(&sources).unwrap_err().contains("it is a FIFO"), "and is not waited for");
    }

    #[test]
    fn standard_input_is_read_only_if_it_is_the_setting() {
        let text = token(1);
        let sources =
            Sources::new(Some(&TokenFile::StandardInput), |_| None, text.expose().as_bytes()).unwrap();
        assert!(sources.read().is_ok());
        let sources = Sources::new(None, |_| None, text.expose().as_bytes()).unwrap();
        assert!(sources.input.is_none());
    }
}
