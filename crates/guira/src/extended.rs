//! memcached's `-o`: options with a meaning here, options accepted without one, and options refused.

use std::time::Duration;

/// What `-o` says.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Extended {
    pub(crate) maxconns_fast: bool,
    pub(crate) idle_timeout: Option<Duration>,
    /// Bytes.
    pub(crate) read_buf_mem_limit: Option<usize>,
    /// Bytes.
    pub(crate) watcher_logbuf_size: Option<usize>,
    pub(crate) track_sizes: bool,
    /// Accepted, and without effect.
    pub(crate) ignored: Vec<String>,
}

/// They tune mechanisms that do not exist here.
const WITHOUT_MEANING: &[&str] = &[
    "modern",
    "hashpower",
    "tail_repair_time",
    "hash_algorithm",
    "lru_crawler",
    "lru_crawler_sleep",
    "lru_crawler_tocrawl",
    "lru_maintainer",
    "hot_lru_pct",
    "warm_lru_pct",
    "hot_max_factor",
    "warm_max_factor",
    "temporary_ttl",
    "temp_lru",
    "slab_sizes",
    "slab_chunk_max",
    "slab_reassign",
    "slab_automove",
    "slab_automove_ratio",
    "slab_automove_window",
    "slab_automove_freeratio",
    "worker_logbuf_size",
    "hashexpand",
    "sock_cookie_id",
    "inline_ascii_resp",
    "drop_privileges",
    "resp_obj_mem_limit",
    "chunked_items",
    "num_napi_ids",
];

/// Their features do not exist here.
const REFUSED: &[(&str, &str)] = &[
    ("ext_", "external storage (extstore) is not supported: leave it out"),
    ("proxy_", "the proxy is not supported: leave it out"),
    ("ssl_", "TLS is not supported yet: leave it out, and put a TLS proxy in front"),
];

/// Reads the values of all `-o`.
pub(crate) fn parse(lists: &[String]) -> Result<Extended, String> {
    let mut extended = Extended {
        maxconns_fast: true,
        idle_timeout: None,
        read_buf_mem_limit: None,
        watcher_logbuf_size: None,
        track_sizes: false,
        ignored: Vec::new(),
    };
    for option in lists.iter().flat_map(|list| list.split(',')).map(str::trim).filter(|option| !option.is_empty()) {
        let (name, value) = option.split_once('=').map_or((option, None), |(name, value)| (name, Some(value)));
        let number = || -> Result<usize, String> {
            let value = value.ok_or_else(|| format!("-o {name} needs a number: -o {name}=<num>"))?;
            value
                .parse()
                .map_err(|_| format!("-o {name}={value}: {value:?} is not a number; write for instance -o {name}=5"))
        };
        match name {
            "maxconns_fast" => extended.maxconns_fast = true,
            "no_maxconns_fast" => extended.maxconns_fast = false,
            "track_sizes" => extended.track_sizes = true,
            "idle_timeout" => {
                let seconds = number()?;
                extended.idle_timeout = (seconds > 0).then(|| Duration::from_secs(seconds as u64));
            }
            "read_buf_mem_limit" => {
                let megabytes = number()?;
                extended.read_buf_mem_limit = (megabytes > 0).then(|| megabytes.saturating_mul(1 << 20));
            }
            "watcher_logbuf_size" => extended.watcher_logbuf_size = Some(number()?.saturating_mul(1 << 10)),
            "proxy" => return Err(format!("-o {name}: {}", REFUSED[1].1)),
            _ if WITHOUT_MEANING.contains(&name.strip_prefix("no_").unwrap_or(name)) => {
                extended.ignored.push(name.to_owned());
            }
            _ => {
                let refused = REFUSED.iter().find(|(prefix, _)| name.starts_with(prefix));
                return Err(match refused {
                    Some((_, why)) => format!("-o {name}: {why}"),
                    None => format!("-o {name}: no such option; -h lists them"),
                });
            }
        }
    }
    Ok(extended)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn some_mean_something_some_nothing_some_are_refused() {
        let lists = ["idle_timeout=5,no_maxconns_fast".to_owned(), "modern,no_lru_crawler,hashpower=20".to_owned()];
        let extended = parse(&lists).expect("known");
        assert_eq!(extended.idle_timeout, Some(Duration::from_secs(5)));
        assert!(!extended.maxconns_fast);
        assert_eq!(extended.ignored, ["modern", "no_lru_crawler", "hashpower"]);
        for bad in ["ext_path=/x:1G", "ssl_key=x", "proxy_config=x", "nonsense", "idle_timeout", "idle_timeout=x"] {
            assert!(parse(&[bad.to_owned()]).is_err(), "{bad}");
        }
    }
}
