//! Certificates for an etcd of a test's own, and for who asks it. Tests of other crates have this file too.

#![allow(dead_code, reason = "each test uses some of it")]

use std::{
    fs,
    path::{Path, PathBuf},
};

use guira_etcd::{Access, CertificateFiles, Tls};
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, DnType, IsCa, KeyPair};
use tempfile::TempDir;

/// Whose certificate who asks shows.
pub const CLIENT: &str = "client";

/// Files of who signs, and of what he has signed: for etcd on 127.0.0.1, and for who asks.
pub struct Certificates {
    folder: TempDir,
}

impl Certificates {
    pub fn new() -> Self {
        let certificates = Self { folder: tempfile::tempdir().expect("a folder") };
        certificates.renew();
        certificates
    }

    /// Somebody else signs, and has signed: the same files.
    pub fn renew(&self) {
        let mut of_issuer = params("who signs");
        of_issuer.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let issuer = CertifiedIssuer::self_signed(of_issuer, key()).expect("a certificate");
        fs::write(self.ca(), issuer.pem()).expect("it is written");
        for name in ["etcd", CLIENT] {
            let key = key();
            let certificate = params(name).signed_by(&key, &issuer).expect("a certificate");
            let files = self.files(name);
            fs::write(&files.certificate, certificate.pem()).expect("it is written");
            fs::write(&files.key, key.serialize_pem()).expect("it is written");
        }
    }

    pub fn files(&self, name: &str) -> CertificateFiles {
        CertificateFiles { certificate: self.path(&format!("{name}.pem")), key: self.path(&format!("{name}.key")) }
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    pub fn ca(&self) -> PathBuf {
        self.path("ca.pem")
    }

    /// As who asks shows himself.
    pub fn access(&self) -> Access {
        Access { tls: Some(Tls { ca: self.ca(), certificate: Some(self.files(CLIENT)) }), user: None }
    }

    /// What etcd is told of them: it wants one of who asks.
    pub fn arguments(&self) -> Vec<PathBuf> {
        let CertificateFiles { certificate, key } = self.files("etcd");
        let flag = |name: &str, path: &Path| [PathBuf::from(name), path.to_owned()];
        let files =
            [flag("--cert-file", &certificate), flag("--key-file", &key), flag("--trusted-ca-file", &self.ca())];
        files.into_iter().flatten().chain(["--client-cert-auth".into()]).collect()
    }
}

fn key() -> KeyPair {
    KeyPair::generate().expect("a key")
}

fn params(name: &str) -> CertificateParams {
    let mut params = CertificateParams::new(["127.0.0.1".to_owned(), "localhost".to_owned()]).expect("names");
    params.distinguished_name.push(DnType::CommonName, name);
    params
}
