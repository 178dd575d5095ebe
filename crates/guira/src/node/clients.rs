//! A member that speaks with clients: its host, and memcached's server before it, until both end.
//!
//! Always true: their sockets are bound before the host begins; who is not asked to end ends when its host does; clients are gone before the host is.

use std::{
    net::SocketAddr,
    sync::{
        Arc,
        mpsc::{self, RecvTimeoutError},
    },
    thread,
};

use guira_cluster::MemberHost;
use guira_front::{Front, FrontService, ServiceConfig};
use guira_item::Clock;
use guira_server::{ListenAddress, Listeners, Server, Settings, allow_open_files};

use super::{Arguments, ENDED_BY_ITSELF, EndedBy, Ends, LOOK_EVERY, stopped};
use crate::serve::files_of_the_server;

/// What clients may say, and the sockets on which they say it: bound, and not served yet.
pub(super) struct Clients {
    settings: Settings,
    listeners: Listeners,
    item_len_max: usize,
    values_len_max: usize,
}

/// Where a member's server listens, with which threads, and to how many.
pub(super) fn listening_at(listen: SocketAddr, threads: usize, connections_max: usize) -> Settings {
    Settings {
        listen: vec![ListenAddress { host: Some(listen.ip().to_string()), port: None }],
        tcp_port: Some(listen.port()),
        threads,
        connections_max,
        ..Settings::default()
    }
}

/// Files of a member's server, and of what is in front of it.
pub(super) fn files_of_clients(settings: &Settings) -> u64 {
    files_of_the_server(settings) + 64
}

impl Clients {
    /// At an address, as the arguments say; so many bytes have items, and values that are under way.
    pub(super) fn at(
        listen: SocketAddr,
        arguments: &Arguments,
        item_len_max: usize,
        values_len_max: usize,
    ) -> Result<Self, String> {
        let Arguments { threads, conn_limit, .. } = *arguments;
        if !(1..=1024).contains(&threads) {
            return Err(format!("-t {threads}: from 1 to 1024 threads"));
        }
        let settings = Settings {
            input_len_max: values_len_max / 4,
            protocol: guira_memcache::Settings { item_len_max, ..guira_memcache::Settings::default() },
            metrics: arguments.metrics,
            ..listening_at(listen, threads, conn_limit)
        };
        allow_open_files(conn_limit, files_of_clients(&settings)).map_err(|error| error.to_string())?;
        let listeners = Listeners::bind(&settings).map_err(|error| error.to_string())?;
        Ok(Self { settings, listeners, item_len_max, values_len_max })
    }

    /// Serves them by a host until it is ended; `begun` has what is to be there meanwhile.
    pub(super) fn serve<H: MemberHost, K>(
        self,
        host: H,
        front: impl Front,
        ended_by: EndedBy,
        begun: impl FnOnce(&Arc<H>, &Arc<Ends>) -> Result<K, String>,
    ) -> Result<(), String> {
        let Self { settings, listeners, item_len_max, values_len_max } = self;
        let cannot = |error: std::io::Error| format!("cannot start: {error}");
        let watch = settings.watch;
        let clock = Arc::new(move || -> Clock { watch.clock_by_now() });
        let service = FrontService::before(ServiceConfig { clock, item_len_max, values_len_max }, [front]);
        let server = Server::start(settings, listeners, service).map_err(|error| format!("cannot start: {error}"))?;
        // Where signals end it nothing comes here: the sender is held until this returns.
        let (_nobody, never) = mpsc::channel();
        let ended = match ended_by {
            EndedBy::Signals(signals) => {
                let passed_on = signals.pass_on(server.stopper(), || {});
                passed_on.map_err(|error| format!("cannot watch signals: {error}"))?;
                never
            }
            EndedBy::Starter(ended) => ended,
        };
        let (host, ends) = (Arc::new(host), Arc::new(Ends::default()));
        let meanwhile = begun(&host, &ends)?;
        let stopper = server.stopper();
        let (watched, told) = (Arc::downgrade(&host), Arc::clone(&ends));
        let watch = move || {
            while told.0.get().is_none()
                && watched.upgrade().is_some_and(|host| host.runs())
                && ended.recv_timeout(LOOK_EVERY) == Err(RecvTimeoutError::Timeout)
            {}
            match told.0.get() {
                // Its clients are answered what they have asked, as far as others still answer it.
                Some(Ok(())) => stopper.stop_gracefully(),
                _ => stopper.stop_now(),
            }
        };
        thread::Builder::new().name("guira-watch".into()).spawn(watch).map_err(cannot)?;
        let ended = server.join().map_err(|error| error.to_string());
        let ended_by_itself = !host.runs();
        drop(meanwhile);
        let stopped = stopped(host);
        if ended_by_itself { Err(ENDED_BY_ITSELF.into()) } else { ended.and(stopped).and(ends.why()) }
    }
}
