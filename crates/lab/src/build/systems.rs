//! How each system builds a volume: members, volume, file system, mount; each step noted before it is taken.

use std::fs::File;
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use super::plan::Plan;
use super::site::{NAME, Site, Step, is_free_nbd};
use super::tool::{LOOK_EVERY, Process, find, one_line};
use crate::error::LabError;
use crate::place::interrupt;
use crate::setup::KERNEL_NBD;

/// Devices of the kernel's NBD client that are looked at.
const NBD_DEVICES_MAX: usize = 256;

/// Builds it; the name of the place that workloads run on.
///
/// # Errors
/// `Skipped` for a system that is not here or has no such volume, before anything is made; `Io` with the complaint of
/// the program that failed; `Interrupted`. What was made is in the site's journal.
pub(super) fn build(site: &mut Site, plan: &Plan) -> Result<String, LabError> {
    let device = match plan.setup.system.as_str() {
        "plexum" => match plexum(site, plan)? {
            Volume::Export(uri) => return Ok(uri),
            Volume::Device(device) => device,
        },
        "md" => md(site, plan)?,
        "btrfs" => return btrfs(site, plan),
        "zfs" => return zfs(site, plan),
        _ => return Err(no_gmirror(plan)),
    };
    if !plan.is_mounted() {
        return Ok(shown(&device));
    }
    let file_system = plan.setup.file_system.as_str();
    let mut make = Command::new(find(&format!("mkfs.{file_system}"))?);
    site.run(make.args(plan.mkfs_words()).arg(&device))?;
    let folder = site.mount_point()?;
    let mut mount = Command::new(find("mount")?);
    mount.args(["-t", file_system, "-o", "noatime"]);
    site.run(mount.arg(&device).arg(&folder))?;
    Ok(shown(&folder))
}

fn shown(path: &Path) -> String {
    path.display().to_string()
}

fn skipped(plan: &Plan, text: &str) -> LabError {
    LabError::Skipped(format!("{}: {text}", plan.setup.label()))
}

/// Puts the arrangement before the reason.
fn named<T>(plan: &Plan, result: Result<T, LabError>) -> Result<T, LabError> {
    result.map_err(|error| match error {
        LabError::Skipped(text) => skipped(plan, &text),
        other => other,
    })
}

/// Members: new files in a folder, or the devices that were named.
fn members(site: &mut Site, plan: &Plan) -> Result<Vec<PathBuf>, LabError> {
    let mut members = Vec::new();
    if let Some(folder) = plan.folder() {
        let folder = site.members_folder(folder)?;
        for index in 0..plan.setup.members {
            let path = folder.join(format!("member{index}"));
            site.note(Step::File(path.clone()))?;
            File::create_new(&path)
                .and_then(|file| file.set_len(plan.member_bytes))
                .map_err(|error| LabError::Io(format!("{}: {error}", path.display())))?;
            members.push(path);
        }
        return Ok(members);
    }
    let mut wipe = Command::new(named(plan, find("wipefs"))?);
    wipe.args(["--all", "--quiet"]);
    for device in plan.setup.members_on.iter().take(plan.setup.members) {
        let device = PathBuf::from(device);
        crate::place::look_at_device(&device)?;
        site.note(Step::Device(device.clone()))?;
        wipe.arg(&device);
        members.push(device);
    }
    site.run(&mut wipe)?;
    Ok(members)
}

/// Members as block devices: files get loop devices.
fn devices(site: &mut Site, plan: &Plan) -> Result<Vec<PathBuf>, LabError> {
    let losetup = named(plan, find("losetup"))?;
    let members = members(site, plan)?;
    if plan.folder().is_none() {
        return Ok(members);
    }
    let mut devices = Vec::new();
    for member in &members {
        let attach = |direct: &str| {
            let mut attach = Command::new(&losetup);
            attach.args(["--find", "--show", direct]).arg(member);
            attach
        };
        // Past the page cache of the file below, where its file system can.
        let device = match site.run(&mut attach("--direct-io=on")) {
            Err(LabError::Io(_)) => site.run(&mut attach("--direct-io=off")),
            other => other,
        };
        devices.push(PathBuf::from(device?));
    }
    Ok(devices)
}

/// A volume of Plexum.
enum Volume {
    Export(String),
    Device(PathBuf),
}

fn plexum(site: &mut Site, plan: &Plan) -> Result<Volume, LabError> {
    let words = plan.create_words()?;
    let is_kernel_nbd = plan.setup.through == KERNEL_NBD;
    if is_kernel_nbd {
        need_kernel_nbd(plan)?;
    } else if plan.is_device() {
        named(plan, find("losetup"))?;
        if !Path::new("/dev/fuse").exists() {
            return Err(skipped(plan, "there is no /dev/fuse here"));
        }
    }
    let members = members(site, plan)?;
    let mut create = site.plexum();
    create.args(["create", NAME, "--quiet", "--yes", "--force"]);
    if plan.folder().is_none() && plan.setup.member_bytes > 0 {
        create.arg(format!("--size={}", plan.component_bytes()));
    }
    site.run(create.args(words).args(&members))?;
    let socket = serve(site, plan, &members)?;
    if !plan.is_device() {
        return Ok(Volume::Export(format!(
            "nbd+unix:///{NAME}?socket={}",
            socket.display()
        )));
    }
    if is_kernel_nbd {
        return connect(site, plan, &socket).map(Volume::Device);
    }
    site.note(Step::Attached)?;
    let mut attach = site.plexum();
    let device = site.run(attach.args(["attach", NAME, "--by", "fuse"]))?;
    Ok(Volume::Device(PathBuf::from(device)))
}

/// Starts the server; its socket, once it answers.
fn serve(site: &mut Site, plan: &Plan, members: &[PathBuf]) -> Result<PathBuf, LabError> {
    interrupt::check()?;
    let log = site.home.join("serve.log");
    let told = |error: std::io::Error| LabError::Io(format!("plexum serve: {error}"));
    let mut serve = site.plexum();
    serve.arg("serve").args(members);
    if plan.has_copies() {
        serve.arg(format!("--balance={}", plan.setup.balance));
    }
    let child = serve
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(File::create(&log).map_err(told)?)
        .process_group(0)
        .spawn();
    let mut child = child.map_err(told)?;
    if let Some(process) = Process::of(&child) {
        site.note_taken(Step::Server(process))?;
    }
    let socket = site.home.join("plexum").join(format!("{NAME}.nbd"));
    while UnixStream::connect(&socket).is_err() {
        if child.try_wait().map_err(told)?.is_some() {
            let words = one_line(&log);
            return Err(LabError::Io(format!("plexum serve failed: {words}")));
        }
        interrupt::check()?;
        std::thread::sleep(LOOK_EVERY);
    }
    Ok(socket)
}

fn need_kernel_nbd(plan: &Plan) -> Result<(), LabError> {
    named(plan, find("nbd-client"))?;
    let is_there = || Path::new("/sys/module/nbd").exists();
    if is_there() || (load_module("nbd") && is_there()) {
        return Ok(());
    }
    Err(skipped(plan, "the kernel has no NBD client"))
}

/// The volume as a device of the kernel's NBD client.
fn connect(site: &mut Site, plan: &Plan, socket: &Path) -> Result<PathBuf, LabError> {
    let devices = (0..NBD_DEVICES_MAX).map(|number| PathBuf::from(format!("/dev/nbd{number}")));
    let mut free = devices.filter(|device| device.exists() && is_free_nbd(device));
    let device = free
        .next()
        .ok_or_else(|| skipped(plan, "all devices of the kernel's NBD client are taken"))?;
    site.note(Step::Nbd(device.clone()))?;
    let mut connect = Command::new(find("nbd-client")?);
    connect.arg("-unix").arg(socket).arg(&device);
    site.run(connect.args(["-name", NAME]))?;
    Ok(device)
}

/// Loads a module of the kernel; whether that went well.
fn load_module(name: &str) -> bool {
    find("modprobe").is_ok_and(|modprobe| {
        let quiet = Command::new(modprobe).args(["--quiet", name]).status();
        quiet.is_ok_and(|status| status.success())
    })
}

fn md(site: &mut Site, plan: &Plan) -> Result<PathBuf, LabError> {
    let words = plan.mdadm_words()?;
    let mdadm = named(plan, find("mdadm"))?;
    if !Path::new("/proc/mdstat").exists() {
        return Err(skipped(plan, "the kernel has no md driver"));
    }
    let free = (0..1024).rev().find(|number| {
        let name = format!("md{number}");
        !Path::new("/sys/block").join(name).exists()
    });
    let number = free.ok_or_else(|| skipped(plan, "all numbers of md arrays are taken"))?;
    let device = PathBuf::from(format!("/dev/md{number}"));
    let members = devices(site, plan)?;
    site.note(Step::Md(device.clone()))?;
    let mut create = Command::new(mdadm);
    create.arg("--create").arg(&device).args(words);
    if plan.folder().is_none() && plan.setup.member_bytes > 0 && plan.level.has_redundancy() {
        create.arg(format!("--size={}", plan.component_bytes() >> 10));
    }
    site.run(create.args(&members))?;
    Ok(device)
}

fn btrfs(site: &mut Site, plan: &Plan) -> Result<String, LabError> {
    let (data, metadata) = plan.btrfs_profiles()?;
    let mkfs = named(plan, find("mkfs.btrfs"))?;
    let mount = named(plan, find("mount"))?;
    need_file_system(plan, "btrfs")?;
    let members = devices(site, plan)?;
    let mut make = Command::new(mkfs);
    make.args(["--quiet", "--force", "--nodiscard"]);
    make.args(["--data", data, "--metadata", metadata]);
    if plan.setup.member_bytes > 0 {
        make.arg(format!("--byte-count={}", plan.setup.member_bytes));
    }
    site.run(make.args(&members))?;
    let folder = site.mount_point()?;
    let mut mount = Command::new(mount);
    // The kernel knows the other members only when it has been told of them.
    let told: Vec<String> = members
        .iter()
        .map(|member| format!("device={}", member.display()))
        .collect();
    mount.args(["-t", "btrfs", "-o"]);
    mount.arg(format!("noatime,{}", told.join(",")));
    let first = members.first().map_or(Path::new(""), PathBuf::as_path);
    site.run(mount.arg(first).arg(&folder))?;
    Ok(shown(&folder))
}

/// Whether the kernel has a file system, or a module that may have it.
fn need_file_system(plan: &Plan, name: &str) -> Result<(), LabError> {
    let known = std::fs::read_to_string("/proc/filesystems").unwrap_or_default();
    if known
        .lines()
        .any(|line| line.trim_start_matches("nodev").trim() == name)
    {
        return Ok(());
    }
    if load_module(name) {
        return Ok(());
    }
    Err(skipped(plan, &format!("the kernel has no {name}")))
}

fn zfs(site: &mut Site, plan: &Plan) -> Result<String, LabError> {
    let zpool = named(plan, find("zpool"))?;
    // The driver may be the kernel's or a process: whoever answers.
    let mut list = Command::new(&zpool);
    site.run(list.arg("list"))
        .map_err(|error| skipped(plan, &error.to_string()))?;
    plan.zpool_words(&[])?;
    let members: Vec<String> = members(site, plan)?
        .iter()
        .map(|path| shown(path))
        .collect();
    let words = plan.zpool_words(&members)?;
    let folder = site.mount_point()?;
    let pool = format!("plexum-lab-{}", std::process::id());
    site.note(Step::Pool(pool.clone()))?;
    let mut create = Command::new(zpool);
    create.args(["create", "-f", "-O", "atime=off", "-o", "cachefile=none"]);
    create.arg("-m").arg(&folder).arg(pool);
    site.run(create.args(words))?;
    Ok(shown(&folder))
}

fn no_gmirror(plan: &Plan) -> LabError {
    skipped(
        plan,
        "gmirror is FreeBSD's, and this program does not run there",
    )
}
