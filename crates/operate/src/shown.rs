//! What is shown, as JSON: nodes by their numbers, hashes as 16 hexadecimal digits, loads in whole reads a second.

use guira_routing::{Choices, KeyHash, NodeId};
use guira_switched::controller::{BackendReport, CacheReport, PartReport};
use serde::{Deserialize, Serialize};

use crate::Overview;

/// Answers `GET /v1/status`.
#[derive(Serialize)]
pub(crate) struct Status {
    rules: usize,
    installs: u64,
    deletions: u64,
    charges: u64,
    refused: u64,
    ignored: u64,
    waiting: Waiting,
    budget: Budget,
}

#[derive(Serialize)]
struct Waiting {
    installs: usize,
    deletions: usize,
}

#[derive(Serialize)]
struct Budget {
    updates_per_s: u32,
    table_len_max: usize,
    cached_max: usize,
    deletion_delay_ms: u64,
}

impl From<Overview> for Status {
    fn from(Overview { counts, rules, waiting: (installs, deletions), budget }: Overview) -> Self {
        Self {
            rules,
            installs: counts.installs,
            deletions: counts.deletions,
            charges: counts.charges,
            refused: counts.refused,
            ignored: counts.ignored,
            waiting: Waiting { installs, deletions },
            budget: Budget {
                updates_per_s: budget.updates_per_s,
                table_len_max: budget.table_len_max,
                cached_max: budget.cached_max(),
                deletion_delay_ms: budget.deletion_delay.ns() / 1_000_000,
            },
        }
    }
}

/// Answers `GET /v1/caches`.
#[derive(Serialize)]
pub(crate) struct Caches {
    caches: Vec<Cache>,
}

#[derive(Serialize)]
struct Cache {
    id: u16,
    has_session: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    load_per_s: Option<u64>,
    backends: Vec<Charged>,
    /// Of a cache node of several threads.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    parts: Vec<Part>,
}

#[derive(Serialize)]
struct Part {
    id: u16,
    has_session: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    load_per_s: Option<u64>,
}

#[derive(Serialize)]
struct Charged {
    id: u16,
    load_per_s: u64,
}

impl From<Vec<CacheReport>> for Caches {
    fn from(reports: Vec<CacheReport>) -> Self {
        let charged = |(backend, load): (NodeId, f64)| Charged { id: backend.0, load_per_s: whole(load) };
        let part = |report: &PartReport| Part {
            id: report.part.0,
            has_session: report.has_session,
            load_per_s: report.load_per_s.map(whole),
        };
        let cache = |report: CacheReport| Cache {
            id: report.cache.0,
            has_session: report.has_session(),
            load_per_s: report.load_per_s.map(whole),
            backends: report.charge.into_iter().map(charged).collect(),
            parts: if report.parts.len() > 1 { report.parts.iter().map(part).collect() } else { Vec::new() },
        };
        Self { caches: reports.into_iter().map(cache).collect() }
    }
}

/// Answers `GET /v1/backends`.
#[derive(Serialize)]
pub(crate) struct Backends {
    backends: Vec<Backend>,
}

#[derive(Serialize)]
struct Backend {
    id: u16,
    home: u16,
    #[serde(skip_serializing_if = "Option::is_none")]
    owner: Option<u16>,
    #[serde(skip_serializing_if = "Option::is_none")]
    load_per_s: Option<u64>,
}

impl From<Vec<BackendReport>> for Backends {
    fn from(reports: Vec<BackendReport>) -> Self {
        let backend = |report: BackendReport| Backend {
            id: report.backend.0,
            home: report.home.0,
            owner: report.owner.map(|owner| owner.0),
            load_per_s: report.load_per_s.map(whole),
        };
        Self { backends: reports.into_iter().map(backend).collect() }
    }
}

/// Answers `GET /v1/rules`.
#[derive(Serialize)]
pub(crate) struct Rules {
    rules: Vec<Rule>,
    /// After which hash to go on; not there at the end.
    #[serde(skip_serializing_if = "Option::is_none")]
    next: Option<String>,
}

/// Answers `GET /v1/rules/{hash}`.
#[derive(Serialize)]
pub(crate) struct Rule {
    hash: String,
    caches: Vec<u16>,
}

impl From<(KeyHash, Choices)> for Rule {
    fn from((hash, choices): (KeyHash, Choices)) -> Self {
        Self { hash: digits(hash), caches: choices.iter().map(|cache| cache.0).collect() }
    }
}

impl Rules {
    /// A page of at most `limit`: a full one may not be the last.
    pub(crate) fn new(rules: Vec<(KeyHash, Choices)>, limit: usize) -> Self {
        let next = rules.last().filter(|_| rules.len() >= limit).map(|(hash, _)| digits(*hash));
        Self { rules: rules.into_iter().map(Rule::from).collect(), next }
    }
}

/// What `PUT /v1/backends/{id}/cache` wants.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct MoveTo {
    pub(crate) cache: u16,
}

/// And what it is answered: what is wanted by now.
#[derive(Serialize)]
pub(crate) struct Moving {
    pub(crate) backend: u16,
    pub(crate) cache: u16,
}

fn digits(hash: KeyHash) -> String {
    format!("{:016x}", hash.0)
}

/// The hash of 16 hexadecimal digits.
pub(crate) fn hash(digits: &str) -> Option<KeyHash> {
    let is_one = digits.len() == 16 && digits.bytes().all(|digit| digit.is_ascii_hexdigit());
    is_one.then(|| u64::from_str_radix(digits, 16).ok().map(KeyHash)).flatten()
}

fn whole(load: f64) -> u64 {
    load.round() as u64
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_cache_node_of_several_threads_shows_what_rules_lead_to() {
        let part = |part, load_per_s: Option<f64>| PartReport {
            part: NodeId(part),
            has_session: load_per_s.is_some(),
            load_per_s,
        };
        let parts = vec![part(100, Some(7.0)), part(101, None)];
        let report = CacheReport { cache: NodeId(100), load_per_s: Some(7.0), charge: Vec::new(), parts };
        let shown = serde_json::to_value(Caches::from(vec![report])).expect("JSON");
        let parts =
            [json!({"id": 100, "has_session": true, "load_per_s": 7}), json!({"id": 101, "has_session": false})];
        let whole = json!({"id": 100, "has_session": false, "load_per_s": 7, "backends": [], "parts": parts});
        assert_eq!(shown, json!({"caches": [whole]}), "it is not whole while a part is silent");
    }

    #[test]
    fn hashes_are_sixteen_digits() {
        for number in [0, 1, 0xfedc_ba98_7654_3210, u64::MAX] {
            assert_eq!(hash(&digits(KeyHash(number))), Some(KeyHash(number)));
        }
        for text in
            ["", "1", "0x00000000000000", "+000000000000001", "00000000000000000", "000000000000000g", "ééééé000000"]
        {
            assert_eq!(hash(text), None, "{text}");
        }
    }
}
