//! `--coordinator`: where it stands who is in a cluster.

use std::{
    fmt,
    fs::File,
    io::Read,
    path::{Path, PathBuf},
    str::FromStr,
};

use guira_etcd::{Access, CertificateFiles, Etcd, EtcdError, Place, Tls, User};
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

/// How etcd is known, and who asks it.
#[derive(clap::Args, Clone, Debug, Default)]
pub(crate) struct EtcdArguments {
    /// Certificates, in PEM, of who has signed those of etcd: it is spoken with over TLS
    #[arg(long, value_name = "FILE")]
    etcd_ca: Option<PathBuf>,
    /// A certificate, in PEM, for an etcd that wants to see one
    #[arg(long, value_name = "FILE", requires_all = ["etcd_ca", "etcd_key"])]
    etcd_cert: Option<PathBuf>,
    /// Its private key, in PEM
    #[arg(long, value_name = "FILE", requires = "etcd_cert")]
    etcd_key: Option<PathBuf>,
    /// A user of etcd, who may read and write there what begins with `/guira/CLUSTER/`
    #[arg(long, value_name = "USER", requires = "etcd_password_file")]
    etcd_user: Option<String>,
    /// A file with the user's password; blanks and ends of lines around it are none of it
    #[arg(long, value_name = "FILE", requires = "etcd_user")]
    etcd_password_file: Option<PathBuf>,
}

impl EtcdArguments {
    fn access(&self) -> Access {
        let certificate = self.etcd_cert.clone().zip(self.etcd_key.clone());
        let certificate = certificate.map(|(certificate, key)| CertificateFiles { certificate, key });
        let user = self.etcd_user.clone().zip(self.etcd_password_file.clone());
        Access {
            tls: self.etcd_ca.clone().map(|ca| Tls { ca, certificate }),
            user: user.map(|(name, password)| User { name, password }),
        }
    }

    /// An etcd that answers there.
    pub(crate) fn connect(&self, place: &Place) -> Result<Etcd, String> {
        let access = self.access();
        if access.tells_the_password() && !place.is_loopback() {
            eprintln!(
                "guira: --etcd-user without --etcd-ca: whoever can listen on the way to etcd learns the password"
            );
        }
        Etcd::connect(place, &access).map_err(|error| match error {
            EtcdError::Denied(_) if self.etcd_user.is_none() && self.etcd_cert.is_none() => {
                format!("{error} (--etcd-user and --etcd-password-file, or --etcd-cert, say who asks)")
            }
            error => error.to_string(),
        })
    }

    /// Whether something is said of etcd.
    pub(crate) fn are_given(&self) -> bool {
        self.access() != Access::default()
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
