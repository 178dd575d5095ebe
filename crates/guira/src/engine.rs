//! Wiring: from the options to an engine behind the server's `Service`.

use std::sync::Arc;

use guira_item::Immediate;
use guira_memc3::{Config, Eviction, Memc3};
use guira_server::{Listeners, Server, Settings};

use crate::options::Options;

/// Starts a server on an engine that is ready to serve; called once privileges are given up.
pub(crate) type Start = Box<dyn FnOnce(Settings, Listeners) -> std::io::Result<Server>>;

/// Policies of `--eviction`.
const EVICTIONS: [Eviction; 5] = [Eviction::Clock, Eviction::S3Fifo, Eviction::Sieve, Eviction::Lru, Eviction::Random];

/// Makes the engine the options ask for.
pub(crate) fn build(options: &Options, memory_limit: usize, item_len_max: usize) -> Result<Start, String> {
    match options.engine.as_str() {
        "memc3" => {}
        "cphash" | "lockhash" => return Err(format!("--engine {}: not built yet, use memc3", options.engine)),
        other => return Err(format!("--engine {other}: no such engine, use memc3")),
    }
    if options.store != "memory" {
        return Err(format!("--store {}: not built yet, use memory", options.store));
    }
    let eviction = EVICTIONS.into_iter().find(|eviction| eviction.name() == options.eviction).ok_or_else(|| {
        let names = EVICTIONS.map(Eviction::name).join(", ");
        format!("--eviction {}: no such policy, use one of {names}", options.eviction)
    })?;
    let huge_pages = match options.huge_pages.as_str() {
        "auto" => true,
        "off" => options.enable_largepages,
        other => return Err(format!("--huge-pages {other}: write auto or off")),
    };
    let defaults = Config::new(memory_limit);
    let config = Config {
        item_len_max,
        eviction,
        evictions_enabled: !options.disable_evictions,
        versions_shown: !options.disable_cas,
        huge_pages,
        growth_factor: options.slab_growth_factor.unwrap_or(defaults.growth_factor),
        chunk_len_min: options.slab_min_size.map_or(defaults.chunk_len_min, |len| len.max(defaults.chunk_len_min)),
        ..defaults
    };
    let engine = Memc3::new(config).map_err(|error| error.to_string())?;
    Ok(Box::new(|settings, listeners| Server::start(settings, listeners, Immediate(Arc::new(engine)))))
}
