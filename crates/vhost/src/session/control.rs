//! Messages of the front end, one after the other.

use std::future::poll_fn;
use std::rc::Rc;
use std::task::Poll;

use plexum_block::clock::Clock;
use plexum_front::export::Export;

use super::machine::Queue;
use super::{Ended, PART_QUEUES, Session, SessionError};
use crate::config::{Cache, QUEUES_MAX, WRITEBACK_AT, describe, feature, features, protocol};
use crate::inflight::{Inflight, record_bytes};
use crate::peer::{Call, FilePart, Peer};
use crate::ring::check_size;
use crate::table::{Table, check_region};
use crate::wire::{
    CONFIG_BYTES_MAX, ConfigPart, HEADER_BYTES, Header, InflightArea, Message, Region, Reply,
    RingFile, RingPlace, RingValue, SLOTS_MAX,
};

/// A message with what came with it.
struct Received<F> {
    header: Header,
    message: Message,
    files: Vec<F>,
}

/// What a message is answered with; nothing but an acknowledgement, if that is wanted, for most.
type Answer<F> = Option<(Reply, Option<F>)>;

impl<P: Peer, E: Export, C: Clock> Session<'_, P, E, C> {
    /// Follows messages until the connection ends.
    pub(super) async fn control(&self) -> Result<Ended, SessionError> {
        while let Some(received) = self.receive().await? {
            self.has_spoken.set(true);
            let Received {
                header,
                message,
                files,
            } = received;
            let (request, has_answer) = (header.request, message.has_answer());
            let is_known = !matches!(message, Message::Other(_));
            let followed = self.follow(message, files).await;
            // The message that agrees on acknowledgements is the first to get one.
            let acknowledges = header.needs_reply
                && !has_answer
                && self.machine.borrow().protocol & protocol::REPLY_ACK != 0;
            match followed {
                Ok(Some((reply, file))) => {
                    self.peer
                        .send(&reply.encode(request), file.as_ref())
                        .await?;
                }
                Ok(None) if acknowledges => self.acknowledge(request, 0).await?,
                Ok(None) => {}
                Err(reason) if acknowledges => {
                    (self.tell)(format!("request {request} cannot be followed: {reason}"));
                    self.acknowledge(request, 1).await?;
                }
                Err(_) if !is_known => {} // nobody waits for it
                Err(reason) => return Err(SessionError::Refused { request, reason }),
            }
        }
        Ok(Ended::HungUp)
    }

    async fn acknowledge(&self, request: u32, word: u64) -> Result<(), SessionError> {
        let reply = Reply::Number(word).encode(request);
        Ok(self.peer.send(&reply, None).await?)
    }

    /// The next message; `None` when the connection ends between two.
    async fn receive(&self) -> Result<Option<Received<P::File>>, SessionError> {
        let (mut head, mut files) = ([0; HEADER_BYTES], Vec::new());
        if !self.fill(&mut head, &mut files).await? {
            return Ok(None);
        }
        let header = Header::decode(&head)?;
        let mut payload = vec![0; header.payload_bytes];
        if !payload.is_empty() && !self.fill(&mut payload, &mut files).await? {
            return Ok(None);
        }
        let message = Message::decode(&header, &payload)?;
        Ok(Some(Received {
            header,
            message,
            files,
        }))
    }

    /// Fills `buf`; `false` when the connection ends before.
    async fn fill(&self, buf: &mut [u8], files: &mut Vec<P::File>) -> Result<bool, SessionError> {
        let mut filled = 0;
        while filled < buf.len() {
            match self.peer.receive(&mut buf[filled..], files).await? {
                0 => return Ok(false),
                count => filled += count,
            }
        }
        Ok(true)
    }

    /// Does what a message says.
    async fn follow(
        &self,
        message: Message,
        files: Vec<P::File>,
    ) -> Result<Answer<P::File>, String> {
        let number = |word| Ok(Some((Reply::Number(word), None)));
        match message {
            Message::GetFeatures => number(features(&self.export.info())),
            Message::GetProtocolFeatures => number(protocol::ALL),
            Message::GetQueueCount => number(u64::from(QUEUES_MAX)),
            Message::GetMemorySlots => number(SLOTS_MAX as u64),
            Message::SetFeatures(word) => self.set_features(word),
            Message::SetProtocolFeatures(word) => self.set_protocol_features(word),
            Message::SetOwner => Ok(None),
            Message::ResetOwner | Message::ResetDevice => self.reset().await,
            Message::SetMemoryTable(regions) => self.set_memory(&regions, files),
            Message::AddRegion(region) => self.add_region(region, files),
            Message::RemoveRegion(region) => {
                let removed = self.machine.borrow_mut().table.remove(&region);
                removed.map(|()| None).map_err(|error| error.to_string())
            }
            Message::SetRingSize(value) => self.set_ring_size(value),
            Message::SetRingPlace(place) => self.set_ring_place(place),
            Message::SetRingBase(value) => self.set_ring_base(value),
            Message::SetRingEnabled(value) => self.set_ring(value.ring, |queue| {
                queue.is_enabled = Some(value.value != 0);
                Ok(())
            }),
            Message::GetRingBase(value) => self.stop_ring(value.ring).await,
            Message::SetKick(event) => self.set_kick(event, files),
            Message::SetCall(event) => self.set_call(event, files),
            Message::SetError(event) => self.set_error(event, files),
            Message::GetConfig(part) => Ok(Some((Reply::Config(self.config(part)), None))),
            Message::SetConfig(part) => self.set_config(&part),
            Message::GetInflight(area) => self.share_record(area),
            Message::SetInflight(area) => self.take_record(area, files),
            Message::SetBackendChannel => {
                let backend = self.peer.backend(one_file(files)?);
                let backend = backend.map_err(|error| error.to_string())?;
                self.machine.borrow_mut().backend = Some(backend);
                Ok(None)
            }
            Message::Other(request) => Err(format!("request {request} is not known here")),
        }
    }

    fn set_features(&self, word: u64) -> Result<Answer<P::File>, String> {
        let unknown = word & !features(&self.export.info());
        if unknown != 0 {
            return Err(format!("features {unknown:#x} were not offered"));
        }
        self.machine.borrow_mut().features = word;
        Ok(None)
    }

    fn set_protocol_features(&self, word: u64) -> Result<Answer<P::File>, String> {
        let unknown = word & !protocol::ALL;
        if unknown != 0 {
            return Err(format!(
                "features {unknown:#x} of the protocol were not offered"
            ));
        }
        self.machine.borrow_mut().protocol = word;
        Ok(None)
    }

    /// Everything is as at first; what is under way ends before.
    async fn reset(&self) -> Result<Answer<P::File>, String> {
        let count = self.machine.borrow().queues.len();
        for index in 0..count {
            self.drain_ring(index).await;
        }
        let mut machine = self.machine.borrow_mut();
        machine.queues.clear();
        machine.features = 0;
        machine.cache = Cache::Back;
        machine.inflight = None;
        Ok(None)
    }

    fn map(&self, region: &Region, file: &P::File) -> Result<P::Mapping, String> {
        check_region(region).map_err(|error| error.to_string())?;
        let part = FilePart {
            offset_bytes: region.file_offset_bytes,
            size_bytes: region.size_bytes,
        };
        self.peer.map(file, part).map_err(|error| error.to_string())
    }

    fn set_memory(
        &self,
        regions: &[Region],
        files: Vec<P::File>,
    ) -> Result<Answer<P::File>, String> {
        if files.len() != regions.len() {
            return Err(format!(
                "{} regions of memory came with {} files",
                regions.len(),
                files.len()
            ));
        }
        let mut table = Table::default();
        for (region, file) in regions.iter().zip(&files) {
            let mapping = self.map(region, file)?;
            let added = table.add(*region, mapping);
            added.map_err(|error| error.to_string())?;
        }
        self.machine.borrow_mut().table = table;
        self.begin_rings();
        Ok(None)
    }

    fn add_region(&self, region: Region, files: Vec<P::File>) -> Result<Answer<P::File>, String> {
        let mapping = self.map(&region, &one_file(files)?)?;
        let added = self.machine.borrow_mut().table.add(region, mapping);
        added.map_err(|error| error.to_string())?;
        self.begin_rings();
        Ok(None)
    }

    /// Changes a queue, and begins to work on it when all is there.
    fn set_ring(
        &self,
        number: u32,
        change: impl FnOnce(&mut Queue<P>) -> Result<(), String>,
    ) -> Result<Answer<P::File>, String> {
        let index = {
            let machine = &mut *self.machine.borrow_mut();
            let (index, queue) = machine.queue(number)?;
            change(queue)?;
            index
        };
        self.begin_ring(index);
        Ok(None)
    }

    fn begin_rings(&self) {
        let count = self.machine.borrow().queues.len();
        (0..count).for_each(|index| self.begin_ring(index));
    }

    /// Memory may come after a ring was set up: a ring without any is not begun yet.
    fn begin_ring(&self, index: usize) {
        let machine = &mut *self.machine.borrow_mut();
        if !machine.table.is_empty()
            && let Err(error) = machine.begin(index)
        {
            machine.queues[index].break_off();
            (self.tell)(format!("queue {index} cannot be worked on: {error}"));
        }
        machine.queues[index].changes += 1;
        self.parts.wake(PART_QUEUES + index);
    }

    fn set_ring_size(&self, value: RingValue) -> Result<Answer<P::File>, String> {
        let size = check_size(value.value).map_err(|error| error.to_string())?;
        self.set_ring(value.ring, |queue| match queue.ring {
            Some(_) if queue.size != Some(size) => Err(is_worked_on(value.ring)),
            _ => {
                queue.size = Some(size);
                Ok(())
            }
        })
    }

    fn set_ring_place(&self, place: RingPlace) -> Result<Answer<P::File>, String> {
        if place.flags != 0 {
            return Err("changes of rings are not logged here".to_owned());
        }
        self.set_ring(place.ring, |queue| match &queue.ring {
            Some(ring) if *ring.place() != place => Err(is_worked_on(place.ring)),
            _ => {
                queue.place = Some(place);
                Ok(())
            }
        })
    }

    fn set_ring_base(&self, value: RingValue) -> Result<Answer<P::File>, String> {
        let base = u16::try_from(value.value)
            .map_err(|_| format!("entry {} is in no ring", value.value))?;
        self.set_ring(value.ring, |queue| match queue.ring {
            Some(_) => Err(is_worked_on(value.ring)),
            None => {
                queue.base = base;
                Ok(())
            }
        })
    }

    fn set_kick(&self, event: RingFile, files: Vec<P::File>) -> Result<Answer<P::File>, String> {
        let kick = match event.has_file {
            true => self.peer.kick(one_file(files)?).map(Rc::new),
            false => return Err("a ring without an event for kicks would be polled".to_owned()),
        };
        let kick = kick.map_err(|error| error.to_string())?;
        self.set_ring(u32::from(event.ring), |queue| {
            queue.kick = Some(kick);
            Ok(())
        })
    }

    fn event(&self, event: RingFile, files: Vec<P::File>) -> Result<Option<P::Call>, String> {
        if !event.has_file {
            return Ok(None);
        }
        let call = self.peer.call(one_file(files)?);
        call.map(Some).map_err(|error| error.to_string())
    }

    fn set_call(&self, event: RingFile, files: Vec<P::File>) -> Result<Answer<P::File>, String> {
        let call = self.event(event, files)?;
        // What the old event was told may have got lost on the way.
        if let Some(call) = &call {
            call.signal();
        }
        self.set_ring(u32::from(event.ring), |queue| {
            queue.call = call;
            Ok(())
        })
    }

    fn set_error(&self, event: RingFile, files: Vec<P::File>) -> Result<Answer<P::File>, String> {
        let error = self.event(event, files)?;
        self.set_ring(u32::from(event.ring), |queue| {
            queue.error = error;
            Ok(())
        })
    }

    async fn stop_ring(&self, number: u32) -> Result<Answer<P::File>, String> {
        let (index, _) = self.machine.borrow_mut().queue(number)?;
        let base = self.drain_ring(index).await;
        let value = RingValue {
            ring: number,
            value: u32::from(base),
        };
        Ok(Some((Reply::RingBase(value), None)))
    }

    /// Takes nothing more from a ring, and returns when nothing of it is under way.
    async fn drain_ring(&self, index: usize) -> u16 {
        self.machine.borrow_mut().queues[index].is_stopping = true;
        poll_fn(|_| {
            let machine = self.machine.borrow();
            let queue = &machine.queues[index];
            // What an earlier session has left is done first: nobody else would know of it.
            let left = queue.ring.as_ref().map_or(0, |ring| ring.under_way());
            match left == 0 || queue.is_broken && left == queue.left.len() || self.is_cut.get() {
                true => Poll::Ready(()),
                false => Poll::Pending, // `forget_head` wakes this part
            }
        })
        .await;
        self.tell_guests(); // the ring is forgotten below
        let queue = &mut self.machine.borrow_mut().queues[index];
        queue.changes += 1;
        self.parts.wake(PART_QUEUES + index);
        queue.stop()
    }

    fn config(&self, asked: ConfigPart) -> ConfigPart {
        let cache = self.machine.borrow().cache;
        let all = describe(&self.export.info(), self.shape, cache);
        let begin = asked.offset_bytes as usize;
        let part = all.get(begin..begin.saturating_add(asked.bytes.len()));
        ConfigPart {
            bytes: part.map(<[u8]>::to_vec).unwrap_or_default(),
            ..asked
        }
    }

    fn set_config(&self, part: &ConfigPart) -> Result<Answer<P::File>, String> {
        let mut machine = self.machine.borrow_mut();
        let may_choose = machine.features & feature::CONFIG_WCE != 0;
        match (part.offset_bytes, part.bytes.as_slice()) {
            (WRITEBACK_AT, [word @ (0 | 1)]) if may_choose => {
                machine.cache = match word {
                    0 => Cache::Through,
                    _ => Cache::Back,
                };
                Ok(None)
            }
            (offset_bytes, bytes) => Err(format!(
                "{} bytes at {offset_bytes} of {CONFIG_BYTES_MAX} cannot be changed",
                bytes.len()
            )),
        }
    }

    fn share_record(&self, asked: InflightArea) -> Result<Answer<P::File>, String> {
        let size_bytes = record_bytes(&asked).map_err(|error| error.to_string())?;
        let area = InflightArea {
            size_bytes,
            file_offset_bytes: 0,
            ..asked
        };
        let shared = self.peer.share(size_bytes);
        let (file, mapping) = shared.map_err(|error| error.to_string())?;
        self.set_record(mapping, area)?;
        Ok(Some((Reply::Inflight(area), Some(file))))
    }

    fn take_record(
        &self,
        area: InflightArea,
        files: Vec<P::File>,
    ) -> Result<Answer<P::File>, String> {
        let part = FilePart {
            offset_bytes: area.file_offset_bytes,
            size_bytes: area.size_bytes,
        };
        let mapping = self.peer.map(&one_file(files)?, part);
        self.set_record(mapping.map_err(|error| error.to_string())?, area)?;
        Ok(None)
    }

    fn set_record(&self, mapping: P::Mapping, area: InflightArea) -> Result<(), String> {
        let record = Inflight::new(mapping, area).map_err(|error| error.to_string())?;
        let mut machine = self.machine.borrow_mut();
        if machine.queues.iter().any(|queue| queue.ring.is_some()) {
            return Err("requests are under way already, and recorded elsewhere".to_owned());
        }
        machine.inflight = Some(record);
        Ok(())
    }
}

fn one_file<F>(mut files: Vec<F>) -> Result<F, String> {
    match (files.pop(), files.is_empty()) {
        (Some(file), true) => Ok(file),
        (None, _) => Err("it comes without its file".to_owned()),
        (Some(_), false) => Err("it comes with several files".to_owned()),
    }
}

fn is_worked_on(ring: u32) -> String {
    format!("ring {ring} is being worked on")
}
