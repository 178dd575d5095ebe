//! What `stats` answers: memcached's names in memcached's order, so that whatever reads them there reads them here.
//!
//! Numbers about mechanisms that do not exist here (LRU segments) are there and 0.

use std::borrow::Cow;
use std::sync::atomic::Ordering::Relaxed;

use guira_item::{ClassStats, EngineStats, Service};
use guira_memcache::{ClassCounter, Output};

use crate::cpu_time::CpuTime;
use crate::shared::Shared;
use crate::tally::ClassTotals;

/// A name and what it stands at.
pub(crate) type Row = (Cow<'static, str>, Cow<'static, str>);

/// Writes rows and the end line.
pub(crate) fn write(rows: &[Row], output: &mut Output) {
    for (name, value) in rows {
        for part in ["STAT ", name, " ", value, "\r\n"] {
            output.push(part.as_bytes());
        }
    }
    output.push(b"END\r\n");
}

struct Rows(Vec<Row>);

impl Rows {
    fn add(&mut self, name: impl Into<Cow<'static, str>>, value: impl ToString) {
        self.0.push((name.into(), value.to_string().into()));
    }

    fn zeros(&mut self, names: &[&'static str]) {
        for name in names {
            self.0.push(((*name).into(), "0".into()));
        }
    }
}

fn yes_no(value: bool) -> &'static str {
    if value { "yes" } else { "no" }
}

/// `stats`.
pub(crate) fn general<S: Service>(shared: &Shared<S>) -> Vec<Row> {
    let mut rows = Rows(Vec::with_capacity(100));
    let totals = shared.tallies.totals();
    let total = |name: &str| totals.get(name).copied().unwrap_or(0);
    let rare = &shared.tallies.rare;
    let engine = shared.engine_stats();
    let connections = shared.tallies.connections();
    let cpu = CpuTime::of_this_process();

    rows.add("pid", std::process::id());
    rows.add("uptime", shared.watch.uptime_s());
    rows.add("time", shared.watch.unix().as_secs());
    rows.add("version", shared.settings.version);
    rows.add("libevent", "mio-epoll");
    rows.add("pointer_size", usize::BITS);
    rows.add("rusage_user", cpu.user_text());
    rows.add("rusage_system", cpu.system_text());
    rows.add("max_connections", shared.settings.connections_max);
    rows.add("curr_connections", connections);
    rows.add("total_connections", rare.connections_total.load(Relaxed));
    rows.add("rejected_connections", rare.connections_rejected.load(Relaxed));
    rows.add("connection_structures", connections);
    rows.add("response_obj_oom", total("response_obj_oom"));
    rows.add("response_obj_count", shared.mailboxes.len());
    rows.add("response_obj_bytes", shared.output_len.load(Relaxed));
    rows.add("read_buf_count", shared.mailboxes.len());
    rows.add("read_buf_bytes", shared.mailboxes.len() * crate::desk::READ_LEN + shared.input_len.load(Relaxed));
    rows.add("read_buf_bytes_free", shared.mailboxes.len() * crate::desk::READ_LEN);
    rows.add("read_buf_oom", total("read_buf_oom"));
    rows.add("reserved_fds", reserved_fds(shared.settings.threads));
    for name in [
        "cmd_get",
        "cmd_set",
        "cmd_flush",
        "cmd_touch",
        "cmd_meta",
        "get_hits",
        "get_misses",
        "get_expired",
        "get_flushed",
        "delete_misses",
        "delete_hits",
        "incr_misses",
        "incr_hits",
        "decr_misses",
        "decr_hits",
        "cas_misses",
        "cas_hits",
        "cas_badval",
        "touch_hits",
        "touch_misses",
        "store_too_large",
        "store_no_memory",
        "auth_cmds",
        "auth_errors",
    ] {
        rows.add(name, total(name));
    }
    if shared.settings.idle_timeout.is_some() {
        rows.add("idle_kicks", total("idle_kicks"));
    }
    rows.add("bytes_read", total("bytes_read"));
    rows.add("bytes_written", total("bytes_written"));
    rows.add("limit_maxbytes", engine.limit_maxbytes);
    rows.add("accepting_conns", u8::from(!shared.accept_paused.load(Relaxed)));
    rows.add("listen_disabled_num", rare.listen_disabled.load(Relaxed));
    rows.add("time_in_listen_disabled_us", rare.listen_disabled_us.load(Relaxed));
    rows.add("threads", shared.settings.threads);
    rows.add("conn_yields", total("conn_yields"));
    rows.add("hash_power_level", engine.hash_power_level);
    rows.add("hash_bytes", engine.hash_bytes);
    rows.add("hash_is_expanding", u8::from(engine.hash_is_expanding));
    rows.zeros(&[
        "slab_reassign_rescues",
        "slab_reassign_chunk_rescues",
        "slab_reassign_evictions_nomem",
        "slab_reassign_inline_reclaim",
        "slab_reassign_busy_items",
        "slab_reassign_busy_deletes",
        "slab_reassign_running",
    ]);
    rows.add("slabs_moved", engine.slabs_moved);
    rows.zeros(&["lru_crawler_running"]);
    rows.add("lru_crawler_starts", rare.crawler_starts.load(Relaxed));
    rows.add("lru_maintainer_juggles", rare.maintenance_rounds.load(Relaxed));
    rows.add("malloc_fails", engine.out_of_memory);
    rows.zeros(&["log_worker_dropped"]);
    rows.add("log_worker_written", total("log_worker_written"));
    rows.add("log_watcher_skipped", shared.watchers.skipped());
    rows.add("log_watcher_sent", rare.watcher_lines_sent.load(Relaxed));
    rows.add("log_watchers", shared.watchers.count());
    rows.zeros(&["unexpected_napi_ids", "round_robin_fallback"]);
    rows.add("bytes", engine.bytes);
    rows.add("curr_items", engine.curr_items);
    rows.add("total_items", engine.total_items);
    rows.zeros(&["slab_global_page_pool"]);
    rows.add("expired_unfetched", engine.expired_unfetched);
    rows.add("evicted_unfetched", engine.evicted_unfetched);
    rows.zeros(&["evicted_active"]);
    rows.add("evictions", engine.evictions);
    rows.add("reclaimed", engine.reclaimed);
    rows.add("crawler_reclaimed", engine.crawler_reclaimed);
    rows.add("crawler_items_checked", engine.crawler_items_checked);
    rows.zeros(&["lrutail_reflocked", "moves_to_cold", "moves_to_warm", "moves_within_lru", "direct_reclaims"]);
    rows.zeros(&["lru_bumps_dropped"]);
    // Beyond memcached's names.
    rows.add("guira_version", env!("CARGO_PKG_VERSION"));
    rows.add("engine", engine.engine);
    rows.add("eviction_policy", engine.eviction);
    rows.add("hash_slots", engine.hash_slots);
    rows.add("cp_malformed", total("cp_malformed"));
    if let Some(messages) = &engine.messages {
        rows.add("server_threads_awake", messages.server_threads_awake);
        rows.add("messages_served", messages.served);
    }
    if let Some(store) = &engine.store {
        rows.add("store", store.store);
        rows.add("store_reads_at_once", store.reads_at_once);
        rows.add("store_reads_waited", store.reads_waited);
        rows.add("store_writes", store.writes);
        rows.add("store_write_batches", store.write_batches);
        rows.add("store_syncs", store.syncs);
        rows.add("store_failures", store.failures);
        rows.add("store_pending", store.pending);
        rows.add("store_read_only", yes_no(store.read_only.is_some()));
        if let Some(limit) = store.limit {
            rows.add("store_limit", limit);
            rows.add("store_limit_waits", store.limit_waits);
        }
        for (name, number) in [
            ("store_disk_bytes", store.disk_bytes),
            ("store_memory_bytes", store.memory_bytes),
            ("store_records", store.records),
        ] {
            if let Some(number) = number {
                rows.add(name, number);
            }
        }
    }
    if let Some(cluster) = &engine.cluster {
        for (name, number) in [
            ("cluster_backends", cluster.backends),
            ("cluster_backends_heard", cluster.backends_heard),
            ("cluster_backends_read_only", cluster.backends_read_only),
            ("cluster_routes", cluster.routes),
            ("cluster_pending", cluster.pending),
            ("cluster_to_caches", cluster.to_caches),
            ("cluster_to_backends", cluster.to_backends),
            ("cluster_resent", cluster.resent),
            ("cluster_hedged", cluster.hedged),
            ("cluster_routed", cluster.routed),
            ("cluster_late", cluster.late),
            ("cluster_refused", cluster.refused),
            ("cluster_away", cluster.away),
            ("cluster_moved", cluster.moved),
        ] {
            rows.add(name, number);
        }
    }
    for number in &engine.own {
        rows.add(number.name, number.value);
    }
    rows.0
}

/// File descriptors the server needs beside its connections: for each worker a poll, a copy of it and a waker; the
/// acceptor's; standard streams, signals, files.
pub fn reserved_fds(threads: usize) -> usize {
    3 * threads + 20
}

/// `stats settings`.
pub(crate) fn settings<S: Service>(shared: &Shared<S>) -> Vec<Row> {
    let mut rows = Rows(Vec::with_capacity(100));
    let settings = &shared.settings;
    let (shown, protocol) = (&settings.shown, &settings.protocol);
    let engine = shared.engine_stats();
    let addresses = &shared.addresses;
    let port = |list: &[std::net::SocketAddr]| list.first().map_or(0, std::net::SocketAddr::port);
    let inter: Vec<&str> = settings.listen.iter().filter_map(|address| address.host.as_deref()).collect();
    let item_len_max = protocol.item_len_max;

    rows.add("maxbytes", engine.limit_maxbytes);
    rows.add("maxconns", settings.connections_max);
    rows.add("tcpport", port(&addresses.tcp));
    rows.add("udpport", port(&addresses.udp));
    rows.add("inter", if inter.is_empty() { "NULL".to_owned() } else { inter.join(",") });
    rows.add("verbosity", shared.verbosity.load(Relaxed));
    rows.add("oldest", 0);
    rows.add("evictions", if shown.evictions { "on" } else { "off" });
    rows.add("domain_socket", settings.unix_socket.as_ref().map_or("NULL".into(), |path| path.display().to_string()));
    rows.add("umask", format!("{:o}", settings.unix_mask));
    rows.add("shutdown_command", yes_no(protocol.shutdown_enabled));
    rows.add("growth_factor", format!("{:.2}", shown.growth_factor));
    rows.add("chunk_size", shown.chunk_size_min);
    rows.add("num_threads", settings.threads);
    rows.add("num_threads_per_udp", usize::from(!addresses.udp.is_empty()));
    rows.add("stat_key_prefix", char::from(shown.prefix_delimiter));
    rows.add("detail_enabled", yes_no(shared.prefixes.is_on()));
    rows.add("reqs_per_event", settings.batches_per_turn_max);
    rows.add("cas_enabled", yes_no(protocol.cas_enabled));
    rows.add("tcp_backlog", settings.backlog);
    rows.add("binding_protocol", "ascii");
    rows.add("auth_enabled_sasl", "no");
    rows.add("auth_enabled_ascii", yes_no(protocol.auth.is_some()));
    rows.add("item_size_max", item_len_max);
    rows.add("maxconns_fast", yes_no(settings.connections_max_fast));
    rows.add("hashpower_init", 0);
    rows.add("slab_reassign", "yes");
    rows.add("slab_automove", 1);
    rows.add("slab_automove_ratio", "0.80");
    rows.add("slab_automove_window", 30);
    rows.add("slab_chunk_max", item_len_max.min(512 << 10));
    rows.add("lru_crawler", yes_no(shared.crawler_enabled.load(Relaxed)));
    rows.add("lru_crawler_sleep", 100);
    rows.add("lru_crawler_tocrawl", 0);
    rows.add("tail_repair_time", 0);
    rows.add("flush_enabled", yes_no(protocol.flush_enabled));
    rows.add("dump_enabled", yes_no(protocol.dump_enabled));
    rows.add("hash_algorithm", "rapidhash");
    rows.add("lru_maintainer_thread", "yes");
    rows.add("lru_segmented", "no");
    rows.add("hot_lru_pct", 0);
    rows.add("warm_lru_pct", 0);
    rows.add("hot_max_factor", "0.00");
    rows.add("warm_max_factor", "0.00");
    rows.add("temp_lru", "no");
    rows.add("temporary_ttl", 0);
    rows.add("idle_timeout", settings.idle_timeout.map_or(0, |timeout| timeout.as_secs()));
    rows.add("watcher_logbuf_size", settings.watcher_queue_len_max);
    rows.add("worker_logbuf_size", settings.watcher_queue_len_max);
    rows.add("read_buf_mem_limit", settings.input_len_max);
    rows.add("track_sizes", yes_no(shared.sizes_enabled.load(Relaxed)));
    rows.add("inline_ascii_response", "no");
    rows.add("ssl_enabled", "no");
    rows.add("num_napi_ids", "(null)");
    let memory_file = settings.shown.memory_file.as_ref();
    rows.add("memory_file", memory_file.map_or("(null)".into(), |path| path.display().to_string()));
    rows.add("engine", engine.engine);
    rows.add("eviction_policy", engine.eviction);
    if let Some(partitions) = &engine.partitions {
        rows.add("partitions", partitions.count);
        rows.add("bucket_locks", yes_no(partitions.has_bucket_locks));
    }
    if let Some(messages) = &engine.messages {
        rows.add("server_threads", messages.server_threads);
    }
    rows.add("cp_port", port(&addresses.cp));
    rows.0
}

/// `stats items`.
pub(crate) fn items(engine: &EngineStats, counted: &ClassTotals) -> Vec<Row> {
    let mut rows = Rows(Vec::new());
    for class in engine.classes.iter().filter(|class| class.used_chunks > 0) {
        for (what, value) in items_of(class, counted) {
            rows.add(format!("items:{}:{what}", class.class), value);
        }
    }
    rows.0
}

/// The rows of `stats items` about a class.
pub(crate) fn items_of(class: &ClassStats, counted: &ClassTotals) -> impl IntoIterator<Item = (&'static str, u64)> {
    [
        ("number", class.used_chunks),
        ("number_hot", 0),
        ("number_warm", 0),
        ("number_cold", class.used_chunks),
        ("age_hot", 0),
        ("age_warm", 0),
        ("age", u64::from(class.age_s)),
        ("mem_requested", class.used_chunks * class.chunk_size as u64),
        ("evicted", class.evicted),
        ("evicted_nonzero", 0),
        ("evicted_time", 0),
        ("outofmemory", class.out_of_memory),
        ("tailrepairs", 0),
        ("reclaimed", 0),
        ("expired_unfetched", 0),
        ("evicted_unfetched", class.evicted_unfetched),
        ("evicted_active", 0),
        ("crawler_reclaimed", 0),
        ("crawler_items_checked", 0),
        ("lrutail_reflocked", 0),
        ("moves_to_cold", 0),
        ("moves_to_warm", 0),
        ("moves_within_lru", 0),
        ("direct_reclaims", 0),
        ("hits_to_hot", 0),
        ("hits_to_warm", 0),
        ("hits_to_cold", counted.of(class.class)[ClassCounter::GetHits as usize]),
        ("hits_to_temp", 0),
    ]
}

/// `stats slabs`.
pub(crate) fn slabs(engine: &EngineStats, counted: &ClassTotals) -> Vec<Row> {
    let mut rows = Rows(Vec::new());
    let with_pages = || engine.classes.iter().filter(|class| class.total_pages > 0);
    for class in with_pages() {
        for (what, value) in slabs_of(class, counted) {
            rows.add(format!("{}:{what}", class.class), value);
        }
    }
    rows.add("active_slabs", with_pages().count());
    rows.add("total_malloced", engine.total_malloced);
    rows.0
}

/// The rows of `stats slabs` about a class.
pub(crate) fn slabs_of(class: &ClassStats, counted: &ClassTotals) -> impl IntoIterator<Item = (&'static str, u64)> {
    let about_memory = [
        ("chunk_size", class.chunk_size as u64),
        ("chunks_per_page", class.chunks_per_page as u64),
        ("total_pages", class.total_pages),
        ("total_chunks", class.used_chunks + class.free_chunks),
        ("used_chunks", class.used_chunks),
        ("free_chunks", class.free_chunks),
        ("free_chunks_end", 0),
    ];
    about_memory.into_iter().chain(ClassCounter::NAMES.into_iter().zip(counted.of(class.class)))
}
