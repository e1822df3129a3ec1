//! Judges from outside: nbdinfo, nbdcopy, qemu-img, qemu-io, fio and nbdkit as clients of our server over a Unix
//! socket; qemu-nbd and nbdkit as servers of our client.
#![allow(clippy::unwrap_used)]

mod common;

use std::path::{Path, PathBuf};
use std::process::{Child, Command};
use std::rc::Rc;

use common::pattern;
use plexum_block::buf::BufPool;
use plexum_block::device::{Device, Fua, ZeroMode};
use plexum_front::export::ZeroRequest;
use plexum_nbd::client::{Client, ClientDevice, ConnectOptions, connect, list};
use plexum_nbd::server::{Server, ServerLimits};
use plexum_nbd::testing::MemoryExport;
use plexum_nbd::wire::Framing;
use plexum_runtime::socket::{Listener, Socket, connect_unix};
use plexum_runtime::{IoChoice, Runtime};

const SIZE: u64 = 64 << 20;

/// A server on a thread of its own; lives until the test process ends.
struct Served {
    folder: tempfile::TempDir,
    uri: String,
}

impl Served {
    fn start() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("socket");
        let uri = format!("nbd+unix:///vol0?socket={}", path.display());
        let (ready, is_ready) = std::sync::mpsc::channel();
        std::thread::spawn(move || {
            let mut runtime = Runtime::new(IoChoice::Auto).unwrap();
            let handle = runtime.handle();
            let pool = BufPool::new(64 << 20);
            let server = Rc::new(Server::new(handle.clock(), pool, ServerLimits::default()));
            let described = MemoryExport::new("vol0", SIZE, |info| {
                info.description = "sixty-four MiB".into();
                info.block_bytes_preferred = 65536;
            });
            server.exports().open(Rc::new(described)).unwrap();
            let locked = MemoryExport::new("locked", 1 << 20, |info| info.is_read_only = true);
            server.exports().open(Rc::new(locked)).unwrap();
            server.exports().set_default(Some("vol0"));
            let listener = Listener::bind_unix(&handle, &path).unwrap();
            ready.send(()).unwrap();
            runtime.block_on(async move {
                loop {
                    let socket = listener.accept().await.unwrap();
                    let server = Rc::clone(&server);
                    handle.spawn(async move { server.serve(socket).await });
                }
            });
        });
        is_ready.recv().unwrap();
        Self { folder, uri }
    }

    fn other(&self, export: &str) -> String {
        self.uri.replace("vol0", export)
    }

    fn file(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// A file of the export's size: data, zeroes, data.
    fn image(&self, name: &str, seed: u64) -> PathBuf {
        let mut bytes = pattern(seed, SIZE as usize);
        bytes[5 << 20..20 << 20].fill(0);
        bytes[(60 << 20) + 4096..(60 << 20) + 8192].fill(0);
        let path = self.file(name);
        std::fs::write(&path, bytes).unwrap();
        path
    }
}

/// Runs a program that has to succeed; gives what it printed.
fn run(program: &str, arguments: &[&str]) -> String {
    let output = Command::new(program)
        .args(arguments)
        .output()
        .unwrap_or_else(|error| panic!("{program} is needed for this test: {error}"));
    let out = String::from_utf8_lossy(&output.stdout).into_owned();
    let err = String::from_utf8_lossy(&output.stderr);
    assert!(
        output.status.success(),
        "{program} {arguments:?}: {out}{err}"
    );
    out
}

fn text(path: &Path) -> &str {
    path.to_str().unwrap()
}

fn same(left: &Path, right: &Path) {
    assert!(
        std::fs::read(left).unwrap() == std::fs::read(right).unwrap(),
        "{} and {} differ",
        left.display(),
        right.display()
    );
}

#[test]
fn nbdinfo_sees_the_exports_as_they_are() {
    let served = Served::start();
    let json = run("nbdinfo", &["--json", &served.uri]);
    let json: serde_json::Value = serde_json::from_str(&json).unwrap();
    assert_eq!(json["protocol"], "newstyle-fixed");
    assert_eq!(json["structured"], true);
    let export = &json["exports"][0];
    let expected = [
        ("export-name", serde_json::json!("vol0")),
        ("description", serde_json::json!("sixty-four MiB")),
        ("export-size", serde_json::json!(SIZE)),
        ("is_read_only", serde_json::json!(false)),
        ("is_rotational", serde_json::json!(false)),
        ("can_cache", serde_json::json!(true)),
        ("can_df", serde_json::json!(true)),
        ("can_fast_zero", serde_json::json!(true)),
        ("can_flush", serde_json::json!(true)),
        ("can_fua", serde_json::json!(true)),
        ("can_multi_conn", serde_json::json!(true)),
        ("can_trim", serde_json::json!(true)),
        ("can_zero", serde_json::json!(true)),
        ("block_size_minimum", serde_json::json!(512)),
        ("block_size_preferred", serde_json::json!(65536)),
        ("block_size_maximum", serde_json::json!(1 << 25)),
        ("contexts", serde_json::json!(["base:allocation"])),
    ];
    for (field, value) in expected {
        assert_eq!(export[field], value, "{field}");
    }
    let json = run("nbdinfo", &["--json", &served.other("locked")]);
    let json: serde_json::Value = serde_json::from_str(&json).unwrap();
    assert_eq!(json["exports"][0]["is_read_only"], true);
    let all = run("nbdinfo", &["--list", "--json", &served.other("")]);
    let all: serde_json::Value = serde_json::from_str(&all).unwrap();
    let names: Vec<_> = all["exports"]
        .as_array()
        .unwrap()
        .iter()
        .map(|e| &e["export-name"])
        .collect();
    assert_eq!(names, ["vol0", "locked"]);
    let size = run("nbdinfo", &["--size", &served.other("")]);
    assert_eq!(size.trim(), SIZE.to_string(), "the default export");
}

#[test]
fn nbdcopy_copies_both_ways_over_several_connections_and_sees_the_holes() {
    let served = Served::start();
    let source = served.image("source", 1);
    run("nbdcopy", &["--flush", text(&source), &served.uri]);
    let map = run("nbdinfo", &["--map", "--json", &served.uri]);
    let map: serde_json::Value = serde_json::from_str(&map).unwrap();
    let zeroes: Vec<_> = map
        .as_array()
        .unwrap()
        .iter()
        .filter(|extent| extent["type"] == 3)
        .map(|extent| {
            (
                extent["offset"].as_u64().unwrap(),
                extent["length"].as_u64().unwrap(),
            )
        })
        .collect();
    assert!(zeroes.contains(&(5 << 20, 15 << 20)), "{zeroes:?}");
    let back = served.file("back");
    run("nbdcopy", &["--connections=4", &served.uri, text(&back)]);
    same(&source, &back);
}

#[test]
fn qemu_img_converts_both_ways_and_compares() {
    let served = Served::start();
    let source = served.image("source", 2);
    let (from, to) = (text(&source), served.uri.as_str());
    run(
        "qemu-img",
        &["convert", "-n", "-f", "raw", "-O", "raw", from, to],
    );
    run("qemu-img", &["compare", "-f", "raw", "-F", "raw", from, to]);
    let map = run("qemu-img", &["map", "--output=json", "-f", "raw", to]);
    let map: serde_json::Value = serde_json::from_str(&map).unwrap();
    let has_hole = map.as_array().unwrap().iter().any(|extent| {
        extent["start"] == 5 << 20 && extent["length"] == 15 << 20 && extent["zero"] == true
    });
    assert!(has_hole, "{map}");
    let back = served.file("back");
    run(
        "qemu-img",
        &["convert", "-f", "raw", "-O", "raw", to, text(&back)],
    );
    same(&source, &back);
}

#[test]
fn qemu_io_writes_zeroes_trims_and_verifies() {
    let served = Served::start();
    let commands = [
        "write -P 0x41 0 1M",
        "write -f -P 0x42 1M 64k",
        "write -P 0x43 2M 31M",
        "write -z 256k 128k",
        "write -z -u 512k 64k",
        "discard 768k 64k",
        "flush",
        "read -P 0x41 0 256k",
        "read -P 0 256k 128k",
        "read -P 0x41 384k 128k",
        "read -P 0 512k 64k",
        "read -P 0 768k 64k",
        "read -P 0x42 1M 64k",
        "read -P 0x43 2M 31M",
        "write -P 0x44 4097 777",
        "read -P 0x44 4097 777",
        "read -P 0x41 4096 1",
        "aio_write -P 0x45 40M 1M",
        "aio_write -P 0x46 41M 1M",
        "aio_flush",
        "read -P 0x45 40M 1M",
        "read -P 0x46 41M 1M",
    ];
    let mut arguments = vec!["-f", "raw"];
    for command in commands {
        arguments.extend(["-c", command]);
    }
    arguments.push(&served.uri);
    let out = run("qemu-io", &arguments);
    assert!(
        !out.contains("verification failed") && !out.contains("error"),
        "{out}"
    );
    // A read-only export can be opened for reading only.
    let locked = served.other("locked");
    run(
        "qemu-io",
        &["-r", "-f", "raw", "-c", "read -P 0 0 1M", &locked],
    );
    let refused = Command::new("qemu-io")
        .args(["-f", "raw", "-c", "write 0 512", &locked])
        .output()
        .unwrap();
    assert!(!refused.status.success());
}

#[test]
fn fio_verifies_what_it_wrote_at_depth() {
    let served = Served::start();
    let uri = format!("--uri={}", served.uri);
    for (name, mode, block) in [
        ("small", "randwrite", "4k-4k"),
        ("mixed", "randrw", "512-128k"),
    ] {
        run(
            "fio",
            &[
                &format!("--name={name}"),
                "--ioengine=nbd",
                &uri,
                &format!("--rw={mode}"),
                &format!("--bsrange={block}"),
                "--iodepth=32",
                "--size=32m",
                "--io_size=48m",
                "--verify=crc32c",
                "--verify_fatal=1",
                "--randseed=7",
                "--fsync=64",
                "--output=/dev/null",
                "--verify_state_save=0",
            ],
        );
    }
}

#[test]
fn nbdkit_passes_everything_on_as_it_comes() {
    let served = Served::start();
    let source = served.image("source", 3);
    let uri = format!("uri={}", served.uri);
    let copy = format!(
        "nbdcopy --flush {} \"$uri\" && nbdcopy \"$uri\" {}",
        text(&source),
        text(&served.file("back"))
    );
    run("nbdkit", &["-U", "-", "nbd", &uri, "--run", &copy]);
    same(&source, &served.file("back"));
}

/// Another project's server, ended with the test.
struct Theirs {
    child: Child,
    folder: tempfile::TempDir,
}

impl Drop for Theirs {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Theirs {
    fn start(program: &str, arguments: impl FnOnce(&Path) -> Vec<String>) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let arguments = arguments(folder.path());
        let child = Command::new(program)
            .args(arguments)
            .spawn()
            .unwrap_or_else(|error| panic!("{program} is needed for this test: {error}"));
        Self { child, folder }
    }

    fn qemu() -> Self {
        Self::start("qemu-nbd", |folder| {
            let image = folder.join("image");
            std::fs::File::create(&image)
                .unwrap()
                .set_len(SIZE)
                .unwrap();
            let socket = folder.join("socket");
            [
                "-f",
                "raw",
                "-t",
                "-e",
                "4",
                "--discard=unmap",
                "-x",
                "vol0",
                "-k",
                text(&socket),
                text(&image),
            ]
            .map(str::to_owned)
            .to_vec()
        })
    }

    fn nbdkit() -> Self {
        Self::start("nbdkit", |folder| {
            let socket = folder.join("socket");
            let size = SIZE.to_string();
            ["-f", "-U", text(&socket), "-e", "vol0", "memory", &size]
                .map(str::to_owned)
                .to_vec()
        })
    }

    /// Runs `work` with a connection, once the server listens.
    fn with<W, F>(&mut self, work: W)
    where
        W: FnOnce(Socket, BufPool, plexum_runtime::Handle) -> F,
        F: Future<Output = ()>,
    {
        let path = self.folder.path().join("socket");
        let mut runtime = Runtime::new(IoChoice::Auto).unwrap();
        let handle = runtime.handle();
        runtime.block_on(async {
            let socket = loop {
                match connect_unix(&handle, &path).await {
                    Ok(socket) => break socket,
                    Err(_) => {
                        assert_eq!(self.child.try_wait().unwrap(), None, "the server has ended");
                        plexum_runtime::yield_now().await;
                    }
                }
            };
            work(socket, BufPool::new(1 << 20), handle.clone()).await;
        });
    }
}

async fn exercise(client: &Client<Socket>, pool: &BufPool) {
    assert_eq!(client.remote().size_bytes, SIZE);
    let data = pattern(4, 3 << 20);
    let piece = pool.copy_of(&data).freeze();
    client.write(1 << 20, piece.clone(), Fua::No).await.unwrap();
    client
        .write(8 << 20, piece.slice(0..4096), Fua::Yes)
        .await
        .unwrap();
    client.flush().await.unwrap();
    let read = client.read(1 << 20, pool.take(data.len())).await.unwrap();
    assert!(read[..] == data);
    let how = ZeroRequest {
        fua: Fua::No,
        may_unmap: true,
        only_if_fast: false,
    };
    client.zero(2 << 20, 1 << 20, how).await.unwrap();
    client.trim(8 << 20, 4096, Fua::No).await.unwrap();
    let read = client.read(1 << 20, pool.take(data.len())).await.unwrap();
    let expected = [&data[..1 << 20], &vec![0; 1 << 20], &data[2 << 20..]].concat();
    assert!(read[..] == expected);
    let beyond = pool.copy_of(&[0; 512]).freeze();
    assert!(client.write(SIZE, beyond, Fua::No).await.is_err());
}

#[test]
fn our_client_works_with_their_servers_in_every_framing() {
    for mut theirs in [Theirs::qemu(), Theirs::nbdkit()] {
        for framing_max in [Framing::Simple, Framing::Structured, Framing::Extended] {
            theirs.with(|socket, pool, handle| async move {
                let options = ConnectOptions {
                    framing_max,
                    ..ConnectOptions::new("vol0")
                };
                let (client, driver) = connect(socket, pool.clone(), &options).await.unwrap();
                let driven = handle.spawn(driver.run());
                exercise(&client, &pool).await;
                if client.remote().framing != Framing::Simple {
                    let extents = client.status(0, SIZE, false).await.unwrap();
                    assert!(extents[0].is_zero, "nothing was written at the start");
                    let one = client.status(1 << 20, 1 << 20, true).await.unwrap();
                    assert_eq!(one.len(), 1);
                    assert!(!one[0].is_zero);
                }
                client.disconnect();
                driven.await.unwrap().unwrap();
            });
        }
    }
}

#[test]
fn an_export_of_theirs_is_a_member_device() {
    let mut theirs = Theirs::qemu();
    theirs.with(|socket, pool, handle| async move {
        let (client, driver) = connect(socket, pool.clone(), &ConnectOptions::new("vol0"))
            .await
            .unwrap();
        let driven = handle.spawn(driver.run());
        let device = ClientDevice::new(client.clone(), pool.clone()).unwrap();
        assert_eq!(device.info().size_bytes, SIZE);
        let data = pattern(5, 40 << 20); // more than one request may carry
        device
            .write(4096, pool.copy_of(&data).freeze(), Fua::Yes)
            .await
            .unwrap();
        let read = device.read(4096, pool.take(data.len())).await.unwrap();
        assert!(read[..] == data);
        device.zero(8192, 1 << 20, ZeroMode::Unmap).await.unwrap();
        let read = device.read(8192, pool.take(1 << 20)).await.unwrap();
        assert!(read.iter().all(|byte| *byte == 0));
        device.flush().await.unwrap();
        device.check().await.unwrap();
        client.disconnect();
        driven.await.unwrap().unwrap();
        assert!(device.check().await.is_err());
    });
}

#[test]
fn their_exports_are_listed() {
    let mut theirs = Theirs::qemu();
    theirs.with(|socket, pool, _| async move {
        let exports = list(&socket, &pool).await.unwrap();
        assert_eq!(exports, [("vol0".to_owned(), String::new())]);
    });
}
