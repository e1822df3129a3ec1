//! A controller: what one host has of one subsystem, over all of its queues. And how it answers on its admin queue.
//!
//! Invariants:
//! - a controller ends as a whole, with its admin queue or when the host breaks a rule on any: all queues are cut, so
//!   that a host that connects again finds nothing of before under way;
//! - the client of the export leaves when the last queue's session is over;
//! - nothing waits here: a command of the admin queue is answered at once, or (events) kept until there is news.

use std::cell::{Cell, RefCell};
use std::collections::{BTreeSet, VecDeque};
use std::net::SocketAddr;
use std::rc::Rc;

use plexum_block::wait::{Mutex, Signal};
use plexum_front::export::{Export, ExportInfo};
use plexum_front::exports::Visit;
use plexum_front::flag::Flag;

use crate::identity::Identity;
use crate::wire::command::{Command, FABRICS, Sgl, admin};
use crate::wire::fabrics::{Fabrics, Registers, VERSION, capabilities, property};
use crate::wire::identify::{
    ControllerFacts, EVENT_REQUESTS_LESS_ONE, KEEP_ALIVE_TENTHS, NAMESPACE, NamespaceFacts, Page,
    Purpose, active_namespaces, controller, namespace, namespace_descriptors, structure,
};
use crate::wire::log::{self, Asked, page};
use crate::wire::status::Status;

/// Entries of each queue.
pub const QUEUE_ENTRIES_MAX: u16 = 128;
/// I/O queues of a controller: all are served by one thread, so more would not make anything faster.
pub const IO_QUEUES_MAX: u16 = 4;
/// Most data of one answer on the admin queue, in bytes.
const ADMIN_DATA_BYTES_MAX: u64 = 64 << 10;

/// Identifiers of features.
mod feature {
    pub const WRITE_CACHE: u8 = 0x06;
    pub const QUEUES: u8 = 0x07;
    pub const ATOMICITY: u8 = 0x0a;
    pub const EVENTS: u8 = 0x0b;
    pub const KEEP_ALIVE: u8 = 0x0f;
}

/// Events: bit of a change of a namespace in the feature, and what an event of it says (type 2, log page 4).
const NAMESPACE_CHANGES: u32 = 1 << 8;
const NAMESPACE_CHANGED: u64 = 2 | (page::CHANGED_NAMESPACES as u64) << 16;

/// What a volume is in NVMe besides its size.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shape {
    /// What it is called.
    pub identity: Identity,
    /// Best unit of writes in bytes: a strip.
    pub io_min_bytes: u64,
    /// Best size of writes in bytes: all strips of a row.
    pub io_opt_bytes: u64,
}

/// The subsystem of a controller: its export, with the host as a client of it.
pub(crate) struct Subsystem<E> {
    pub(crate) visit: Visit<E>,
    pub(crate) shape: Shape,
    /// Requests are admitted one by one, in the order in which they come on all queues.
    pub(crate) admission: Mutex,
}

/// Who a controller is for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Owner {
    pub(crate) host: String,
    pub(crate) host_id: [u8; 16],
    pub(crate) subsystem: String,
}

/// What is told of this server.
#[derive(Clone, Debug)]
pub(crate) struct Told {
    pub(crate) version: String,
    /// What discovery tells.
    pub(crate) subsystems: Vec<String>,
    /// Where it tells it.
    pub(crate) address: SocketAddr,
}

/// A controller.
pub(crate) struct Controller<E> {
    pub(crate) id: u16,
    pub(crate) owner: Owner,
    /// None for discovery.
    pub(crate) subsystem: Option<Subsystem<E>>,
    registers: Cell<Registers>,
    keep_alive_ms: Cell<u32>,
    /// The keep alive time-out was changed.
    pub(crate) retimed: Signal,
    /// A command has come since this was looked at last.
    pub(crate) is_heard: Cell<bool>,
    /// Numbers of I/O queues that are connected.
    queues: RefCell<BTreeSet<u16>>,
    /// It is to end, with all of its queues.
    pub(crate) ended: Flag,
    /// Nothing of it is left.
    pub(crate) gone: Rc<Flag>,
    events: RefCell<Events>,
}

#[derive(Default)]
struct Events {
    /// Which are wanted.
    wanted: u32,
    /// Requests for the next one.
    waiting: VecDeque<u16>,
    has_changed: bool,
    is_told: bool,
}

/// An I/O queue's number at its controller, for as long as this lives.
pub(crate) struct QueueNumber<'a, E>(&'a Controller<E>, u16);

impl<E> Drop for QueueNumber<'_, E> {
    fn drop(&mut self) {
        self.0.queues.borrow_mut().remove(&self.1);
    }
}

impl<E> Drop for Controller<E> {
    fn drop(&mut self) {
        self.subsystem.take(); // the client leaves before anybody hears that it has
        self.gone.set();
    }
}

/// What a command of the admin queue comes to.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Reply {
    Done {
        result: u64,
        data: Option<Vec<u8>>,
    },
    Refused(Status),
    /// It is answered when there is news.
    Later,
}

impl Reply {
    fn with(result: impl Into<u64>) -> Self {
        Self::Done {
            result: result.into(),
            data: None,
        }
    }
}

impl<E: Export> Controller<E> {
    pub(crate) fn new(
        id: u16,
        owner: Owner,
        subsystem: Option<Subsystem<E>>,
        keep_alive_ms: u32,
    ) -> Self {
        Self {
            id,
            owner,
            subsystem,
            registers: Cell::default(),
            keep_alive_ms: Cell::new(rounded(keep_alive_ms)),
            retimed: Signal::new(),
            is_heard: Cell::new(false),
            queues: RefCell::default(),
            ended: Flag::default(),
            gone: Rc::default(),
            events: RefCell::default(),
        }
    }

    /// After so many milliseconds without a command it ends; 0: never.
    pub(crate) fn keep_alive_ms(&self) -> u32 {
        self.keep_alive_ms.get()
    }

    /// Takes a number for an I/O queue.
    ///
    /// # Errors
    /// There is no such number, it is taken, or the controller takes no queues.
    pub(crate) fn take_number(&self, number: u16) -> Result<QueueNumber<'_, E>, Status> {
        if self.subsystem.is_none() || !(1..=IO_QUEUES_MAX).contains(&number) {
            return Err(Status::CONNECT_PARAMETERS);
        }
        if !self.registers.get().is_ready() || self.ended.is_set() {
            return Err(Status::COMMAND_SEQUENCE);
        }
        match self.queues.borrow_mut().insert(number) {
            true => Ok(QueueNumber(self, number)),
            false => Err(Status::CONNECT_BUSY),
        }
    }

    /// Its namespace has changed.
    pub(crate) fn note_change(&self) {
        let mut events = self.events.borrow_mut();
        (events.has_changed, events.is_told) = (true, false);
    }

    /// The command that is to be answered with news, and what they say; `None` without news, or when nobody waits.
    pub(crate) fn news(&self) -> Option<(u16, u64)> {
        let mut events = self.events.borrow_mut();
        let is_due = events.has_changed && !events.is_told;
        if !is_due || events.wanted & NAMESPACE_CHANGES == 0 {
            return None;
        }
        let id = events.waiting.pop_front()?;
        events.is_told = true;
        Some((id, NAMESPACE_CHANGED))
    }

    /// Judges and answers a command of the admin queue.
    pub(crate) fn answer(&self, command: &Command, bytes: &[u8; 64], told: &Told) -> Reply {
        self.is_heard.set(true);
        if command.is_fused() {
            return Reply::Refused(Status::INVALID_FIELD);
        }
        if command.opcode == FABRICS {
            return self.fabrics(&Fabrics::decode(bytes));
        }
        if !self.registers.get().is_ready() {
            return Reply::Refused(Status::COMMAND_SEQUENCE);
        }
        match command.opcode {
            admin::IDENTIFY => self.identify(command, told),
            admin::GET_LOG_PAGE => self.log_page(command, told),
            admin::GET_FEATURES => self.get_feature(command),
            admin::SET_FEATURES => self.set_feature(command),
            admin::KEEP_ALIVE => Reply::with(0_u64),
            admin::ABORT => Reply::with(1_u64), // it was not aborted: it ends as it would have
            admin::ASYNC_EVENT_REQUEST => {
                let mut events = self.events.borrow_mut();
                if events.waiting.len() > usize::from(EVENT_REQUESTS_LESS_ONE) {
                    return Reply::Refused(Status::TOO_MANY_EVENT_REQUESTS);
                }
                events.waiting.push_back(command.id);
                Reply::Later
            }
            _ => Reply::Refused(Status::INVALID_OPCODE),
        }
    }

    fn fabrics(&self, fabrics: &Fabrics) -> Reply {
        match *fabrics {
            Fabrics::Get {
                offset_bytes,
                is_long,
            } => {
                let registers = self.registers.get();
                match (offset_bytes, is_long) {
                    (property::CAPABILITIES, true) => Reply::with(capabilities(QUEUE_ENTRIES_MAX)),
                    (property::VERSION, false) => Reply::with(VERSION),
                    (property::CONFIGURATION, false) => Reply::with(registers.configuration()),
                    (property::STATUS, false) => Reply::with(registers.status()),
                    _ => Reply::Refused(Status::INVALID_FIELD),
                }
            }
            Fabrics::Set {
                offset_bytes: property::CONFIGURATION,
                value,
            } => {
                let mut registers = self.registers.get();
                registers.configure(value as u32); // the property has 4 bytes
                self.registers.set(registers);
                Reply::with(0_u64)
            }
            Fabrics::Set { .. } | Fabrics::Disconnect => Reply::Refused(Status::INVALID_FIELD),
            Fabrics::Connect(_) => Reply::Refused(Status::COMMAND_SEQUENCE),
            Fabrics::Other(_) => Reply::Refused(Status::INVALID_OPCODE),
        }
    }

    fn identify(&self, command: &Command, told: &Told) -> Reply {
        let kind = command.dwords[0] as u8; // CNS
        let command_set = (command.dwords[1] >> 24) as u8; // CSI
        let Some(subsystem) = &self.subsystem else {
            return match kind {
                structure::CONTROLLER => self.give(command, self.facts(told, Purpose::Discovery)),
                _ => Reply::Refused(Status::INVALID_FIELD),
            };
        };
        let info = subsystem.visit.export().info();
        let is_ours = command.namespace == NAMESPACE;
        match kind {
            structure::CONTROLLER => {
                let has_cache = !info.is_read_only;
                self.give(command, self.facts(told, Purpose::Io { has_cache }))
            }
            structure::NAMESPACE if is_ours => self.give(
                command,
                namespace(&namespace_facts(&info, &subsystem.shape)),
            ),
            structure::NAMESPACE_DESCRIPTORS if is_ours => {
                let uuid = subsystem.shape.identity.uuid();
                self.give(command, namespace_descriptors(&uuid))
            }
            structure::NAMESPACE | structure::NAMESPACE_DESCRIPTORS => {
                Reply::Refused(Status::INVALID_NAMESPACE)
            }
            structure::ACTIVE_NAMESPACES => {
                self.give(command, active_namespaces(command.namespace))
            }
            structure::COMMAND_SET_CONTROLLER if command_set == 0 => {
                self.give(command, Box::new([0; 4096]))
            }
            _ => Reply::Refused(Status::INVALID_FIELD),
        }
    }

    fn facts(&self, told: &Told, purpose: Purpose) -> Page {
        let serial = match &self.subsystem {
            Some(subsystem) => subsystem.shape.identity.serial(),
            None => "discovery".to_owned(),
        };
        controller(&ControllerFacts {
            serial,
            version: told.version.clone(),
            controller: self.id,
            subsystem: self.owner.subsystem.clone(),
            queue_entries: QUEUE_ENTRIES_MAX,
            purpose,
        })
    }

    fn log_page(&self, command: &Command, told: &Told) -> Reply {
        let asked = Asked::decode(&command.dwords);
        if asked.count_bytes > ADMIN_DATA_BYTES_MAX || !asked.offset_bytes.is_multiple_of(4) {
            return Reply::Refused(Status::INVALID_FIELD);
        }
        let whole = match (asked.page, &self.subsystem) {
            (page::DISCOVERY, None) => {
                log::discovery(&told.subsystems, told.address, QUEUE_ENTRIES_MAX)
            }
            (page::ERRORS, _) => log::errors(),
            (page::HEALTH, Some(_)) => log::health(),
            (page::FIRMWARE, Some(_)) => log::firmware(&told.version),
            (page::EFFECTS, Some(_)) => log::effects(),
            (page::CHANGED_NAMESPACES, Some(_)) => {
                let mut events = self.events.borrow_mut();
                let changed = events.has_changed.then_some(NAMESPACE);
                let whole = log::changed_namespaces(changed.as_slice());
                if !asked.keeps_events {
                    (events.has_changed, events.is_told) = (false, false);
                }
                whole
            }
            _ => return Reply::Refused(Status::INVALID_LOG_PAGE),
        };
        let Some(begin) = usize::try_from(asked.offset_bytes)
            .ok()
            .filter(|begin| *begin <= whole.len())
        else {
            return Reply::Refused(Status::INVALID_FIELD);
        };
        let mut data = whole[begin..].to_vec();
        data.resize(asked.count_bytes as usize, 0); // at most 64 KiB
        check_data(command, &data).unwrap_or(Reply::Done {
            result: 0,
            data: Some(data),
        })
    }

    fn give(&self, command: &Command, page: Page) -> Reply {
        let data = page.to_vec();
        check_data(command, &data).unwrap_or(Reply::Done {
            result: 0,
            data: Some(data),
        })
    }

    fn get_feature(&self, command: &Command) -> Reply {
        let queues = u32::from(IO_QUEUES_MAX - 1);
        match command.dwords[0] as u8 {
            feature::WRITE_CACHE if self.has_cache() => Reply::with(1_u64),
            feature::QUEUES => Reply::with(queues | queues << 16),
            feature::ATOMICITY => Reply::with(0_u64),
            feature::EVENTS => Reply::with(self.events.borrow().wanted),
            feature::KEEP_ALIVE => Reply::with(self.keep_alive_ms.get()),
            _ => Reply::Refused(Status::INVALID_FIELD),
        }
    }

    fn set_feature(&self, command: &Command) -> Reply {
        let value = command.dwords[1];
        match command.dwords[0] as u8 {
            feature::QUEUES => {
                // As many of each as the host wants, and no more than there may be; both count from 0.
                let most = u32::from(IO_QUEUES_MAX - 1);
                let (wanted, completion) = (value & 0xffff, value >> 16);
                Reply::with(wanted.min(most) | completion.min(most) << 16)
            }
            feature::EVENTS => {
                self.events.borrow_mut().wanted = value;
                Reply::with(0_u64)
            }
            feature::KEEP_ALIVE => {
                self.keep_alive_ms.set(rounded(value));
                self.retimed.notify();
                Reply::with(0_u64)
            }
            feature::WRITE_CACHE if self.has_cache() && value & 1 == 1 => Reply::with(0_u64),
            feature::WRITE_CACHE => Reply::Refused(Status::NOT_CHANGEABLE),
            _ => Reply::Refused(Status::INVALID_FIELD),
        }
    }

    fn has_cache(&self) -> bool {
        let subsystem = self.subsystem.as_ref();
        subsystem.is_some_and(|subsystem| !subsystem.visit.export().info().is_read_only)
    }
}

/// Whether data may go where the command says; `None` when they may.
fn check_data(command: &Command, data: &[u8]) -> Option<Reply> {
    let Sgl {
        identifier,
        length_bytes,
        ..
    } = command.sgl;
    if identifier != Sgl::TRANSPORT {
        return Some(Reply::Refused(Status::SGL_TYPE));
    }
    match length_bytes as usize == data.len() {
        true => None,
        false => Some(Reply::Refused(Status::DATA_LENGTH)),
    }
}

/// A keep alive time-out in the steps that were announced.
fn rounded(keep_alive_ms: u32) -> u32 {
    let step_ms = u32::from(KEEP_ALIVE_TENTHS) * 100;
    keep_alive_ms.div_ceil(step_ms).saturating_mul(step_ms)
}

/// A block of a volume in bytes: no host takes one smaller than a sector.
pub(crate) fn block_bytes(info: &ExportInfo) -> u32 {
    info.block_bytes_min.max(512)
}

/// What a host is told of a volume.
fn namespace_facts(info: &ExportInfo, shape: &Shape) -> NamespaceFacts {
    let block_bytes = block_bytes(info);
    NamespaceFacts {
        block_count: info.size_bytes / u64::from(block_bytes),
        block_bytes,
        io_min_bytes: shape.io_min_bytes,
        io_opt_bytes: shape.io_opt_bytes,
        discard_bytes: info.block_bytes_preferred.max(block_bytes),
        is_read_only: info.is_read_only,
        uuid: shape.identity.uuid(),
    }
}
