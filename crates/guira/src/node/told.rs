//! What members of a switched cluster say of themselves at their sockets: the controller, cache nodes and gateways.

use guira_switched::host::{CacheHost, ControllerHost, GatewayStatus};
use serde_json::{Value, json};

use super::{dropped::with_dropped, switches::with_switches};

/// The hottest keys that are told of.
const HOTTEST: usize = 10;

/// A controller; `None` if it has ended.
pub(super) fn controller(host: &ControllerHost) -> Option<Value> {
    let status = host.status()?;
    let told = json!({
        "rules": status.rules,
        "installs": status.counts.installs,
        "deletions": status.counts.deletions,
        "charges": status.counts.charges,
        "refused": status.counts.refused,
        "unheeded": { "ignored": status.counts.ignored },
    });
    let switches = host.switches().unwrap_or_default();
    let told = if switches.is_empty() { told } else { with_switches(told, &switches) };
    Some(with_dropped(told, &[status.wire]))
}

/// A cache node; `None` if it has ended.
pub(super) fn cache(host: &CacheHost) -> Option<Value> {
    let hottest = host.hottest(HOTTEST).into_iter();
    let hottest = hottest.map(|(key, per_s)| json!({ "key": key.escape_ascii().to_string(), "per_s": per_s.round() }));
    let hottest: Vec<Value> = hottest.collect();
    let parts: Vec<_> = host.parts().flatten().collect();
    let wires: Vec<_> = parts.iter().map(|part| part.wire).collect();
    let load = |part: &guira_switched::host::PartStatus| {
        json!({
            "id": part.part.0,
            "load_per_s": part.load_per_s,
            "items": part.items,
            "hits": part.counts.hits,
            "misses": part.counts.misses,
        })
    };
    let loads: Vec<Value> = parts.iter().map(load).collect();
    let status = host.status()?;
    let told = json!({
        "threads": loads.len(),
        "parts": loads,
        "backends": status.backends,
        "load_per_s": status.load_per_s,
        "items": status.items,
        "hits": status.counts.hits,
        "misses": status.counts.misses,
        "admitted": status.counts.admitted,
        "evicted": status.counts.evicted,
        "updated": status.counts.updated,
        "held": status.counts.held,
        "unheeded": { "ignored": status.counts.ignored },
        "hottest": hottest,
    });
    Some(with_dropped(told, &wires))
}

/// A gateway.
pub(super) fn gateway(status: &GatewayStatus) -> Value {
    let told = json!({
        "routed": status.counts.routed,
        "to_caches": status.counts.to_caches,
        "to_backends": status.counts.to_backends,
        "moved": status.counts.moved,
        "routes": status.routes,
        "pending": status.pending,
        "resent": status.counts.resent,
        "hedged": status.counts.hedged,
        "late": status.counts.late,
        "refused": status.counts.refused,
        "away": status.counts.away,
        "unheeded": { "ignored": status.counts.ignored },
        "backends_heard": status.holdings.heard,
    });
    with_dropped(told, &[status.wire])
}
