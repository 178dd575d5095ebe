//! Our controller, and when it takes a switch to have what it is to have.
//!
//! Always true: the moment is taken where it is told, on the thread that speaks to switches, so that who waits for it adds nothing.

use std::net::TcpListener;
use std::sync::mpsc::{self, Receiver};
use std::time::{Duration, Instant};

use guira_openflow::{Actions, FlowKey, Switches, SwitchesConfig, SwitchesTold, Told};

use crate::error::BenchError;

/// Far longer than a switch of a loaded machine needs.
const PATIENCE: Duration = Duration::from_secs(60);

/// See the head of the file.
pub(super) struct Controller {
    switches: Switches,
    told: Receiver<(Instant, SwitchesTold)>,
}

/// A switch has come to have what it is to have.
#[derive(Clone, Copy, Debug)]
pub(super) struct Settled {
    pub at: Instant,
    /// When it had said who it is, if it has called meanwhile.
    pub called_at: Option<Instant>,
}

impl Controller {
    /// One that switches call there, and that wants these flows from the beginning.
    pub fn listen(
        listener: TcpListener,
        wanted: impl IntoIterator<Item = (FlowKey, Actions)>,
    ) -> Result<Self, BenchError> {
        let (tell, told) = mpsc::channel();
        let tell = move |told| {
            // Who is not there any more does not want to know.
            let _ = tell.send((Instant::now(), told));
        };
        let switches = Switches::listen_at(listener, SwitchesConfig::default(), tell)
            .map_err(|source| BenchError::System { doing: "listening to switches", source })?;
        let controller = Self { switches, told };
        controller.update(wanted.into_iter().map(|(key, actions)| (key, Some(actions))))?;
        Ok(controller)
    }

    /// Flows are to be there, or not, from now on.
    pub fn update(&self, flows: impl IntoIterator<Item = (FlowKey, Option<Actions>)>) -> Result<(), BenchError> {
        self.switches.update(flows).map_err(|ended| BenchError::Invalid(ended.to_string()))
    }

    /// Waits until the switch has what it is to have, as far as it has answered.
    pub fn settled(&self) -> Result<Settled, BenchError> {
        let mut called_at = None;
        loop {
            let told = self.told.recv_timeout(PATIENCE);
            match told.map_err(|_| BenchError::Invalid("the switch does not come to have what it is to have".into()))? {
                (at, SwitchesTold::Of(_, Told::Settled)) => return Ok(Settled { at, called_at }),
                (at, SwitchesTold::Of(_, Told::Known(_))) => called_at = Some(at),
                (_, SwitchesTold::Of(_, Told::Refused(key, refusal))) => {
                    return Err(BenchError::Invalid(format!("the switch refuses {key:?}: {refusal:?}")));
                }
                (_, SwitchesTold::Of(_, Told::Read { .. } | Told::Takes { .. }) | SwitchesTold::Gone(..)) => {}
            }
        }
    }
}
