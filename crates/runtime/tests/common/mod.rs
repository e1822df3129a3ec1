//! What the tests of both reactors share.

use std::path::PathBuf;

use plexum_block::buf::BufPool;
use plexum_runtime::{Handle, IoChoice, Runtime};
use tempfile::TempDir;

/// Runs `test` on a new runtime of each kind. Where the kernel refuses io_uring the tests would say nothing about
/// it, so that fails, unless `PLEXUM_TEST_WITHOUT_URING` is set.
pub fn on_both<F>(test: impl Fn(Handle) -> F)
where
    F: Future<Output = ()>,
{
    for choice in choices() {
        let mut runtime = Runtime::new(choice).unwrap();
        eprintln!("reactor: {}", runtime.handle().status().kind);
        let handle = runtime.handle();
        runtime.block_on(test(handle));
    }
}

pub fn choices() -> Vec<IoChoice> {
    if std::env::var_os("PLEXUM_TEST_WITHOUT_URING").is_some() {
        vec![IoChoice::Threads]
    } else {
        vec![IoChoice::Uring, IoChoice::Threads]
    }
}

/// A folder on the disk that the build uses: unlike /tmp it is seldom in memory.
pub fn disk_folder() -> TempDir {
    TempDir::new_in(env!("CARGO_TARGET_TMPDIR")).unwrap()
}

/// A folder in memory (tmpfs).
pub fn memory_folder() -> TempDir {
    TempDir::new_in("/dev/shm").unwrap()
}

/// A sparse file of `size_bytes` in `folder`.
pub fn sparse(folder: &TempDir, name: &str, size_bytes: u64) -> PathBuf {
    let path = folder.path().join(name);
    let file = std::fs::File::create_new(&path).unwrap();
    file.set_len(size_bytes).unwrap();
    path
}

pub fn pool() -> BufPool {
    BufPool::new(1 << 20)
}

/// Bytes that differ at every place and for every seed.
pub fn pattern(seed: u64, length: usize) -> Vec<u8> {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    (0..length)
        .map(|_| {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            (state >> 32) as u8
        })
        .collect()
}

/// Set in a child process that runs one test of the same program as a helper.
const ROLE: &str = "PLEXUM_TEST_ROLE";

/// Whether this process is a helper started by `child`.
pub fn is_child() -> bool {
    std::env::var_os(ROLE).is_some()
}

/// The argument of a helper.
pub fn child_argument() -> String {
    std::env::var(ROLE).unwrap()
}

/// Starts the test `name`, with its module in front, of this test program as a helper, with piped standard input and
/// output.
pub fn child(name: &str, argument: &str) -> std::process::Child {
    std::process::Command::new(std::env::current_exe().unwrap())
        .args([name, "--exact", "--nocapture", "--test-threads=1"])
        .env(ROLE, argument)
        .stdin(std::process::Stdio::piped())
        .stdout(std::process::Stdio::piped())
        .spawn()
        .unwrap()
}

/// Waits until a helper has printed `line`.
pub fn wait_for_line(child: &mut std::process::Child, line: &str) {
    use std::io::BufRead;
    let output = child.stdout.as_mut().unwrap();
    let mut lines = std::io::BufReader::with_capacity(1, output).lines();
    assert!(
        lines.any(|found| found.unwrap().ends_with(line)),
        "the helper ended without {line}"
    );
}

/// The choice with this name (the argument of a helper).
pub fn choice_of(name: &str) -> IoChoice {
    match name {
        "threads" => IoChoice::Threads,
        _ => IoChoice::Uring,
    }
}
