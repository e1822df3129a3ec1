//! How a volume gets into the registry: its members are opened, then it has a name of its own.

use std::path::Path;
use std::rc::Rc;

use plexum_engine::balance::Policy;
use plexum_front::export::ExportInfo;
use plexum_runtime::{Handle, IoKind};

use super::hosted::{Hosted, Sockets, Stage};
use super::refusal::Refusal;
use super::registry::Host;
use crate::assembly::{AssembleRequest, Assembled, Body, open};
use crate::memory::{Key, VolumeMemory};
use crate::open::full_path;
use crate::problem::{Code, Problem};
use crate::runtime_dir::{Kind, check_socket_path, free_socket_path};
use crate::volume::export::VolumeExport;
use crate::volume::facts::Facts;
use crate::volume::ops::take_up_settings;
use crate::volume::served::Served;

/// Preferred size of requests, in bytes.
const BLOCK_BYTES_PREFERRED: u32 = 4096;

/// A volume whose members are open and locked; nothing was written. Dropped, it lets go of them.
pub struct Prepared {
    assembled: Assembled,
    request: AssembleRequest,
    balance: Option<Policy>,
}

impl Prepared {
    /// The name that it would be served by.
    #[must_use]
    pub fn name(&self) -> &str {
        self.assembled.body.name()
    }
}

impl Host {
    /// Opens, locks and assembles members; they may make several volumes. Nobody can connect, and nothing is written.
    ///
    /// # Errors
    /// `MemberTaken` when a volume of this host has one of them; everything that assembly refuses.
    pub async fn prepare(&self, request: &AssembleRequest) -> Result<Vec<Prepared>, Refusal> {
        let opened = open(&self.handle, &self.pool, request.clone()).await;
        let all = opened.map_err(|problem| self.with_owner(problem))?;
        let prepared = all.into_iter().map(|assembled| Prepared {
            assembled,
            request: request.clone(),
            balance: request.balance,
        });
        Ok(prepared.collect())
    }

    /// Gives a volume its name and its place in the registry. `socket`: where clients find it instead of in the runtime
    /// folder.
    ///
    /// # Errors
    /// `NameTaken`; `SocketInUse` when another server has its sockets.
    pub fn admit(&self, prepared: Prepared, socket: Option<&Path>) -> Result<Rc<Hosted>, Refusal> {
        let Prepared {
            assembled,
            request,
            balance,
        } = prepared;
        let volume = Rc::new(assembled.body);
        let name = volume.name().to_owned();
        if self.get(&name).is_some() {
            return Err(Refusal::NameTaken { name });
        }
        let io = self.handle.status();
        let facts = facts_of(&self.handle, assembled.facts);
        let mut notes = assembled.notes;
        let info = export_info(&volume, &facts, &mut notes);
        let clock = self.handle.clock();
        let export = VolumeExport::new(Rc::clone(&volume), info, assembled.tally, clock.clone());
        if let (IoKind::Threads, Some(reason)) = (io.kind, &io.fallback_reason) {
            notes.push(format!("threads do the I/O: {reason}"));
        }
        let folder = &self.settings.runtime_dir;
        let nbd = match socket {
            Some(path) => std::path::absolute(path).unwrap_or_else(|_| path.to_owned()),
            None => folder.file(&name, Kind::Nbd),
        };
        let sockets = Sockets::new(nbd, folder.file(&name, Kind::Control));
        match self.handle.is_rehearsal() {
            true => check_socket_path(&sockets.control).map(drop)?,
            false => free_socket_path(&sockets.control)?,
        }
        let memory = self.recall(&facts, &name, &mut notes);
        let served = Served::new(volume, Rc::new(export), facts, clock, memory);
        notes.extend(take_up_settings(&served, balance).err());
        let hosted = Rc::new(Hosted::new(served, request, notes, sockets));
        self.volumes.borrow_mut().push(Rc::clone(&hosted));
        Ok(hosted)
    }

    /// Takes a volume that was admitted and not opened out of the registry again; lets go of its members.
    pub fn dismiss(&self, hosted: &Rc<Hosted>) {
        assert_eq!(hosted.stage(), Stage::Admitted, "an open volume is closed");
        hosted.served.take();
        self.remove(hosted);
    }

    pub(super) fn remove(&self, hosted: &Rc<Hosted>) {
        let is_other = |other: &Rc<Hosted>| !Rc::ptr_eq(other, hosted);
        self.volumes.borrow_mut().retain(is_other);
        hosted.gone.set();
        self.changed.notify();
    }

    /// What happened to a volume of another kind in earlier lives is told again, and what comes is kept.
    pub(crate) fn remember_events(&self, name: &str, key: &Key) {
        if let Some(memory) = &self.memory {
            let found = memory.find(key, name);
            self.events
                .remember(name, found.events, memory.keeper(), key.clone());
        }
    }

    /// What is remembered of a volume.
    fn recall(&self, facts: &Facts, name: &str, notes: &mut Vec<String>) -> VolumeMemory {
        if let Some(reason) = self.unkept.take() {
            notes.push(format!(
                "events and results are not kept for the next start: {reason}"
            ));
        }
        let Some(memory) = &self.memory else {
            return VolumeMemory::unkept(name);
        };
        let key = Key::of(&facts.format.to_string(), &facts.uuid, name);
        let (found, keeper) = (memory.find(&key, name), memory.keeper());
        let problem = found.problem;
        notes.extend(problem.map(|problem| format!("what was kept before is not used: {problem}")));
        self.events
            .remember(name, found.events, keeper.clone(), key.clone());
        VolumeMemory::kept(found.remembered, keeper, key)
    }

    /// A member that this process has open already is one of a volume, or was given twice.
    fn with_owner(&self, problem: Problem) -> Refusal {
        let member = match (problem.code, &problem.member) {
            (Code::DuplicateMember, Some(member)) => member.clone(),
            _ => return problem.into(),
        };
        let path = full_path(Path::new(&member));
        let has_it = |hosted: &&Rc<Hosted>| {
            let Ok(served) = hosted.served() else {
                return false;
            };
            let members = served.known_members();
            let mut names = members.iter().filter_map(|member| member.name.as_deref());
            names.any(|name| full_path(Path::new(name)) == path)
        };
        let volumes = self.volumes.borrow();
        match volumes.iter().find(has_it) {
            Some(hosted) => Refusal::MemberTaken {
                member,
                volume: hosted.name().to_owned(),
                problem: Box::new(problem),
            },
            None => problem.into(),
        }
    }
}

/// What is known of a volume, with how this process does its I/O.
pub(super) fn facts_of(handle: &Handle, facts: Facts) -> Facts {
    Facts {
        io: handle.status().kind.to_string(),
        ..facts
    }
}

/// What clients are told of a volume.
pub(super) fn export_info(volume: &Body, facts: &Facts, notes: &mut Vec<String>) -> ExportInfo {
    let (name, sector_bytes) = (volume.name().to_owned(), volume.sector_bytes());
    // Clients refuse a size that is no multiple of the block size, and could not reach the rest.
    let rest_bytes = volume.volume_bytes() % u64::from(sector_bytes);
    if rest_bytes > 0 {
        notes.push(format!(
            "the last {rest_bytes} bytes of {name} cannot be reached: its members have blocks of {sector_bytes} bytes"
        ));
    }
    ExportInfo {
        description: format!("{} {}", facts.level, facts.format),
        size_bytes: volume.volume_bytes() - rest_bytes,
        block_bytes_min: sector_bytes,
        block_bytes_preferred: sector_bytes.max(BLOCK_BYTES_PREFERRED),
        is_read_only: volume.status().is_read_only,
        is_rotational: false,
        name,
    }
}
