//! `--coordinator`: where it stands who is in a cluster.

use std::{
    fmt,
    fs::File,
    io::Read,
    path::{Path, PathBuf},
    str::FromStr,
};

use guira_etcd::Place;
use guira_switched::SECRET_LEN_MIN;

/// Bytes of a file with a secret, at most.
const SECRET_FILE_LEN_MAX: usize = 4_096;

/// A file, or etcd.
#[derive(Clone, Debug)]
pub(crate) enum Coordinator {
    /// In a file, for as long as the cluster is up.
    Static(PathBuf),
    /// In etcd, where it may change.
    Etcd(Place),
}

impl FromStr for Coordinator {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text.split_once(':') {
            Some(("static", path)) if !path.is_empty() => Ok(Self::Static(path.into())),
            Some(("etcd", place)) => {
                let place = place.parse::<Place>();
                place.map(Self::Etcd).map_err(|error| format!("write etcd:HOST:PORT,...[/NAME]; {error}"))
            }
            _ => Err("write static:FILE or etcd:HOST:PORT,...[/NAME]".into()),
        }
    }
}

impl fmt::Display for Coordinator {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Static(path) => write!(f, "static:{}", path.display()),
            Self::Etcd(place) => write!(f, "etcd:{place}"),
        }
    }
}

/// The secret in a file; blanks and ends of lines around it are none of it.
pub(crate) fn read_secret(path: &Path) -> Result<String, String> {
    let told = |error: &dyn fmt::Display| format!("--secret-file {}: {error}", path.display());
    let file = File::open(path).map_err(|error| told(&error))?;
    let mut text = Vec::new();
    file.take(SECRET_FILE_LEN_MAX as u64 + 1).read_to_end(&mut text).map_err(|error| told(&error))?;
    let secret = String::from_utf8(text.trim_ascii().to_vec()).map_err(|_| told(&"its secret is not UTF-8"))?;
    if text.len() > SECRET_FILE_LEN_MAX || secret.len() < SECRET_LEN_MIN {
        let bounds =
            format!("a secret has {SECRET_LEN_MIN} to {SECRET_FILE_LEN_MAX} bytes, such as of `openssl rand -hex 16`");
        return Err(told(&bounds));
    }
    Ok(secret)
}
