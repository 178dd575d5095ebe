//! `--rest`: where a controller's REST API is, and who may ask it.

use std::{net::SocketAddr, path::PathBuf, process::Command};

use guira_operate::{Access, Bound, Limits, Token};

/// Of a controller, or of a cluster that has one.
#[derive(clap::Args, Clone, Debug, Default)]
pub(crate) struct RestArguments {
    /// Where the controller's REST API for operators is: an address and a port (default: off)
    #[arg(long, value_name = "ADDR")]
    rest: Option<SocketAddr>,
    /// A file with the token that requests to --rest have to bring along: wanted where others can reach it
    #[arg(long, value_name = "FILE", requires = "rest")]
    rest_token: Option<PathBuf>,
}

impl RestArguments {
    /// Where it is to be.
    pub(crate) fn address(&self) -> Option<SocketAddr> {
        self.rest
    }

    /// Whether anybody who can read what is on the network can read its token.
    pub(crate) fn is_overheard(&self) -> bool {
        self.rest.is_some_and(|address| !address.ip().to_canonical().is_loopback())
    }

    /// Binds it, if it is to be anywhere.
    pub(crate) fn bind(&self) -> Result<Option<Bound>, String> {
        let Some(address) = self.rest else { return Ok(None) };
        let token = self
            .rest_token
            .as_ref()
            .map(|path| Token::read(path).map_err(|error| format!("--rest-token {}: {error}", path.display())));
        let access = Access::new(address, token.transpose()?)
            .map_err(|error| format!("--rest {error}: give --rest-token FILE"))?;
        if address.port() == 0 {
            return Err(format!("--rest {address}: write a port from 1 on"));
        }
        let bound = Bound::bind(access, Limits::default());
        bound.map(Some).map_err(|error| format!("--rest {address}: cannot listen there: {error}"))
    }

    /// Gives them to a member.
    pub(crate) fn pass_on(&self, command: &mut Command) {
        let Some(address) = self.rest else { return };
        command.arg("--rest").arg(address.to_string());
        if let Some(path) = &self.rest_token {
            command.arg("--rest-token").arg(path);
        }
    }
}
