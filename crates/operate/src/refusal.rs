//! What is said instead of an answer: a status, and one line.

use axum::{
    Json,
    http::{HeaderValue, StatusCode, header::WWW_AUTHENTICATE},
    response::{IntoResponse, Response},
};
use guira_switched::controller::MoveError;
use serde::Serialize;

/// The longest line, in characters: some quote what was asked.
const LINE_LEN_MAX: usize = 200;

/// It.
#[derive(PartialEq, Eq, Debug)]
pub(crate) struct Refusal {
    status: StatusCode,
    line: String,
}

#[derive(Serialize)]
struct Shown<'l> {
    error: &'l str,
}

impl Refusal {
    /// What would break the line is spelt out, and it is cut where it is too long.
    pub(crate) fn new(status: StatusCode, line: impl AsRef<str>) -> Self {
        let characters = line.as_ref().chars().take(LINE_LEN_MAX);
        let spelt = |character: char| match character.is_control() {
            true => character.escape_default().to_string(),
            false => character.to_string(),
        };
        Self { status, line: characters.map(spelt).collect() }
    }

    /// Nobody is there who could answer.
    pub(crate) fn ended() -> Self {
        Self::new(StatusCode::SERVICE_UNAVAILABLE, "the controller has ended")
    }
}

impl From<MoveError> for Refusal {
    fn from(error: MoveError) -> Self {
        let status = match error {
            MoveError::UnknownBackend(_) | MoveError::UnknownCache(_) => StatusCode::NOT_FOUND,
            MoveError::SilentCache(_) => StatusCode::CONFLICT,
        };
        Self::new(status, error.to_string())
    }
}

impl IntoResponse for Refusal {
    fn into_response(self) -> Response {
        let mut response = (self.status, Json(Shown { error: &self.line })).into_response();
        if self.status == StatusCode::UNAUTHORIZED {
            response.headers_mut().insert(WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
        }
        response
    }
}
