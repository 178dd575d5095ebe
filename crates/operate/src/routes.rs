//! What is asked for by method and path, and how it is answered.
//!
//! Always true: who is not to be answered is refused before anything is looked up; a body is read up to a bound; a page of rules or flows is bounded; whatever
//! is a request is answered with JSON.

use std::sync::Arc;

use axum::{
    Json, Router,
    body::{Body, to_bytes},
    extract::rejection::{PathRejection, QueryRejection},
    extract::{Path, Query, Request, State},
    http::{Method, StatusCode, Uri},
    middleware::{self, Next},
    response::{IntoResponse, Response},
    routing::{get, put},
};
use guira_openflow::Version;
use guira_routing::NodeId;
use guira_switched::{controller::RULES_AT_ONCE, host::NoFlows};
use serde::Deserialize;
use serde_json::error::Category;

use crate::{
    Access, Operated,
    flows::{Changes, FLOWS_AT_ONCE, Flows, flow},
    refusal::Refusal,
    shown::{Backends, Caches, MoveTo, Moving, Rule, Rules, Status, hash},
};

/// The longest body, in bytes: a number with a name.
const BODY_LEN_MAX: usize = 1 << 10;

/// Everything that can be asked for.
pub(crate) fn routes<O: Operated>(operated: O, access: Access) -> Router {
    Router::new()
        .route("/v1/status", get(status::<O>))
        .route("/v1/caches", get(caches::<O>))
        .route("/v1/backends", get(backends::<O>))
        .route("/v1/backends/{id}/cache", put(move_backend::<O>))
        .route("/v1/rules", get(rules::<O>))
        .route("/v1/rules/{hash}", get(rule::<O>))
        .route("/v1/flows", get(flows::<O>))
        .route("/v1/flows/changes", get(flow_changes::<O>))
        .fallback(nothing_here)
        .method_not_allowed_fallback(not_so)
        .with_state(Arc::new(operated))
        .layer(middleware::from_fn_with_state(access, admit))
}

async fn admit(State(access): State<Access>, request: Request, next: Next) -> Result<Response, Refusal> {
    access.check(request.headers())?;
    Ok(next.run(request).await)
}

async fn nothing_here(uri: Uri) -> Refusal {
    Refusal::new(StatusCode::NOT_FOUND, format!("nothing is at {}", uri.path()))
}

async fn not_so(method: Method, uri: Uri) -> Refusal {
    Refusal::new(StatusCode::METHOD_NOT_ALLOWED, format!("{} takes no {method}", uri.path()))
}

async fn status<O: Operated>(State(operated): State<Arc<O>>) -> Result<Json<Status>, Refusal> {
    Ok(Json(operated.overview().ok_or_else(Refusal::ended)?.into()))
}

async fn caches<O: Operated>(State(operated): State<Arc<O>>) -> Result<Json<Caches>, Refusal> {
    Ok(Json(operated.caches().ok_or_else(Refusal::ended)?.into()))
}

async fn backends<O: Operated>(State(operated): State<Arc<O>>) -> Result<Json<Backends>, Refusal> {
    Ok(Json(operated.backends().ok_or_else(Refusal::ended)?.into()))
}

/// Which page.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Page {
    limit: Option<usize>,
    after: Option<String>,
}

async fn rules<O: Operated>(
    State(operated): State<Arc<O>>,
    page: Result<Query<Page>, QueryRejection>,
) -> Result<Json<Rules>, Refusal> {
    let Query(Page { limit, after }) = page.map_err(|error| bad(error.body_text()))?;
    let limit = limit_of(limit, RULES_AT_ONCE)?;
    let after = after.map(|digits| hash(&digits).ok_or_else(|| bad(format!("after {digits}: write {HASH}"))));
    let rules = operated.rules_after(after.transpose()?, limit).ok_or_else(Refusal::ended)?;
    Ok(Json(Rules::new(rules, limit)))
}

fn bad(line: String) -> Refusal {
    Refusal::new(StatusCode::BAD_REQUEST, line)
}

fn limit_of(limit: Option<usize>, max: usize) -> Result<usize, Refusal> {
    let limit = limit.unwrap_or(max);
    if (1..=max).contains(&limit) { Ok(limit) } else { Err(bad(format!("limit {limit}: from 1 to {max}"))) }
}

async fn flows<O: Operated>(
    State(operated): State<Arc<O>>,
    page: Result<Query<Page>, QueryRejection>,
) -> Result<Json<Flows>, Refusal> {
    let Query(Page { limit, after }) = page.map_err(|error| bad(error.body_text()))?;
    let limit = limit_of(limit, FLOWS_AT_ONCE)?;
    let after = after.map(|id| flow(&id).ok_or_else(|| bad(format!("after {id}: write the id of a flow"))));
    let flows = operated.flows_after(after.transpose()?, limit).ok_or_else(Refusal::ended)?.map_err(no_flows)?;
    Ok(Json(Flows::new(flows, limit)))
}

/// Since when.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Since {
    since: u64,
    limit: Option<usize>,
}

async fn flow_changes<O: Operated>(
    State(operated): State<Arc<O>>,
    since: Result<Query<Since>, QueryRejection>,
) -> Result<Json<Changes>, Refusal> {
    let Query(Since { since, limit }) = since.map_err(|error| bad(error.body_text()))?;
    let changes = operated.flows_since(Version(since), limit_of(limit, FLOWS_AT_ONCE)?).ok_or_else(Refusal::ended)?;
    Ok(Json(changes.map_err(no_flows)?.into()))
}

fn no_flows(why: NoFlows) -> Refusal {
    match why {
        NoFlows::NoSwitches => Refusal::new(
            StatusCode::NOT_FOUND,
            "this cluster's gateways route, and no switches (its file has no [network])",
        ),
        NoFlows::Unknown => Refusal::new(StatusCode::GONE, "not known any more since then: read /v1/flows again"),
    }
}

/// What a hash looks like.
const HASH: &str = "16 hexadecimal digits";

async fn rule<O: Operated>(
    State(operated): State<Arc<O>>,
    digits: Result<Path<String>, PathRejection>,
) -> Result<Json<Rule>, Refusal> {
    let Path(digits) = digits.map_err(|error| Refusal::new(StatusCode::BAD_REQUEST, error.body_text()))?;
    let hash = hash(&digits).ok_or_else(|| Refusal::new(StatusCode::BAD_REQUEST, format!("{digits}: write {HASH}")))?;
    let choices = operated.rule(hash).ok_or_else(Refusal::ended)?;
    let choices = choices.ok_or_else(|| Refusal::new(StatusCode::NOT_FOUND, format!("{digits} has no rule")))?;
    Ok(Json(Rule::from((hash, choices))))
}

async fn move_backend<O: Operated>(
    State(operated): State<Arc<O>>,
    backend: Result<Path<String>, PathRejection>,
    body: Body,
) -> Result<impl IntoResponse, Refusal> {
    let Path(backend) = backend.map_err(|error| Refusal::new(StatusCode::BAD_REQUEST, error.body_text()))?;
    let number = backend.parse::<u16>();
    let backend =
        number.map_err(|_| Refusal::new(StatusCode::NOT_FOUND, format!("{backend} is no number of a backend")))?;
    let MoveTo { cache } = read(body).await?;
    operated.move_backend(NodeId(backend), NodeId(cache)).ok_or_else(Refusal::ended)??;
    Ok((StatusCode::ACCEPTED, Json(Moving { backend, cache })))
}

/// The body of a move, whatever its type is said to be.
async fn read(body: Body) -> Result<MoveTo, Refusal> {
    let too_large = |_| {
        let line = format!("a body of more than {BODY_LEN_MAX} bytes, or one that was cut off");
        Refusal::new(StatusCode::PAYLOAD_TOO_LARGE, line)
    };
    let bytes = to_bytes(body, BODY_LEN_MAX).await.map_err(too_large)?;
    serde_json::from_slice(&bytes).map_err(|error| {
        let status = match error.classify() {
            Category::Data => StatusCode::UNPROCESSABLE_ENTITY,
            Category::Syntax | Category::Eof | Category::Io => StatusCode::BAD_REQUEST,
        };
        Refusal::new(status, format!("write {{\"cache\": ID}}: {error}"))
    })
}
