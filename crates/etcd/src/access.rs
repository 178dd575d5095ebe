//! How etcd is known for what it is, and what it is told of who asks.
//!
//! Always true: files are read anew whenever etcd is turned to anew, so that what is in them may be renewed while members run; what is in them is never told.

use std::{
    fmt,
    fs::{self, File},
    io::{self, Read},
    path::{Path, PathBuf},
};

use etcd_client::{Certificate, Client, ConnectOptions, Identity, TlsOptions};

use crate::error::cause_of;

/// Bytes of a file, at most.
const FILE_LEN_MAX: u64 = 1 << 20;

/// What a certificate begins with, in PEM.
const CERTIFICATE: &str = "-----BEGIN CERTIFICATE-----";

/// What is seen of an etcd that has hung up before it has said anything.
const HUNG_UP: [&str; 4] = ["connection closed", "connection reset", "broken pipe", "fatal alert"];

/// How etcd is known, and who asks it.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Access {
    /// It is spoken with over TLS.
    pub tls: Option<Tls>,
    /// Who asks, for an etcd that has users. Without TLS, whoever can listen on the way learns the password.
    pub user: Option<User>,
}

/// Who is known by which certificate.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Tls {
    /// A file of certificates, in PEM, of who may have signed etcd's.
    pub ca: PathBuf,
    /// What is shown to an etcd that wants a certificate, too.
    pub certificate: Option<CertificateFiles>,
}

/// A certificate that is shown.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct CertificateFiles {
    /// A file of the certificate, and of those that have signed it if etcd has not got these, in PEM.
    pub certificate: PathBuf,
    /// A file of its private key, in PEM.
    pub key: PathBuf,
}

/// A user of etcd.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct User {
    /// Its name.
    pub name: String,
    /// A file of its password; blanks and ends of lines around it are none of it.
    pub password: PathBuf,
}

/// Why a file is not what it is to be.
#[derive(Debug)]
pub struct AccessError {
    path: PathBuf,
    why: Wrong,
}

#[derive(Debug)]
enum Wrong {
    Unreadable(io::Error),
    NotAFile,
    TooLong,
    NoCertificate,
    NoPassword,
    /// What TLS says of it.
    Tls(String),
}

impl fmt::Display for AccessError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: ", self.path.display())?;
        match &self.why {
            Wrong::Unreadable(error) => error.fmt(f),
            Wrong::NotAFile => f.write_str("it is not a file"),
            Wrong::TooLong => write!(f, "it has more than {FILE_LEN_MAX} bytes"),
            Wrong::NoCertificate => f.write_str("no certificate is in it, in PEM"),
            Wrong::NoPassword => f.write_str("no password of UTF-8 is in it"),
            Wrong::Tls(why) => f.write_str(why),
        }
    }
}

impl std::error::Error for AccessError {}

impl AccessError {
    fn of(path: &Path, why: Wrong) -> Self {
        Self { path: path.to_owned(), why }
    }
}

impl Access {
    /// Whether who listens on the way learns the password.
    pub fn tells_the_password(&self) -> bool {
        self.user.is_some() && self.tls.is_none()
    }

    /// Why nobody has answered, with what may be missing where etcd has hung up.
    pub(crate) fn with_advice(&self, why: String) -> String {
        let said = why.to_lowercase();
        if !HUNG_UP.iter().any(|text| said.contains(text)) {
            return why;
        }
        match &self.tls {
            None => format!("{why} (does it want TLS?)"),
            Some(Tls { certificate: None, .. }) => format!("{why} (does it want a certificate?)"),
            Some(_) => why,
        }
    }

    /// What a connection is made with, by what the files are now.
    pub(crate) fn options(&self) -> Result<ConnectOptions, AccessError> {
        let options = match self.tls()? {
            Some(tls) => ConnectOptions::new().with_tls(tls),
            None => ConnectOptions::new(),
        };
        let Some(User { name, password: path }) = &self.user else { return Ok(options) };
        let password = String::from_utf8(read(path)?.trim_ascii().to_vec()).ok();
        let password = password.filter(|password| !password.is_empty());
        Ok(options.with_user(name, password.ok_or_else(|| AccessError::of(path, Wrong::NoPassword))?))
    }

    /// The same, but for who asks.
    pub(crate) fn options_without_user(&self) -> Result<ConnectOptions, AccessError> {
        Self { user: None, ..self.clone() }.options()
    }

    fn tls(&self) -> Result<Option<TlsOptions>, AccessError> {
        let Some(Tls { ca, certificate }) = &self.tls else { return Ok(None) };
        let tls = tls_by(ca)?;
        Ok(Some(match certificate {
            Some(CertificateFiles { certificate, key }) => {
                tls.identity(Identity::from_pem(read_certificates(certificate)?, read(key)?))
            }
            None => tls,
        }))
    }

    /// Looks whether a connection can be made with what the files are now. Nobody is spoken with.
    pub(crate) async fn check(&self, host: &str) -> Result<(), AccessError> {
        self.options()?;
        let is_fit = async |path: &Path, options| {
            let told = |error: etcd_client::Error| AccessError::of(path, Wrong::Tls(cause_of(&error)));
            // It connects once something is asked.
            Client::connect([host], Some(options)).await.map(drop).map_err(told)
        };
        let Some(Tls { ca, certificate }) = &self.tls else { return Ok(()) };
        // One after the other: what is wrong is told of the one that it is in.
        for certificates in [Some(ca), certificate.as_ref().map(|files| &files.certificate)].into_iter().flatten() {
            is_fit(certificates, ConnectOptions::new().with_tls(tls_by(certificates)?)).await?;
        }
        match certificate {
            Some(files) => is_fit(&files.key, self.options_without_user()?).await,
            None => Ok(()),
        }
    }
}

/// TLS with whoever these certificates have signed.
fn tls_by(certificates: &Path) -> Result<TlsOptions, AccessError> {
    Ok(TlsOptions::new().ca_certificate(Certificate::from_pem(read_certificates(certificates)?)))
}

fn read(path: &Path) -> Result<Vec<u8>, AccessError> {
    let told = |error| AccessError::of(path, Wrong::Unreadable(error));
    // What is waited for, as a pipe is, would be waited for by members that run.
    if !fs::metadata(path).map_err(told)?.is_file() {
        return Err(AccessError::of(path, Wrong::NotAFile));
    }
    let mut bytes = Vec::new();
    File::open(path).and_then(|file| file.take(FILE_LEN_MAX + 1).read_to_end(&mut bytes)).map_err(told)?;
    let is_too_long = bytes.len() as u64 > FILE_LEN_MAX;
    if is_too_long { Err(AccessError::of(path, Wrong::TooLong)) } else { Ok(bytes) }
}

fn read_certificates(path: &Path) -> Result<Vec<u8>, AccessError> {
    let bytes = read(path)?;
    let is_there = bytes.windows(CERTIFICATE.len()).any(|window| window == CERTIFICATE.as_bytes());
    if is_there { Ok(bytes) } else { Err(AccessError::of(path, Wrong::NoCertificate)) }
}
