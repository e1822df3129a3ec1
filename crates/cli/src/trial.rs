//! `plexum create --try`: an array over former members, served read-only from its plan, to see whether the data are
//! right.
//!
//! Invariants: nothing is written; the members are opened for reading alone.

use plexum_daemon::assembly::{AssembleRequest, DeviceWish};
use plexum_daemon::create::{CreateRequest, Creation};
use plexum_daemon::owners::Choice;
use plexum_daemon::problem::Problem;
use plexum_daemon::serve::{MEMORY_BYTES_DEFAULT, ServeRequest};
use plexum_engine::volume::VolumeOptions;
use plexum_format::md::Superblock;
use plexum_md::assemble::Options;
use plexum_runtime::IoChoice;
use plexum_runtime::file::Access;

use crate::args::{Common, Create};
use crate::control::runtime_dir;
use crate::errors::Outcome;
use crate::offline::runtime;
use crate::output::Screen;

/// Serves what would be made.
///
/// # Errors
/// As `create` and `serve`, but for what would be overwritten.
pub fn run(args: &Create, request: CreateRequest, common: &Common, screen: &Screen) -> Outcome {
    let members = [request.members.as_slice(), &request.spares].concat();
    let planned = plan(request)?;
    screen.note(format!(
        "{} is only tried: nothing is written; to make it, the same with --force in place of --try",
        args.name.as_deref().unwrap_or_default()
    ));
    let volume = AssembleRequest {
        members,
        name: args.name.clone(),
        options: Options {
            read_only: true,
            run_degraded: true,
            ..Options::default()
        },
        volume: VolumeOptions {
            is_read_only: true,
            ..VolumeOptions::default()
        },
        balance: None,
        may_write: false,
        backup_file: None,
        choice: Choice::Only,
        planned,
        change: plexum_daemon::assembly::Change::None,
        goal: None,
        device: DeviceWish::TakeOver,
        vhost_user: None,
    };
    let request = ServeRequest {
        volumes: vec![volume],
        named: 1,
        socket: None,
        listen: None,
        nvme: None,
        tls: None,
        io: IoChoice::Auto,
        spin: crate::serve::spin(None),
        memory_bytes: MEMORY_BYTES_DEFAULT,
        cores: 1,
        runtime_dir: runtime_dir(),
        state_dir: None,
    };
    crate::serve::start(request, args.background.into(), common, screen)
}

/// The superblocks that would be written, without what they point to: that is not there.
fn plan(request: CreateRequest) -> Result<Vec<Superblock>, Problem> {
    let request = CreateRequest {
        is_forced: true, // nothing is overwritten
        ..request
    };
    let mut runtime = runtime()?;
    let handle = runtime.handle();
    let preparing = Creation::prepare(&handle, &request, Access::ReadOnly);
    let mut planned = runtime.block_on(preparing)?.superblocks();
    for superblock in &mut planned {
        superblock.bitmap_offset_sectors = None;
        superblock.ppl = None;
        superblock.has_answers_in_log = false;
    }
    Ok(planned)
}
