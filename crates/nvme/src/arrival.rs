//! A connection before it is a queue: how both sides speak, and what the host wants it to be.

use std::future::Future;
use std::time::Duration;

use plexum_block::buf::BufPool;
use plexum_block::clock::Clock;
use plexum_front::connections::{InTime, in_time};
use plexum_front::flag::Flag;
use plexum_front::receive::Receiver;
use plexum_front::transport::Transport;

use crate::error::{Ended, NvmeError};
use crate::link::{Agreed, Arrived, Intact, NoPdu, lone_completion, next_pdu, receive_data};
use crate::wire::command::{Command, Completion, FABRICS};
use crate::wire::digest::Digests;
use crate::wire::fabrics::{CONNECT_DATA_BYTES, Connect, ConnectData, Fabrics, Parameter};
use crate::wire::pdu::{Fault, IcRequest, Kind, Reason, encode_ic_response, encode_term};
use crate::wire::status::Status;

/// A host's wish that its connection be a queue.
pub(crate) struct Wish {
    pub(crate) agreed: Agreed,
    /// CID of its Connect.
    pub(crate) id: u16,
    pub(crate) connect: Connect,
    pub(crate) data: ConnectData,
}

/// Why a connection does not become a queue: what Connect is answered with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Refusal {
    pub(crate) status: Status,
    pub(crate) result: u64,
}

impl From<Status> for Refusal {
    fn from(status: Status) -> Self {
        Self { status, result: 0 }
    }
}

pub(crate) fn wrong(parameter: Parameter) -> Refusal {
    Refusal {
        status: Status::CONNECT_PARAMETERS,
        result: parameter.encode(),
    }
}

/// A connection that has just come.
pub(crate) struct Arrival<'a, T, C> {
    pub(crate) transport: &'a T,
    pub(crate) clock: &'a C,
    pub(crate) pool: &'a BufPool,
    /// Its time for each step.
    pub(crate) limit: Duration,
    /// The server stops.
    pub(crate) stopped: &'a Flag,
}

impl<T: Transport, C: Clock> Arrival<'_, T, C> {
    /// Does something with a connection that is no queue yet, within its time; `None` when the server stops.
    async fn within<R>(
        &self,
        work: impl Future<Output = Result<R, NvmeError>>,
    ) -> Result<Option<R>, NvmeError> {
        match in_time(self.transport, self.clock, self.limit, self.stopped, work).await {
            InTime::Done(result) => result.map(Some),
            InTime::Late => Err(NvmeError::HandshakeTimedOut),
            InTime::Stopped => Ok(None),
        }
    }

    /// Agrees on how to speak, and hears what the connection is to be; `None` when the server stops.
    pub(crate) async fn wish(
        &self,
        receiver: &mut Receiver<'_, T>,
    ) -> Result<Option<Result<Wish, Ended>>, NvmeError> {
        self.within(self.hear(receiver)).await
    }

    async fn hear(&self, receiver: &mut Receiver<'_, T>) -> Result<Result<Wish, Ended>, NvmeError> {
        let arrived = match self.expect(receiver, Digests::default()).await? {
            Ok(arrived) => arrived,
            Err(ended) => return Ok(Err(ended)),
        };
        if arrived.frame.kind != Kind::IcReq {
            return Err(self.end(Reason::Sequence.at(0), &arrived).await);
        }
        let request = match IcRequest::decode(arrived.part(0)) {
            Ok(request) => request,
            Err(fault) => return Err(self.end(fault, &arrived).await),
        };
        let agreed = Agreed {
            digests: request.digests,
            alignment_bytes: request.alignment_bytes,
        };
        let answer = encode_ic_response(agreed.digests);
        let answer = self.pool.copy_of(&answer).freeze();
        self.transport.write_all(&[answer]).await?;
        let arrived = match self.expect(receiver, agreed.digests).await? {
            Ok(arrived) => arrived,
            Err(ended) => return Ok(Err(ended)),
        };
        if arrived.frame.kind != Kind::Command {
            return Err(self.end(Reason::Sequence.at(0), &arrived).await);
        }
        let bytes = arrived.part::<64>(8);
        let command = Command::decode(bytes);
        let connect = match Fabrics::decode(bytes) {
            Fabrics::Connect(connect) if command.opcode == FABRICS => connect,
            _ => {
                let status = Status::COMMAND_SEQUENCE.into();
                let ended = self.tell(agreed, command.id, status).await?;
                return Ok(Err(ended));
            }
        };
        let mut data = [0; CONNECT_DATA_BYTES];
        let refusal = if arrived.frame.data_bytes != CONNECT_DATA_BYTES {
            receiver.drain(arrived.frame.data_bytes as u64).await?;
            Refusal::from(Status::DATA_LENGTH)
        } else if receive_data(receiver, &arrived.frame, &mut data).await? == Intact::No {
            Refusal::from(Status::TRANSIENT_TRANSPORT)
        } else {
            match ConnectData::decode(&data) {
                Ok(data) => {
                    return Ok(Ok(Wish {
                        agreed,
                        id: command.id,
                        connect,
                        data,
                    }));
                }
                Err(at) => wrong(Parameter::OfData(at as u16)), // at most 1024
            }
        };
        Ok(Err(self.tell(agreed, command.id, refusal).await?))
    }

    /// The next PDU of a connection that is no queue yet.
    async fn expect(
        &self,
        receiver: &mut Receiver<'_, T>,
        digests: Digests,
    ) -> Result<Result<Arrived, Ended>, NvmeError> {
        match next_pdu(receiver, digests).await {
            Ok(arrived) => Ok(Ok(arrived)),
            Err(NoPdu::End) => Ok(Err(Ended::HungUp)),
            Err(NoPdu::Fault(fault, header)) => {
                self.term(fault, &header).await;
                Err(fault.into())
            }
            Err(NoPdu::HostTerm(status)) => Err(NvmeError::HostTerm(status)),
            Err(NoPdu::Transport(error)) => Err(error.into()),
        }
    }

    async fn end(&self, fault: Fault, arrived: &Arrived) -> NvmeError {
        self.term(fault, arrived.header()).await;
        fault.into()
    }

    /// Tells a host what it did wrong; whether it hears that is its own affair.
    async fn term(&self, fault: Fault, header: &[u8]) {
        let bytes = self.pool.copy_of(&encode_term(fault, header)).freeze();
        let _ = self.transport.write_all(&[bytes]).await;
    }

    /// Answers Connect with a refusal.
    pub(crate) async fn refuse(&self, wish: &Wish, refusal: Refusal) -> Result<Ended, NvmeError> {
        let told = self.tell(wish.agreed, wish.id, refusal);
        let told = self.within(told).await?;
        Ok(told.unwrap_or(Ended::Stopped))
    }

    async fn tell(&self, agreed: Agreed, id: u16, refusal: Refusal) -> Result<Ended, NvmeError> {
        let completion = Completion {
            result: refusal.result,
            queue_head: 0,
            id,
            status: refusal.status,
        };
        let answer = lone_completion(self.pool, agreed.digests, &completion);
        self.transport.write_all(&[answer]).await?;
        Ok(Ended::Refused)
    }

    /// Answers Connect: the connection is a queue of this controller. `false` when the server stops meanwhile.
    pub(crate) async fn welcome(&self, wish: &Wish, controller: u16) -> Result<bool, NvmeError> {
        let completion = Completion {
            result: controller.into(),
            queue_head: 0,
            id: wish.id,
            status: Status::SUCCESS,
        };
        let answer = lone_completion(self.pool, wish.agreed.digests, &completion);
        let sent = async { Ok(self.transport.write_all(&[answer]).await?) };
        let sent = self.within(sent).await?;
        Ok(sent.is_some())
    }
}
