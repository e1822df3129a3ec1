//! Files that vanish, fill up, are locked or are no members at all, on both reactors.

use std::future::poll_fn;
use std::io::Write;
use std::path::Path;
use std::task::Poll;

use crate::common::{
    child, child_argument, choice_of, disk_folder, is_child, memory_folder, on_both, pool, sparse,
    wait_for_line,
};
use plexum_block::device::{Device, Fua, IoError};
use plexum_runtime::file::{DirectIo, FileDevice, OpenError, OpenOptions};
use plexum_runtime::{Handle, Runtime};
use rustix::process::{Resource, Rlimit, setrlimit};

const MIB: u64 = 1 << 20;

fn buffered() -> OpenOptions {
    OpenOptions {
        direct_io: DirectIo::Off,
        ..OpenOptions::read_write()
    }
}

/// All ways in which a regular file is used.
fn ways() -> Vec<(tempfile::TempDir, OpenOptions)> {
    vec![
        (disk_folder(), OpenOptions::read_write()),
        (disk_folder(), buffered()),
        (memory_folder(), OpenOptions::read_write()),
    ]
}

async fn write_at(device: &FileDevice, offset_bytes: u64) -> Result<(), IoError> {
    let data = pool().take_zeroed(4096).freeze();
    device.write(offset_bytes, data, Fua::No).await
}

#[test]
fn an_unlinked_file_is_gone_although_the_system_still_takes_writes() {
    on_both(async |handle| {
        for (folder, options) in ways() {
            let path = sparse(&folder, "member", MIB);
            let device = FileDevice::open(&handle, &path, &options).unwrap();
            assert_eq!(device.check().await, Ok(()));
            std::fs::remove_file(&path).unwrap();
            assert_eq!(write_at(&device, 0).await, Err(IoError::Gone));
            assert_eq!(device.check().await, Err(IoError::Gone));
        }
    });
}

/// Writes of one turn before the turn's budget must be spent.
const WRITES_MAX: usize = 10_000;

#[test]
fn a_write_during_which_its_file_is_cut_off_has_failed() {
    on_both(async |handle| {
        let folder = memory_folder();
        let path = sparse(&folder, "member", MIB);
        let device = FileDevice::open(&handle, &path, &OpenOptions::read_write()).unwrap();
        let other = std::fs::File::options().write(true).open(&path).unwrap();
        let mut waiting = None;
        poll_fn(|context| {
            for _ in 0..WRITES_MAX {
                // It has looked at the file; when the turn has no time left for it, it goes on in the next one.
                let mut write = Box::pin(write_at(&device, MIB / 2));
                if write.as_mut().poll(context).is_pending() {
                    waiting = Some(write);
                    break;
                }
            }
            Poll::Ready(())
        })
        .await;
        other.set_len(0).unwrap();
        assert_eq!(waiting.unwrap().await, Err(IoError::Gone));
        assert_eq!(other.metadata().unwrap().len(), MIB / 2 + 4096);
        assert_eq!(device.check().await, Err(IoError::Gone));
    });
}

#[test]
fn a_truncated_file_is_never_made_longer_and_stays_gone() {
    on_both(async |handle| {
        for (folder, options) in ways() {
            for left in [0, MIB / 2] {
                let path = sparse(&folder, &format!("member{left}"), MIB);
                let device = FileDevice::open(&handle, &path, &options).unwrap();
                let other = std::fs::File::options().write(true).open(&path).unwrap();
                other.set_len(left).unwrap();
                // The very next thing is a write that would make it as long as it was.
                assert_eq!(write_at(&device, MIB - 4096).await, Err(IoError::Gone));
                assert_eq!(other.metadata().unwrap().len(), left, "{options:?}");
                // As long again as it was, but full of zeroes that nobody wrote.
                other.set_len(MIB).unwrap();
                let read = device.read(0, pool().take(4096)).await.map(|_| ());
                assert_eq!(read, Err(IoError::Gone), "{options:?}");
                assert_eq!(device.flush().await, Err(IoError::Gone));
                assert_eq!(device.check().await, Err(IoError::Gone));
            }
        }
    });
}

#[test]
fn a_truncated_file_is_gone_for_reads_and_for_the_check() {
    on_both(async |handle| {
        for (folder, options) in ways() {
            for left in [MIB / 2, MIB / 2 + 512, 0] {
                let path = sparse(&folder, &format!("member{left}"), MIB);
                let device = FileDevice::open(&handle, &path, &options).unwrap();
                let other = std::fs::File::options().write(true).open(&path).unwrap();
                other.set_len(left).unwrap();
                let buf = pool().take(MIB as usize);
                let read = device.read(0, buf).await.map(|_| ());
                assert_eq!(read, Err(IoError::Gone), "{left} bytes left, {options:?}");
                assert_eq!(device.check().await, Err(IoError::Gone));
            }
        }
    });
}

#[test]
fn a_renamed_file_is_still_there_until_another_takes_its_place() {
    on_both(async |handle| {
        let folder = disk_folder();
        let path = sparse(&folder, "member", MIB);
        let device = FileDevice::open(&handle, &path, &buffered()).unwrap();
        std::fs::rename(&path, folder.path().join("other")).unwrap();
        assert_eq!(device.check().await, Ok(()));
        sparse(&folder, "member", MIB);
        assert_eq!(device.check().await, Err(IoError::Gone));
    });
}

#[test]
fn a_read_only_member_refuses_writes_and_leaves_the_file_alone() {
    on_both(async |handle| {
        let folder = disk_folder();
        let path = sparse(&folder, "member", MIB);
        let device = FileDevice::open(&handle, &path, &OpenOptions::read_only()).unwrap();
        assert_eq!(write_at(&device, 0).await, Err(IoError::ReadOnly));
        let zeroed = device
            .zero(0, 4096, plexum_block::device::ZeroMode::Allocate)
            .await;
        assert_eq!(zeroed, Err(IoError::ReadOnly));
        assert_eq!(device.flush().await, Ok(()));
        assert!(device.is_hole(0, MIB).unwrap());
    });
}

#[test]
fn only_files_and_block_devices_are_members() {
    on_both(async |handle| {
        let folder = disk_folder();
        let open = |path: &Path| FileDevice::open(&handle, path, &OpenOptions::read_write());
        for (path, words) in [
            (folder.path(), "is a directory"),
            (Path::new("/dev/null"), "is a character device"),
            (&folder.path().join("none"), "cannot open it"),
        ] {
            let error = open(path).unwrap_err();
            let text = error.to_string();
            assert!(text.starts_with(path.to_str().unwrap()), "{text}");
            assert!(text.contains(words) && !text.contains('\n'), "{text}");
            assert!(!error.is_busy());
        }
    });
}

#[test]
fn a_file_given_twice_is_refused_by_whatever_name() {
    on_both(async |handle| {
        let folder = disk_folder();
        let path = sparse(&folder, "member", MIB);
        let (hard, soft) = (folder.path().join("hard"), folder.path().join("soft"));
        std::fs::hard_link(&path, &hard).unwrap();
        std::os::unix::fs::symlink(&path, &soft).unwrap();
        let first = FileDevice::open(&handle, &path, &OpenOptions::read_write()).unwrap();
        for name in [&path, &hard, &soft] {
            for options in [OpenOptions::read_write(), OpenOptions::read_only()] {
                let error = FileDevice::open(&handle, name, &options).unwrap_err();
                assert!(error.is_busy());
                let OpenError::InUse { pid, .. } = error else {
                    panic!("{error}")
                };
                assert_eq!(pid, Some(std::process::id()));
            }
        }
        drop(first);
        let reader = FileDevice::open(&handle, &hard, &OpenOptions::read_only()).unwrap();
        let second = FileDevice::open(&handle, &soft, &OpenOptions::read_only()).unwrap();
        assert_eq!(reader.identity(), second.identity());
        let writer = FileDevice::open(&handle, &path, &OpenOptions::read_write());
        assert!(writer.unwrap_err().is_busy());
    });
}

/// Helper: holds a file until its standard input ends.
#[test]
fn helper_that_holds_a_file() {
    if !is_child() {
        return;
    }
    let mut runtime = Runtime::new(plexum_runtime::IoChoice::Threads).unwrap();
    let handle = runtime.handle();
    let path = child_argument();
    runtime.block_on(async move {
        let options = OpenOptions::read_write();
        let _device = FileDevice::open(&handle, Path::new(&path), &options).unwrap();
        println!("\nlocked");
        std::io::stdin().read_line(&mut String::new()).unwrap();
    });
}

#[test]
fn a_file_in_use_by_another_process_names_it_and_is_free_after_its_death() {
    on_both(async |handle| {
        let folder = disk_folder();
        let path = sparse(&folder, "member", MIB);
        let mut holder = child(
            "file_faults::helper_that_holds_a_file",
            path.to_str().unwrap(),
        );
        wait_for_line(&mut holder, "locked");
        let options = OpenOptions::read_write();
        let error = FileDevice::open(&handle, &path, &options).unwrap_err();
        let text = error.to_string();
        let expected = format!("in use by another process ({})", holder.id());
        assert!(text.ends_with(&expected), "{text}");
        holder.kill().unwrap();
        holder.wait().unwrap();
        FileDevice::open(&handle, &path, &options).unwrap();
    });
}

/// Writes below and beyond one MiB of a file that cannot grow beyond it.
async fn check_no_space(handle: &Handle, path: &Path, options: &OpenOptions) {
    let device = FileDevice::open(handle, path, options).unwrap();
    assert_eq!(write_at(&device, 0).await, Ok(()));
    let beyond = write_at(&device, 2 * MIB).await;
    assert_eq!(beyond, Err(IoError::NoSpace), "{options:?}");
    assert_eq!(write_at(&device, 4096).await, Ok(()));
    assert_eq!(device.flush().await, Ok(()));
    assert_eq!(device.check().await, Ok(()));
}

/// Helper: a process whose files may not grow beyond one MiB.
#[test]
fn helper_with_a_file_size_limit() {
    if !is_child() {
        return;
    }
    let mut runtime = Runtime::new(choice_of(&child_argument())).unwrap();
    let handle = runtime.handle();
    let members: Vec<_> = ways()
        .into_iter()
        .map(|(folder, options)| (sparse(&folder, "member", 4 * MIB), folder, options))
        .collect();
    let limit = Rlimit {
        current: Some(MIB),
        maximum: Some(MIB),
    };
    setrlimit(Resource::Fsize, limit).unwrap();
    runtime.block_on(async move {
        for (path, _folder, options) in &members {
            check_no_space(&handle, path, options).await;
        }
    });
    println!("\nsurvived");
}

#[test]
fn a_file_at_its_size_limit_is_no_space_for_that_write_only() {
    for reactor in ["uring", "threads"] {
        let output = child("file_faults::helper_with_a_file_size_limit", reactor)
            .wait_with_output()
            .unwrap();
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        assert!(
            output.status.success() && text.contains("survived"),
            "{text}"
        );
    }
}

/// A file system of one MiB, mounted as long as it lives; needs root.
struct SmallFileSystem(tempfile::TempDir);

impl SmallFileSystem {
    fn new() -> Self {
        let folder = disk_folder();
        run(
            "mount",
            &["-t", "tmpfs", "-o", "size=1m", "plexum-test"],
            folder.path(),
        );
        Self(folder)
    }
}

impl Drop for SmallFileSystem {
    fn drop(&mut self) {
        run("umount", &["-l"], self.0.path());
    }
}

fn run(program: &str, arguments: &[&str], last: &Path) {
    let mut command = std::process::Command::new(program);
    let status = command.args(arguments).arg(last).status().unwrap();
    assert!(status.success(), "{command:?}");
}

#[test]
fn a_full_file_system_is_no_space_and_goes_on_when_there_is_room_again() {
    if !rustix::process::geteuid().is_root() {
        eprintln!("not root: no file system can be mounted here");
        return;
    }
    on_both(async |handle| {
        let small = SmallFileSystem::new();
        let path = sparse(&small.0, "member", 4 * MIB);
        for route in [None, Some(plexum_runtime::file::Route::Queued)] {
            let options = OpenOptions {
                route,
                ..OpenOptions::read_write()
            };
            let ballast = small.0.path().join("ballast");
            let mut file = std::fs::File::create(&ballast).unwrap();
            while file.write_all(&[1; 4096]).is_ok() {}
            let device = FileDevice::open(&handle, &path, &options).unwrap();
            assert_eq!(write_at(&device, MIB).await, Err(IoError::NoSpace));
            assert_eq!(device.check().await, Ok(()));
            // Emptied, not just removed: a process that another test starts at this moment
            // holds a copy of the descriptor, and with it the room, until it has its own program.
            file.set_len(0).unwrap();
            assert_eq!(write_at(&device, MIB).await, Ok(()));
            device
                .zero(0, 4 * MIB, plexum_block::device::ZeroMode::Unmap)
                .await
                .unwrap();
        }
    });
}

/// Helper: writes durably to a file, many writes at once, until it is killed.
#[test]
fn helper_that_writes_for_ever() {
    if !is_child() {
        return;
    }
    let argument = child_argument();
    let (reactor, path) = argument.split_once(' ').unwrap();
    let mut runtime = Runtime::new(choice_of(reactor)).unwrap();
    let handle = runtime.handle();
    let options = OpenOptions::read_write();
    let device = FileDevice::open(&handle, Path::new(path), &options).unwrap();
    let device = std::rc::Rc::new(device);
    for number in 0..32 {
        let device = std::rc::Rc::clone(&device);
        let _detached = handle.spawn(async move {
            let data = pool().take_zeroed(32 << 10).freeze();
            loop {
                let offset_bytes = number * (32 << 10);
                let written = device.write(offset_bytes, data.clone(), Fua::Yes).await;
                written.unwrap();
            }
        });
    }
    println!("\nwriting");
    runtime.block_on(std::future::pending::<()>());
}

#[test]
fn a_killed_writer_leaves_its_members_free_at_once() {
    on_both(async |handle| {
        let folder = disk_folder();
        let path = sparse(&folder, "member", MIB);
        for _ in 0..10 {
            let argument = format!("{} {}", handle.status().kind, path.display());
            let mut writer = child("file_faults::helper_that_writes_for_ever", &argument);
            wait_for_line(&mut writer, "writing");
            writer.kill().unwrap();
            writer.wait().unwrap();
            FileDevice::open(&handle, &path, &OpenOptions::read_write()).unwrap();
        }
    });
}

#[test]
fn a_file_that_was_cut_off_has_no_holes_to_tell_of() {
    on_both(async |handle| {
        for folder in [disk_folder(), memory_folder()] {
            let path = folder.path().join("member");
            std::fs::write(&path, vec![7; 1 << 20]).unwrap();
            let device = FileDevice::open(&handle, &path, &buffered()).unwrap();
            let file = std::fs::File::options().write(true).open(&path).unwrap();
            file.set_len(1 << 19).unwrap();
            // What was there would be taken for zeroes, and never be read.
            let told = device.extents(1 << 19, 1 << 19, 8);
            assert_eq!(told.map(|_| ()), Err(IoError::Gone));
            file.set_len(1 << 20).unwrap();
            let told = device.extents(0, 1 << 20, 8);
            assert_eq!(told.map(|_| ()), Err(IoError::Gone), "it stays lost");
        }
    });
}
