//! Users of an etcd of a test's own. Tests of other crates have this file too.

#![allow(dead_code, reason = "each test uses some of it")]

use std::fs;

use etcd_client::{Certificate, Client, ConnectOptions, Identity, Permission, TlsOptions};
use guira_etcd::Tls;
use tokio::runtime::{Builder, Runtime};

use super::Server;

/// The name of a user, and of his role: he may do what a cluster needs. [`READER`] may read that, and [`STRANGER`] nothing.
pub const USER: &str = "operator";
pub const READER: &str = "reader";
pub const STRANGER: &str = "stranger";
/// Their password, to begin with.
pub const PASSWORD: &str = "known to few";

const ROOT: &str = "root";

/// Who may do all.
pub struct Users {
    runtime: Runtime,
    client: Client,
}

impl Users {
    /// There are users for a cluster of this name, and nobody is asked yet who he is.
    pub fn of(server: &Server, cluster: &str) -> Self {
        let runtime = Builder::new_current_thread().enable_all().build().expect("a runtime");
        let client = runtime.block_on(async {
            let mut client = connect(server, None).await;
            let prefix = format!("/guira/{cluster}/");
            for (name, may) in [
                (USER, Some(Permission::read_write(&*prefix))),
                (READER, Some(Permission::read(&*prefix))),
                (ROOT, None),
            ] {
                client.role_add(name).await.expect("a role");
                if let Some(may) = may {
                    client.role_grant_permission(name, may.with_prefix()).await.expect("it may");
                }
            }
            for (name, role) in [(ROOT, Some(ROOT)), (USER, Some(USER)), (READER, Some(READER)), (STRANGER, None)] {
                client.user_add(name, PASSWORD, None).await.expect("a user");
                if let Some(role) = role {
                    client.user_grant_role(name, role).await.expect("it is his");
                }
            }
            client
        });
        Self { runtime, client }
    }

    /// From now on who asks has to say who he is.
    pub fn are_asked(&mut self, server: &Server) {
        let Self { runtime, client } = self;
        runtime.block_on(async {
            client.auth_enable().await.expect("it is so");
            *client = connect(server, Some(ROOT)).await;
        });
    }

    /// One more, whose name is that of a certificate.
    pub fn add_certified(&mut self, name: &str) {
        let Self { runtime, client } = self;
        runtime.block_on(async {
            client.user_add(name, PASSWORD, None).await.expect("a user");
            client.user_grant_role(name, USER).await.expect("it is his");
        });
    }

    /// Deletes that members of a cluster are alive, whom that was known of.
    pub fn silence(&mut self, server: &Server, cluster: &str, ids: &[u16]) {
        let Self { runtime, client } = self;
        runtime.block_on(async {
            *client = connect(server, Some(ROOT)).await;
            for id in ids {
                let deleted = client.delete(format!("/guira/{cluster}/alive/{id}"), None).await;
                assert_eq!(deleted.expect("it answers").deleted(), 1, "{id}");
            }
        });
    }

    /// From now on [`USER`] may read only.
    pub fn forbid(&mut self, cluster: &str) {
        let read = Permission::read(format!("/guira/{cluster}/")).with_prefix();
        self.runtime.block_on(self.client.role_grant_permission(USER, read)).expect("he may");
    }

    /// From now on [`READER`] may do what [`USER`] may.
    pub fn let_the_reader_write(&mut self) {
        self.runtime.block_on(self.client.user_grant_role(READER, USER)).expect("it is his");
    }

    /// By way of any of them, which may have been killed since.
    pub fn change_password(&mut self, server: &Server, password: &str) {
        let Self { runtime, client } = self;
        runtime.block_on(async {
            *client = connect(server, Some(ROOT)).await;
            client.user_change_password(USER, password).await.expect("it is changed");
        });
    }
}

async fn connect(server: &Server, user: Option<&str>) -> Client {
    let read = |path| fs::read(path).expect("it is readable");
    let mut options = ConnectOptions::new().with_auto_token_refresh(true);
    if let Some(Tls { ca, certificate: Some(files) }) = server.access().tls {
        let identity = Identity::from_pem(read(files.certificate), read(files.key));
        options =
            options.with_tls(TlsOptions::new().ca_certificate(Certificate::from_pem(read(ca))).identity(identity));
    }
    if let Some(user) = user {
        options = options.with_user(user, PASSWORD);
    }
    Client::connect([server.address().to_string()], Some(options)).await.expect("a client")
}
