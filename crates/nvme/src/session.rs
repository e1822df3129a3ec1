//! The life of one connection that is a queue: of I/O, or a controller's admin queue.

pub(crate) mod admin;
pub(crate) mod io;

use plexum_front::transport::Transport;

use crate::error::{Ended, NvmeError};
use crate::link::{Link, NoPdu, Out, PART_SEND};
use crate::wire::pdu::Fault;

/// Parts that every session has; workers follow.
const PART_RECEIVE: usize = 1;
const PART_WATCH: usize = 2;
const PART_ADMIT: usize = 3;
const PART_EVENTS: usize = 3;

/// The part that sends is the link's.
const _: () = assert!(PART_SEND == 0);

impl<T: Transport> Link<'_, T> {
    /// Tells the host what it did wrong; the connection ends behind that.
    fn fault(&self, fault: Fault, header: &[u8]) -> NvmeError {
        self.put(Out::Term(fault, header.to_vec()));
        NvmeError::Fault(fault)
    }

    /// How a session ends that has no next PDU.
    fn without_pdu(&self, why: NoPdu) -> Result<Ended, NvmeError> {
        match why {
            NoPdu::End => Ok(Ended::HungUp),
            NoPdu::Fault(fault, header) => Err(self.fault(fault, &header)),
            NoPdu::HostTerm(status) => Err(NvmeError::HostTerm(status)),
            NoPdu::Transport(error) => Err(error.into()),
        }
    }
}
