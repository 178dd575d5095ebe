//! Prometheus metrics under the names of prometheus/memcached_exporter, so that dashboards and alerts made for it work.
//!
//! Always true: every metric is a row of `stats` under another name; nothing is counted for Prometheus alone.

use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::sync::Arc;

use guira_item::{ClassStats, EngineStats, Service};
use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::gauge::ConstGauge;
use prometheus_client::registry::Registry;

use crate::shared::Shared;
use crate::stats;
use crate::tally::ClassTotals;

/// What the exposition is called in HTTP.
pub(crate) const CONTENT_TYPE: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Counter,
    Gauge,
}
use Kind::{Counter, Gauge};

/// Row of `stats`, metric (a counter's `_total` is added when written), kind, help.
const GENERAL: &[(&str, &str, Kind, &str)] = &[
    ("uptime", "memcached_uptime_seconds", Gauge, "Number of seconds since the server started"),
    ("time", "memcached_time_seconds", Gauge, "Current Unix time according to the server"),
    ("rusage_user", "memcached_process_user_cpu_seconds", Counter, "Accumulated user time of this process"),
    ("rusage_system", "memcached_process_system_cpu_seconds", Counter, "Accumulated system time of this process"),
    ("bytes_read", "memcached_read_bytes", Counter, "Bytes read from the network"),
    ("bytes_written", "memcached_written_bytes", Counter, "Bytes sent to the network"),
    ("curr_connections", "memcached_current_connections", Gauge, "Open connections"),
    ("max_connections", "memcached_max_connections", Gauge, "Connections allowed at a time"),
    ("total_connections", "memcached_connections", Counter, "Connections opened since the start"),
    ("rejected_connections", "memcached_connections_rejected", Counter, "Connections rejected at the -c limit"),
    ("conn_yields", "memcached_connections_yielded", Counter, "Connections that yielded at the -R limit"),
    ("listen_disabled_num", "memcached_connections_listener_disabled", Counter, "Times the listener was paused"),
    ("accepting_conns", "memcached_accepting_connections", Gauge, "Whether connections are accepted now"),
    ("bytes", "memcached_current_bytes", Gauge, "Bytes used by items"),
    ("limit_maxbytes", "memcached_limit_bytes", Gauge, "Bytes the server may use for storage"),
    ("curr_items", "memcached_current_items", Gauge, "Items stored now"),
    ("total_items", "memcached_items", Counter, "Items stored since the start"),
    ("evictions", "memcached_items_evicted", Counter, "Items removed to free memory for new ones"),
    ("reclaimed", "memcached_items_reclaimed", Counter, "Entries stored in the memory of expired ones"),
    ("store_too_large", "memcached_item_too_large", Counter, "Stores refused for the item's length"),
    ("store_no_memory", "memcached_item_no_memory", Counter, "Stores refused for lack of memory"),
    ("lru_crawler_starts", "memcached_lru_crawler_starts", Counter, "Times a crawler was started"),
    ("crawler_reclaimed", "memcached_lru_crawler_reclaimed", Counter, "Items freed by the crawler"),
    ("crawler_items_checked", "memcached_lru_crawler_items_checked", Counter, "Items examined by the crawler"),
    ("moves_to_cold", "memcached_lru_crawler_moves_to_cold", Counter, "Items moved to the cold LRU (none here)"),
    ("moves_to_warm", "memcached_lru_crawler_moves_to_warm", Counter, "Items moved to the warm LRU (none here)"),
    ("moves_within_lru", "memcached_lru_crawler_moves_within_lru", Counter, "Items moved within an LRU (none here)"),
    ("direct_reclaims", "memcached_direct_reclaims", Counter, "Times workers had to evict directly"),
    ("lru_crawler", "memcached_lru_crawler_enabled", Gauge, "Whether the crawler may be asked for anything"),
    ("lru_crawler_sleep", "memcached_lru_crawler_sleep", Gauge, "Microseconds between items (unused here)"),
    ("lru_crawler_tocrawl", "memcached_lru_crawler_to_crawl", Gauge, "Items a run and class, 0: no limit"),
    ("lru_maintainer_thread", "memcached_lru_crawler_maintainer_thread", Gauge, "Whether a thread looks after items"),
    ("hot_lru_pct", "memcached_lru_crawler_hot_percent", Gauge, "Share of the hot LRU (none here)"),
    ("warm_lru_pct", "memcached_lru_crawler_warm_percent", Gauge, "Share of the warm LRU (none here)"),
    ("hot_max_factor", "memcached_lru_crawler_hot_max_factor", Gauge, "Idle age of the hot LRU (none here)"),
    ("warm_max_factor", "memcached_lru_crawler_warm_max_factor", Gauge, "Idle age of the warm LRU (none here)"),
    ("total_malloced", "memcached_malloced_bytes", Gauge, "Bytes of memory in slab pages"),
    ("hash_bytes", "memcached_hash_bytes", Gauge, "Bytes of the index"),
    // Beyond the exporter's names.
    ("cp_malformed", "guira_cp_malformed", Counter, "Connections closed for what is no request of CPSERVER's protocol"),
    ("server_threads_awake", "guira_server_threads_awake", Gauge, "Server threads that look for messages now"),
    ("messages_served", "guira_messages_served", Counter, "Messages that server threads have served"),
];

/// The same of what only some servers have: one with a store, and a gateway of a cluster. What a service counts of itself beside, it names itself.
const BESIDES: &[(&str, &str, Kind, &str)] = &[
    ("store_reads_at_once", "guira_store_reads_at_once", Counter, "Reads of the store that did not wait"),
    ("store_reads_waited", "guira_store_reads_waited", Counter, "Reads of the store that waited"),
    ("store_writes", "guira_store_writes", Counter, "Records written or removed"),
    ("store_write_batches", "guira_store_write_batches", Counter, "Batches these were written in"),
    ("store_syncs", "guira_store_syncs", Counter, "Times that what was written was forced to disk"),
    ("store_failures", "guira_store_failures", Counter, "Reads and writes of the store that failed"),
    ("store_pending", "guira_store_pending", Gauge, "Reads and writes that the store has not completed"),
    ("store_read_only", "guira_store_read_only", Gauge, "Whether the store, or one of a cluster's, takes no writes"),
    ("store_limit", "guira_store_limit_operations_per_second", Gauge, "Operations a second that the store may do"),
    ("store_limit_waits", "guira_store_limit_waits", Counter, "Reads and batches that waited because of that"),
    ("store_disk_bytes", "guira_store_disk_bytes", Gauge, "Bytes on disk"),
    ("store_memory_bytes", "guira_store_memory_bytes", Gauge, "Bytes of memory that the store uses"),
    ("store_records", "guira_store_records", Gauge, "Records in the store, about, dead ones included"),
    ("cluster_backends", "guira_cluster_backends", Gauge, "Backends that own partitions"),
    ("cluster_backends_heard", "guira_cluster_backends_heard", Gauge, "Of these, heard of in the last three seconds"),
    ("cluster_backends_read_only", "guira_cluster_backends_read_only", Gauge, "Of these, without writes"),
    ("cluster_routes", "guira_cluster_routes", Gauge, "Hashes of keys that are routed to cache nodes"),
    ("cluster_pending", "guira_cluster_pending", Gauge, "Requests that wait for the cluster"),
    ("cluster_to_caches", "guira_cluster_to_caches", Counter, "Requests sent to cache nodes first"),
    ("cluster_to_backends", "guira_cluster_to_backends", Counter, "Requests sent to backends"),
    ("cluster_resent", "guira_cluster_resent", Counter, "Requests sent again for want of an answer"),
    ("cluster_hedged", "guira_cluster_hedged", Counter, "Reads asked of a backend while a cache node was waited for"),
    ("cluster_routed", "guira_cluster_routed", Counter, "Reads left to the network to route"),
    ("cluster_late", "guira_cluster_late", Counter, "Requests not answered in time"),
    ("cluster_refused", "guira_cluster_refused", Counter, "Requests refused since too many waited"),
    ("cluster_away", "guira_cluster_away", Counter, "Requests refused since their backend was away"),
    ("cluster_moved", "guira_cluster_moved", Counter, "Requests sent on since their partition had moved"),
];

/// Row of `stats`, labels `command` and `status` of `memcached_commands_total`.
const COMMANDS: &[(&str, &str, &str)] = &[
    ("get_hits", "get", "hit"),
    ("get_misses", "get", "miss"),
    ("delete_hits", "delete", "hit"),
    ("delete_misses", "delete", "miss"),
    ("incr_hits", "incr", "hit"),
    ("incr_misses", "incr", "miss"),
    ("decr_hits", "decr", "hit"),
    ("decr_misses", "decr", "miss"),
    ("cas_hits", "cas", "hit"),
    ("cas_misses", "cas", "miss"),
    ("cas_badval", "cas", "badval"),
    ("touch_hits", "touch", "hit"),
    ("touch_misses", "touch", "miss"),
    ("cmd_flush", "flush", "hit"),
];

/// The same of a class, for `memcached_slab_commands_total`.
const CLASS_COMMANDS: &[(&str, &str, &str)] = &[
    ("get_hits", "get", "hit"),
    ("delete_hits", "delete", "hit"),
    ("incr_hits", "incr", "hit"),
    ("decr_hits", "decr", "hit"),
    ("cas_hits", "cas", "hit"),
    ("cas_badval", "cas", "badval"),
    ("touch_hits", "touch", "hit"),
];

/// Row of `stats items` of a class, label `lru` of `memcached_slab_lru_hits_total`.
const CLASS_LRUS: &[(&str, &str)] =
    &[("hits_to_hot", "hot"), ("hits_to_warm", "warm"), ("hits_to_cold", "cold"), ("hits_to_temp", "temporary")];

/// Row of `stats items` or `stats slabs` of a class, metric, kind, help; the label is `slab`.
const CLASSES: &[(&str, &str, Kind, &str)] = &[
    ("number", "memcached_slab_current_items", Gauge, "Items in this class"),
    ("age", "memcached_slab_items_age_seconds", Gauge, "Age of the oldest item"),
    ("evicted", "memcached_slab_items_evicted", Counter, "Items removed to make room"),
    ("evicted_nonzero", "memcached_slab_items_evicted_nonzero", Counter, "Of these, with an expiry"),
    ("evicted_time", "memcached_slab_items_evicted_time_seconds", Gauge, "Idle time of the item evicted last"),
    ("evicted_unfetched", "memcached_slab_items_evicted_unfetched", Counter, "Items evicted and never read"),
    ("expired_unfetched", "memcached_slab_items_expired_unfetched", Counter, "Items expired and never read"),
    ("crawler_reclaimed", "memcached_slab_items_crawler_reclaimed", Counter, "Items freed by the crawler"),
    ("outofmemory", "memcached_slab_items_outofmemory", Counter, "Requests that found no memory"),
    ("reclaimed", "memcached_slab_items_reclaimed", Counter, "Entries stored in the memory of expired ones"),
    ("tailrepairs", "memcached_slab_items_tailrepairs", Counter, "Repairs (none here)"),
    ("moves_to_cold", "memcached_slab_items_moves_to_cold", Gauge, "Items moved to the cold LRU (none here)"),
    ("moves_to_warm", "memcached_slab_items_moves_to_warm", Gauge, "Items moved to the warm LRU (none here)"),
    ("moves_within_lru", "memcached_slab_items_moves_within_lru", Gauge, "Items moved within an LRU (none here)"),
    ("number_hot", "memcached_slab_hot_items", Gauge, "Items in the hot LRU (none here)"),
    ("number_warm", "memcached_slab_warm_items", Gauge, "Items in the warm LRU (none here)"),
    ("number_cold", "memcached_slab_cold_items", Gauge, "Items in the cold LRU (all)"),
    ("number_temp", "memcached_slab_temporary_items", Gauge, "Items in the temporary LRU (none here)"),
    ("age_hot", "memcached_slab_hot_age_seconds", Gauge, "Age of the oldest hot item"),
    ("age_warm", "memcached_slab_warm_age_seconds", Gauge, "Age of the oldest warm item"),
    ("mem_requested", "memcached_slab_mem_requested_bytes", Gauge, "Bytes of items in this class"),
    ("chunk_size", "memcached_slab_chunk_size_bytes", Gauge, "Bytes of a chunk"),
    ("chunks_per_page", "memcached_slab_chunks_per_page", Gauge, "Chunks in a page"),
    ("total_pages", "memcached_slab_current_pages", Gauge, "Pages of this class"),
    ("total_chunks", "memcached_slab_current_chunks", Gauge, "Chunks of this class"),
    ("used_chunks", "memcached_slab_chunks_used", Gauge, "Chunks that hold an item"),
    ("free_chunks", "memcached_slab_chunks_free", Gauge, "Chunks that are free"),
    ("free_chunks_end", "memcached_slab_chunks_free_end", Gauge, "Free chunks at the end of the last page"),
];

struct Snapshot<S: Service>(Arc<Shared<S>>);

impl<S: Service> fmt::Debug for Snapshot<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Snapshot")
    }
}

/// The registry of a server; encoding it reads the numbers.
pub(crate) fn registry<S: Service>(shared: Arc<Shared<S>>) -> Registry {
    let mut registry = Registry::default();
    registry.register_collector(Box::new(Snapshot(shared)));
    registry
}

fn write_one(encoder: prometheus_client::encoding::MetricEncoder<'_>, kind: Kind, value: f64) -> fmt::Result {
    match kind {
        Counter => ConstCounter::new(value).encode(encoder),
        Gauge => ConstGauge::new(value).encode(encoder),
    }
}

/// A row's value; what is on is 1.
fn number(text: &str) -> f64 {
    if text == "yes" { 1.0 } else { text.parse().unwrap_or(0.0) }
}

fn metric_type(kind: Kind) -> MetricType {
    if kind == Counter { MetricType::Counter } else { MetricType::Gauge }
}

/// A slab class.
struct Class {
    label: String,
    has_pages: bool,
    /// Its rows in `stats items` and `stats slabs`.
    values: HashMap<&'static str, u64>,
}

impl Class {
    /// The engine's classes, and those whose last page has gone but which have counts: a counter must not end.
    fn all(engine: &EngineStats, counted: &ClassTotals) -> Vec<Self> {
        let mut classes: BTreeMap<u32, ClassStats> = engine.classes.iter().map(|class| (class.class, *class)).collect();
        for class in counted.counted() {
            classes.entry(class).or_insert_with(|| ClassStats { class, ..ClassStats::default() });
        }
        classes.values().map(|class| Self::new(class, counted)).collect()
    }

    fn new(class: &ClassStats, counted: &ClassTotals) -> Self {
        let values = stats::items_of(class, counted).into_iter().chain(stats::slabs_of(class, counted)).collect();
        Self { label: class.class.to_string(), has_pages: class.total_pages > 0, values }
    }

    fn value(&self, row: &str) -> f64 {
        self.values.get(row).copied().unwrap_or(0) as f64
    }
}

impl<S: Service> Collector for Snapshot<S> {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let shared = &self.0;
        // A name that both have, `evictions`, is the number.
        let mut rows = stats::settings(shared);
        rows.extend(stats::general(shared));
        let engine = shared.engine_stats();
        rows.push(("total_malloced".into(), engine.total_malloced.to_string().into()));
        let rows: HashMap<_, _> = rows.iter().map(|(name, value)| (name.as_ref(), value.as_ref())).collect();
        let value = |name: &str| rows.get(name).map_or(0.0, |text| number(text));

        let up = encoder.encode_descriptor("memcached_up", "Whether the server answers", None, MetricType::Gauge)?;
        write_one(up, Gauge, 1.0)?;
        let help = "The version of this server";
        let mut version = encoder.encode_descriptor("memcached_version", help, None, MetricType::Gauge)?;
        write_one(version.encode_family(&[("version", shared.settings.version)])?, Gauge, 1.0)?;
        for (row, metric, kind, help) in GENERAL {
            write_one(encoder.encode_descriptor(metric, help, None, metric_type(*kind))?, *kind, value(row))?;
        }
        for (row, metric, kind, help) in BESIDES.iter().filter(|(row, ..)| rows.contains_key(row)) {
            write_one(encoder.encode_descriptor(metric, help, None, metric_type(*kind))?, *kind, value(row))?;
        }
        for number in &engine.own {
            let (metric, kind) = (format!("guira_{}", number.name), if number.adds_up { Counter } else { Gauge });
            let metric = encoder.encode_descriptor(&metric, number.help, None, metric_type(kind))?;
            write_one(metric, kind, value(number.name))?;
        }
        let help = "Requests by command and status";
        let mut commands = encoder.encode_descriptor("memcached_commands", help, None, MetricType::Counter)?;
        for (row, command, status) in COMMANDS {
            let labels = [("command", *command), ("status", *status)];
            write_one(commands.encode_family(&labels)?, Counter, value(row))?;
        }
        // memcached counts a cas as a set as well.
        let sets = value("cmd_set") - value("cas_hits") - value("cas_misses") - value("cas_badval");
        let labels = [("command", "set"), ("status", "hit")];
        write_one(commands.encode_family(&labels)?, Counter, sets.max(0.0))?;

        let classes = Class::all(&engine, &shared.tallies.class_totals());
        if classes.is_empty() {
            return Ok(());
        }
        for (row, metric, kind, help) in CLASSES {
            let mut family = encoder.encode_descriptor(metric, help, None, metric_type(*kind))?;
            for class in classes.iter().filter(|class| class.has_pages || *kind == Counter) {
                write_one(family.encode_family(&[("slab", class.label.as_str())])?, *kind, class.value(row))?;
            }
        }
        let help = "Requests by class, command and status";
        let mut commands = encoder.encode_descriptor("memcached_slab_commands", help, None, MetricType::Counter)?;
        for class in &classes {
            for (row, command, status) in CLASS_COMMANDS {
                let labels = [("slab", class.label.as_str()), ("command", *command), ("status", *status)];
                write_one(commands.encode_family(&labels)?, Counter, class.value(row))?;
            }
            let sets = class.value("cmd_set") - class.value("cas_hits") - class.value("cas_badval");
            let labels = [("slab", class.label.as_str()), ("command", "set"), ("status", "hit")];
            write_one(commands.encode_family(&labels)?, Counter, sets.max(0.0))?;
        }
        let help = "Reads that found their item, by class and LRU";
        let mut hits = encoder.encode_descriptor("memcached_slab_lru_hits", help, None, MetricType::Counter)?;
        for class in &classes {
            for (row, lru) in CLASS_LRUS {
                let labels = [("slab", class.label.as_str()), ("lru", *lru)];
                write_one(hits.encode_family(&labels)?, Counter, class.value(row))?;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_class_keeps_its_counters_when_its_last_page_has_gone() {
        let mut counts = vec![Default::default(); 9];
        counts[7] = [5; guira_memcache::ClassCounter::NAMES.len()];
        let evicted = ClassStats { class: 3, evicted: 2, ..ClassStats::default() };
        let full = ClassStats { class: 8, total_pages: 1, ..ClassStats::default() };
        let engine = EngineStats { classes: vec![evicted, full], ..EngineStats::default() };
        let classes = Class::all(&engine, &ClassTotals::from(counts));
        let seen: Vec<_> = classes
            .iter()
            .map(|class| (class.label.as_str(), class.has_pages, class.value("evicted"), class.value("get_hits")))
            .collect();
        assert_eq!(seen, [("3", false, 2.0, 0.0), ("7", false, 0.0, 5.0), ("8", true, 0.0, 0.0)]);
    }
}
