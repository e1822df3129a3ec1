//! The exports of a server: named, and open or closed at any time while clients come and go.
//!
//! Invariants:
//! - one name, one export: a name is free again when the last client of its export has left;
//! - a client that comes in time is one of the export until its visit is dropped; who comes later does not find it;
//! - `close` returns when the last client has left, in the way that was asked for; whoever does not wait for that has
//!   closed it all the same.

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use crate::budget::Budget;
use crate::client::{Client, ClientId, ClientStatus, Leave};
use crate::export::{Export, ExportInfo, REQUEST_BYTES_MAX};
use crate::flag::Flag;
use crate::requests::RequestLimits;

/// Longest name of an export in bytes: what every protocol can say.
pub const NAME_BYTES_MAX: usize = 4096;
/// Largest smallest block in bytes, and smallest preferred one.
const BLOCK_BYTES_MAX: u32 = 1 << 16;
const PREFERRED_BYTES_MIN: u32 = 512;

/// Why an export cannot be opened. Names are as they were given.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum OpenError {
    /// The name is taken.
    #[error("an export called {} is there already; choose another name", .0.escape_debug())]
    NameTaken(String),
    /// No protocol can say the name.
    #[error(
        "the export name {} is empty, longer than 4096 bytes or has a NUL; choose another name",
        .0.escape_debug()
    )]
    BadName(String),
    /// Block size not a power of two from 1 to 65536, or the preferred one smaller than it or no power of two.
    #[error(
        "export {}: block sizes {minimum} and {preferred} are not what clients can use",
        .name.escape_debug()
    )]
    BadBlockSize {
        /// Name of the export.
        name: String,
        /// Its smallest block in bytes.
        minimum: u32,
        /// Its preferred block in bytes.
        preferred: u32,
    },
    /// Larger than clients can address.
    #[error("export {}: {size_bytes} bytes are more than 2^63 - 1", .name.escape_debug())]
    TooLarge {
        /// Name of the export.
        name: String,
        /// Its size.
        size_bytes: u64,
    },
}

/// One open export, for status displays.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ExportStatus {
    /// Name, size and abilities.
    pub info: ExportInfo,
    /// Connected clients.
    pub sessions: usize,
}

/// An export that is open, or whose last clients are leaving.
pub struct Opened<E> {
    name: String,
    export: Rc<E>,
    clients: RefCell<Vec<Rc<Client>>>,
    is_closing: Cell<bool>,
    vacated: Flag,
}

/// The exports of one server. Belongs to one thread.
pub struct Exports<E> {
    opened: RefCell<Vec<Rc<Opened<E>>>>,
    default_name: RefCell<Option<String>>,
    next_id: Cell<u64>,
}

/// A client at its export, for as long as this lives.
pub struct Visit<E> {
    opened: Rc<Opened<E>>,
    client: Rc<Client>,
}

impl<E> Default for Exports<E> {
    fn default() -> Self {
        Self {
            opened: RefCell::default(),
            default_name: RefCell::default(),
            next_id: Cell::new(0),
        }
    }
}

impl<E: Export> Exports<E> {
    /// Opens an export under the name in its `info`. Block sizes are powers of two, the preferred one at least 512
    /// bytes and at most 32 MiB (a row that is no power of two is announced as the next smaller one).
    ///
    /// # Errors
    /// The name is taken or unusable, or the sizes are.
    pub fn open(&self, export: Rc<E>) -> Result<(), OpenError> {
        let info = export.info();
        check(&info)?;
        // Whoever closed one may not have waited for its last client.
        self.forget_vacated();
        let mut opened = self.opened.borrow_mut();
        if opened.iter().any(|other| other.name == info.name) {
            return Err(OpenError::NameTaken(info.name));
        }
        opened.push(Rc::new(Opened {
            name: info.name,
            export,
            clients: RefCell::default(),
            is_closing: Cell::new(false),
            vacated: Flag::default(),
        }));
        Ok(())
    }

    /// Closes an export: who comes now does not find it, and its clients leave. Returns when the last one has left;
    /// `false` when there is no such export. A second call, of whatever way, waits for the same end.
    pub async fn close(&self, name: &str, how: Leave) -> bool {
        let closing = self.named(name);
        let Some(closing) = closing else {
            return false;
        };
        closing.is_closing.set(true);
        closing.tell_all(how);
        if closing.clients.borrow().is_empty() {
            closing.vacated.set();
        }
        closing.vacated.wait().await;
        self.forget_vacated();
        true
    }

    /// Takes away an export that no client has come to. One with clients is told to drain, and is to be closed.
    pub fn withdraw(&self, name: &str) {
        if let Some(opened) = self.named(name) {
            opened.is_closing.set(true);
            opened.tell_all(Leave::Drain);
            let is_vacant = opened.clients.borrow().is_empty();
            let is_other = |other: &Rc<Opened<E>>| !is_vacant || !Rc::ptr_eq(other, &opened);
            self.opened.borrow_mut().retain(is_other);
        }
    }

    /// Names the export that clients get who ask for "". Without this call it is the only export, if there is one.
    pub fn set_default(&self, name: Option<&str>) {
        *self.default_name.borrow_mut() = name.map(str::to_owned);
    }

    /// The open export called `name`, or the default one for "".
    #[must_use]
    pub fn find(&self, name: &str) -> Option<Rc<Opened<E>>> {
        let default = self.default_name.borrow();
        let opened = self.opened.borrow();
        let mut open = opened.iter().filter(|opened| !opened.is_closing.get());
        let wanted = match (name, &*default) {
            ("", None) => {
                let only = open.next();
                return only.filter(|_| open.next().is_none()).cloned();
            }
            ("", Some(default)) => default,
            (name, _) => name,
        };
        open.find(|opened| opened.name == wanted).cloned()
    }

    /// All open exports, in the order in which they were opened.
    #[must_use]
    pub fn list(&self) -> Vec<Rc<Opened<E>>> {
        let opened = self.opened.borrow();
        let open = opened.iter().filter(|opened| !opened.is_closing.get());
        open.cloned().collect()
    }

    /// Size, abilities and number of clients of all open exports.
    #[must_use]
    pub fn status(&self) -> Vec<ExportStatus> {
        let open = self.list();
        let status = open.iter().map(|opened| ExportStatus {
            info: opened.export.info(),
            sessions: opened.clients.borrow().len(),
        });
        status.collect()
    }

    /// The clients of an export, also of one that is closing; none when there is no such export.
    #[must_use]
    pub fn clients(&self, name: &str) -> Vec<ClientStatus> {
        let Some(opened) = self.named(name) else {
            return Vec::new();
        };
        let clients = opened.clients.borrow();
        clients.iter().map(|client| client.status()).collect()
    }

    /// One client of an export.
    #[must_use]
    pub fn client(&self, name: &str, id: ClientId) -> Option<Rc<Client>> {
        let opened = self.named(name)?;
        let clients = opened.clients.borrow();
        clients.iter().find(|client| client.id() == id).cloned()
    }

    /// Tells the clients of all exports to leave, and returns at once. Exports stay open.
    pub fn tell_all(&self, how: Leave) {
        for opened in self.opened.borrow().iter() {
            opened.tell_all(how);
        }
    }

    /// A client comes to an export; `None` when it has been closed meanwhile.
    #[must_use]
    pub fn enter(
        &self,
        opened: &Rc<Opened<E>>,
        peer: String,
        limits: RequestLimits,
        budget: &Budget,
    ) -> Option<Visit<E>> {
        if opened.is_closing.get() {
            return None;
        }
        let id = ClientId(self.next_id.get());
        self.next_id.set(id.0 + 1);
        let client = Rc::new(Client::new(id, peer, limits, budget.clone()));
        opened.clients.borrow_mut().push(Rc::clone(&client));
        Some(Visit {
            opened: Rc::clone(opened),
            client,
        })
    }

    fn forget_vacated(&self) {
        let is_there = |opened: &Rc<Opened<E>>| !opened.vacated.is_set();
        self.opened.borrow_mut().retain(is_there);
    }

    fn named(&self, name: &str) -> Option<Rc<Opened<E>>> {
        let opened = self.opened.borrow();
        opened.iter().find(|opened| opened.name == name).cloned()
    }
}

fn check(info: &ExportInfo) -> Result<(), OpenError> {
    let name = info.name.clone();
    if name.is_empty() || name.len() > NAME_BYTES_MAX || name.contains('\0') {
        return Err(OpenError::BadName(name));
    }
    let (minimum, preferred) = (info.block_bytes_min, info.block_bytes_preferred);
    let is_usable = minimum.is_power_of_two()
        && minimum <= BLOCK_BYTES_MAX
        && preferred.is_power_of_two()
        && preferred >= minimum.max(PREFERRED_BYTES_MIN)
        && preferred <= REQUEST_BYTES_MAX;
    if !is_usable {
        return Err(OpenError::BadBlockSize {
            name,
            minimum,
            preferred,
        });
    }
    if i64::try_from(info.size_bytes).is_err() {
        return Err(OpenError::TooLarge {
            name,
            size_bytes: info.size_bytes,
        });
    }
    Ok(())
}

impl<E> Opened<E> {
    /// What is served.
    #[must_use]
    pub fn export(&self) -> &Rc<E> {
        &self.export
    }

    fn tell_all(&self, how: Leave) {
        // A client that is told may leave before this returns.
        let clients = self.clients.borrow().clone();
        for client in clients {
            client.tell(how);
        }
    }
}

impl<E> Visit<E> {
    /// What is served.
    #[must_use]
    pub fn export(&self) -> &E {
        &self.opened.export
    }

    /// Who is served.
    #[must_use]
    pub fn client(&self) -> &Client {
        &self.client
    }
}

impl<E> Drop for Visit<E> {
    fn drop(&mut self) {
        let is_other = |other: &Rc<Client>| !Rc::ptr_eq(other, &self.client);
        self.opened.clients.borrow_mut().retain(is_other);
        self.client.has_left();
        if self.opened.is_closing.get() && self.opened.clients.borrow().is_empty() {
            self.opened.vacated.set();
        }
    }
}
