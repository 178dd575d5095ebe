//! The text of `-h`, laid out as memcached's, for the people and scripts that know it.

/// The text of `-i`.
pub(crate) const LICENSE: &str = "\
Guira is licensed under the Apache License, Version 2.0:
    https://www.apache.org/licenses/LICENSE-2.0
It is a new program that speaks memcached's protocols and contains no code of memcached.
";

/// The text of `-h`, with this line at its head.
pub(crate) fn text(version: &str) -> String {
    format!("{version}{FLAGS}")
}

const FLAGS: &str = "\
-p, --port=<num>          TCP port to listen on (default: 11211, 0: off)
-U, --udp-port=<num>      UDP port to listen on (default: 0, off)
-s, --unix-socket=<file>  UNIX socket to listen on (disables network support)
-a, --unix-mask=<mask>    access mask for UNIX socket, in octal (default: 700)
-A, --enable-shutdown     enable ascii \"shutdown\" command
-l, --listen=<addr>       interface to listen on (default: INADDR_ANY); host,
                          host:port, lists of them, repeatable
-d, --daemon              run as a daemon
-r, --enable-coredumps    maximize core file limit
-u, --user=<user>         assume identity of <username> (only when run as root)
-m, --memory-limit=<num>  memory for items and index in megabytes (default: 64)
-M, --disable-evictions   return error on memory exhausted instead of evicting
-c, --conn-limit=<num>    max simultaneous connections (default: 1024)
-k, --lock-memory         lock down all paged memory
-v, --verbose             verbose (print errors/warnings while in event loop)
-vv                       very verbose (also print connections and requests)
-vvv                      extremely verbose (internal state transitions)
-h, --help                print this help and exit
-i, --license             print the license and exit
-V, --version             print version and exit
-P, --pidfile=<file>      save PID in <file>
-f, --slab-growth-factor=<num> chunk size growth factor
-n, --slab-min-size=<bytes> min space used for key+value+flags
-L, --enable-largepages   try to use large memory pages (if available; they
                          are used anyway, unless --huge-pages=off)
-D <char>                 count by prefix of the key up to this character, for
                          stats detail dump (else ':', after stats detail on)
-t, --threads=<num>       number of threads to use (default: 4)
-R, --max-reqs-per-event  maximum number of batches of requests per event, limits
                          the requests processed per connection to prevent
                          starvation (default: 20)
-C, --disable-cas         disable use of CAS
-b, --listen-backlog=<num> set the backlog queue limit (default: 1024)
-B, --protocol=<name>     protocol - ascii or auto (default: auto); the deprecated
                          binary protocol is not supported
-I, --max-item-size=<num> adjusts max item size
                          (default: 1m, min: 1k, max: 1024m)
-F, --disable-flush-all   disable flush_all command
-X, --disable-dumping     disable stats cachedump and lru_crawler metadump
-W, --disable-watch       disable watch commands (live logging)
-Y, --auth-file=<file>    enable ASCII protocol authentication. format:
                          user:pass\\nuser2:pass2\\n (SIGHUP loads it again)
-o, --extended            comma separated list of extended options
   - maxconns_fast:       immediately close new connections after limit (default:
                          enabled; no_maxconns_fast lets them wait)
   - idle_timeout:        timeout for idle connections in seconds
                          (default: 0, no timeout)
   - read_buf_mem_limit:  limit in megabytes for unfinished requests of all
                          connections; beyond it the cache makes room for
                          them (default: 0, derived from -m and -I)
   - watcher_logbuf_size: size in kilobytes of per-watcher write buffer
                          (default: 256)
   - track_sizes:         let stats sizes work without stats sizes_enable
   - modern, slab_*, lru_*, hot_*, warm_*, hash*, tail_repair_time...:
                          accepted, without effect
-N, --napi_ids            accepted, without effect
    --cp-port=<num>       TCP port for CPSERVER's binary protocol, with the same
                          items (default: 0, off)
    --engine=<name>       what holds the items: memc3 (default), cphash, lockhash
    --eviction=<name>     memc3: clock (default), s3fifo, sieve, lru, random;
                          cphash and lockhash: lru (default), random
    --partitions=<num>    parts of the table of cphash and lockhash, a power of
                          two (default: cphash four for each core, but one for
                          each 4 megabytes of -m at most; lockhash 4096; most:
                          one for each 512 kilobytes, lockhash 512 bytes)
    --bucket-locks        with --engine=lockhash --eviction=random: a plain get
                          takes a lock in its bucket, not its partition's
    --server-threads=<num> at most so many threads serve cphash's partitions,
                          fewer as the load allows, and never more than there
                          are partitions (default: one for each core; 0: none,
                          the workers of -t do it all)
    --server-cores=<list> cores that they keep to, in turn, such as 0,2-5
                          (default: where the system puts them)
    --huge-pages=<when>   auto (default): transparent huge pages for items and
                          index where the system gives them; off
    --store=<where>       rocksdb:PATH or cassandra:HOST[:PORT],...[/KEYSPACE]:
                          items last there, with the engine as a cache before
                          it (default: memory, they do not last)
    --durability=<when>   a change counts as stored: always (on disk, default),
                          interval:MS, os
    --store-memory=<num>  megabytes of -m for the store (default: a quarter)
    --store-limit=<num>   the store does at most so many operations a second: a
                          record read, from its memory too, stored or deleted
    --metrics=<addr:port> serve metrics for Prometheus under /metrics
    --config=<file>       read options from a TOML file: long names as keys
    --print-config        check what flags, environment (GUIRA_*), file and
                          defaults come to, print it as a file, and exit
This is Guira, which speaks memcached's protocols.
Not supported, and refused: -S (SASL), -e (memory file), -Z (TLS), -o ext_*, -o proxy*
";
