//! `--coordinator`: where it stands who is in a cluster.

use std::{
    fmt,
    fs::File,
    io::Read,
    path::{Path, PathBuf},
    str::FromStr,
};

use guira_etcd::Place;

/// Bytes of a file with a secret, at most.
const SECRET_FILE_LEN_MAX: u64 = 4_096;

/// It.
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
    let mut text = String::new();
    file.take(SECRET_FILE_LEN_MAX).read_to_string(&mut text).map_err(|error| told(&error))?;
    Ok(text.trim_ascii().to_owned())
}
