//! The port, and its thread.
//!
//! ```text
//! connect -> (waits in the system's queue while there are as many as may be) -> one request -> one answer -> closed
//!            |<------------------------------------------ patience ------------------------------------------->|
//! ```
//! Always true: a connection takes one request and a bounded time, whoever sends or reads slowly; there are so many at a time, and no more; all of it is
//! on one thread, so that one thing at a time is asked of the controller.

use std::{
    fmt, io,
    net::{SocketAddr, TcpListener},
    sync::Arc,
    thread::{self, JoinHandle},
    time::Duration,
};

use axum::Router;
use hyper::server::conn::http1;
use hyper_util::{rt::TokioIo, service::TowerToHyperService};
use tokio::{
    net::TcpStream,
    runtime::Builder,
    sync::{
        Semaphore,
        oneshot::{self, Sender},
    },
    time::{sleep, timeout},
};

use crate::{Access, Operated, routes::routes};

/// Bytes of a request before its body, at most.
const HEAD_LEN_MAX: usize = 16 << 10;

/// After so long it is tried again to take a connection, if the system had no descriptors for one.
const PAUSE: Duration = Duration::from_millis(100);

/// What connections may take.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Limits {
    /// Connections at a time: others wait until one of them has ended.
    pub connections_max: usize,
    /// From when a connection is taken to the end of its answer.
    pub patience: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Self { connections_max: 64, patience: Duration::from_secs(10) }
    }
}

/// A port that is bound, and not served yet.
#[derive(Debug)]
pub struct Bound {
    listener: TcpListener,
    address: SocketAddr,
    access: Access,
    limits: Limits,
}

impl Bound {
    /// Binds the address of which it was decided who is answered there.
    ///
    /// # Errors
    /// It is somebody else's, or not this machine's.
    pub fn bind(access: Access, limits: Limits) -> io::Result<Self> {
        let listener = TcpListener::bind(access.address())?;
        listener.set_nonblocking(true)?;
        Ok(Self { address: listener.local_addr()?, listener, access, limits })
    }

    /// Where it is.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Serves it on a thread of its own.
    ///
    /// # Errors
    /// The system gives no thread, or no descriptors.
    pub fn serve(self, operated: impl Operated) -> io::Result<Rest> {
        let runtime = Builder::new_current_thread().enable_io().enable_time().build()?;
        let listener = {
            let _inside = runtime.enter();
            tokio::net::TcpListener::from_std(self.listener)?
        };
        let (stop, stopped) = oneshot::channel::<()>();
        runtime.spawn(accept(listener, routes(operated, self.access), self.limits));
        // Connections end with the runtime, and that with the other end of `stopped`.
        let serve = move || drop(runtime.block_on(stopped));
        let thread = thread::Builder::new().name("guira-rest".into()).spawn(serve)?;
        Ok(Rest { stop: Some(stop), thread: Some(thread) })
    }
}

/// A port that is served; dropped, it no longer is, and who is connected is hung up on.
pub struct Rest {
    stop: Option<Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl fmt::Debug for Rest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Rest").finish_non_exhaustive()
    }
}

impl Drop for Rest {
    fn drop(&mut self) {
        self.stop.take();
        // A panic has been told about already.
        let _ = self.thread.take().map(JoinHandle::join);
    }
}

/// Takes connections, for as long as there is room for one.
async fn accept(listener: tokio::net::TcpListener, routes: Router, limits: Limits) {
    let places = Arc::new(Semaphore::new(limits.connections_max));
    // They are never closed.
    while let Ok(place) = Arc::clone(&places).acquire_owned().await {
        match listener.accept().await {
            Ok((stream, _)) => {
                let answered = answer(stream, routes.clone());
                tokio::spawn(async move {
                    // Who takes too long is hung up on.
                    let _ = timeout(limits.patience, answered).await;
                    drop(place);
                });
            }
            Err(_) => sleep(PAUSE).await,
        }
    }
}

/// Answers one request.
async fn answer(stream: TcpStream, routes: Router) {
    let connection = http1::Builder::new()
        .keep_alive(false)
        // Who has said all may close its end.
        .half_close(true)
        .max_buf_size(HEAD_LEN_MAX)
        .serve_connection(TokioIo::new(stream), TowerToHyperService::new(routes));
    // Who hangs up, or says what is no request, has been told what there was to say.
    let _ = connection.await;
}

#[cfg(test)]
#[path = "rest_tests.rs"]
mod tests;
