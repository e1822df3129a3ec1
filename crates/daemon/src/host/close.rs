//! How a volume leaves the registry: clients, changes and jobs end, its members are made clean and let go of.

use std::rc::Rc;
use std::time::Duration;

use plexum_block::clock::Clock;
use plexum_block::wait::{first, join, join_all};
use plexum_front::client::Leave;
use plexum_runtime::JoinHandle;

use super::hosted::{Hosted, Stage};
use super::refusal::Refusal;
use super::registry::Host;
use crate::problem::{Code, Problem};

/// How long whoever works on a volume that has stopped is waited for: a member that hangs must not keep the process.
const LET_GO_WAIT: Duration = Duration::from_secs(2);

/// What becomes of those who hold a volume that is to be closed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Close {
    /// It is closed when nobody holds it, and refused otherwise.
    IfFree,
    /// Clients are admitted nothing new; what they have under way is answered, then they leave.
    Drain,
    /// Clients are cut off: of what they ask for nothing reaches the volume any more.
    Force,
}

impl Close {
    fn leave(self) -> Leave {
        match self {
            Close::IfFree | Close::Drain => Leave::Drain,
            Close::Force => Leave::Fence,
        }
    }
}

impl Host {
    /// Begins to close all volumes, each as far as it goes; the host keeps what went wrong.
    pub fn close_all(self: &Rc<Self>) -> Vec<JoinHandle<()>> {
        let close = |hosted: Rc<Hosted>| {
            if let Some(device) = hosted.device() {
                device.leave_to_successor(); // the process ends: perhaps to be started again
            }
            let (host, name) = (Rc::clone(self), hosted.name().to_owned());
            self.handle.spawn(async move {
                let _ = host.close(&name, Close::Drain).await;
            })
        };
        self.list().into_iter().map(close).collect()
    }

    /// Closes a volume. Returns when its members are free. A volume that drains can be forced.
    ///
    /// # Errors
    /// `NoSuchVolume`; `Held` for `IfFree`, and nothing is changed; `IsClosing`; `NotClean`, and it is closed.
    pub async fn close(self: &Rc<Self>, name: &str, how: Close) -> Result<(), Refusal> {
        self.close_telling(name, how, |_| ()).await
    }

    /// As `close`; `tell` is called when the volume has ended and before its members are let go of.
    ///
    /// # Errors
    /// As `close`; `tell` is not called for what is refused.
    pub async fn close_telling(
        self: &Rc<Self>,
        name: &str,
        how: Close,
        tell: impl FnOnce(Result<(), Problem>) + 'static,
    ) -> Result<(), Refusal> {
        let hosted = self.find(name)?;
        match (hosted.stage(), how) {
            (Stage::Admitted, _) => {
                tell(Ok(()));
                self.dismiss(&hosted);
                return Ok(());
            }
            (Stage::Closing, Close::Force) => {
                hosted.tell_all(Leave::Fence);
                self.shards.end_sessions(name, Leave::Fence).await;
                hosted.gone.wait().await;
                tell(Ok(()));
                return Ok(());
            }
            (Stage::Closing, _) => return Err(hosted.is_closing()),
            (Stage::Open, Close::IfFree) => {
                let (name, holds) = (name.to_owned(), hosted.holds());
                if !holds.is_empty() {
                    return Err(Refusal::Held { name, holds });
                }
            }
            (Stage::Open, _) => {}
        }
        hosted.stage.set(Stage::Closing);
        // A task of its own: whoever waits for it may be dropped, a volume is closed to the end.
        let host = Rc::clone(self);
        let closing = async move {
            let result = host.end_volume(&hosted, how.leave()).await;
            tell(result.clone());
            host.note_closed(&hosted, &result);
            host.let_go(&hosted).await;
            result
        };
        match self.handle.spawn(closing).await {
            Ok(Ok(())) => Ok(()),
            Ok(Err(problem)) => Err(Refusal::NotClean(Box::new(problem))),
            Err(aborted) => Err(Problem::new(Code::Bug, aborted.to_string()).into()),
        }
    }

    /// Clients leave, then the volume ends.
    async fn end_volume(&self, hosted: &Hosted, how: Leave) -> Result<(), Problem> {
        let name = hosted.name();
        let closed = hosted.ways.close(name, how);
        join(closed, self.shards.end_sessions(name, how)).await;
        let _turn = hosted.reopening.lock().await; // it may be between two geometries: then it is stopped in the second
        let served = hosted.served().map_err(Refusal::problem)?;
        served.volume.stop().await.map_err(|error| {
            Problem::new(
                Code::IoError,
                format!("{name} could not be stopped cleanly: {error}"),
            )
            .why("its members are as a power cut would have left them; the next start repairs that")
        })
    }

    fn note_closed(&self, hosted: &Hosted, result: &Result<(), Problem>) {
        let name = hosted.name();
        let text = match result {
            Ok(()) => format!("{name} is stopped"),
            Err(problem) => problem.message.clone(),
        };
        let time_s = self.handle.clock().wall_seconds();
        self.events.publish(time_s, name, "stopped", text, None);
        if let Err(problem) = result {
            *self.failure.borrow_mut() = Some(problem.clone());
        }
    }

    /// Closes the members of a volume that has ended, then removes its sockets.
    pub(super) async fn let_go(&self, hosted: &Rc<Hosted>) {
        hosted.sockets.remove_nbd();
        hosted.shut.borrow().set();
        let ways = hosted.ways.take();
        ways.iter().for_each(|way| way.server.unbind());
        if let Some(own) = ways.first() {
            own.server.stop(Leave::Drain); // who is in the handshake yet
        }
        let served = hosted.served.take();
        if let Some(served) = &served {
            served.end();
        }
        let mut tasks = hosted.tasks.take();
        tasks.extend(hosted.duties.take());
        let ended = join(join_all(tasks), self.shards.forget(hosted.name()));
        let ended = async {
            join(ended, hosted.idle()).await;
        };
        let clock = self.handle.clock();
        first(ended, clock.sleep(LET_GO_WAIT)).await;
        drop(ways);
        drop(served);
        if let Some(control) = &*self.control.borrow() {
            control.remove(hosted.control_socket());
        }
        self.remove(hosted);
    }
}
