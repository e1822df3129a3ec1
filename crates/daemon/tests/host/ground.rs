//! Mirrors of two files, a host, and clients of it, on one thread.

use std::future::Future;
use std::path::PathBuf;
use std::rc::Rc;
use std::time::Duration;

use plexum_block::buf::BufPool;
use plexum_block::device::Fua;
use plexum_daemon::assembly::{AssembleRequest, DeviceWish};
use plexum_daemon::create::{CreateRequest, Creation};
use plexum_daemon::disk::DiskSettings;
use plexum_daemon::events::EventHub;
use plexum_daemon::host::{Host, HostSettings, Hosted, Refusal};
use plexum_daemon::owners::Choice;
use plexum_daemon::runtime_dir::{RuntimeDir, Surroundings};
use plexum_engine::volume::VolumeOptions;
use plexum_format::md::MdVersion;
use plexum_layout::Organisation;
use plexum_md::assemble::Options;
use plexum_nbd::client::{Client, ClientError, ConnectOptions, connect};
use plexum_runtime::file::Access;
use plexum_runtime::socket::{Socket, connect_tcp, connect_unix};
use plexum_runtime::{Handle, IoChoice, Runtime};

/// A client of a volume.
pub type Guest = Client<Socket>;

/// A folder for members and sockets, and a host. Short paths: sockets lie in it.
pub struct Ground {
    folder: tempfile::TempDir,
    pub handle: Handle,
    pub events: EventHub,
    pub host: Rc<Host>,
}

impl Ground {
    /// Runs `test` on a host of so many threads.
    pub fn run<F: Future<Output = ()>>(cores: usize, test: impl FnOnce(Rc<Ground>) -> F) {
        let folder = tempfile::Builder::new().prefix("px").tempdir().unwrap();
        let mut runtime = Runtime::new(IoChoice::Threads).unwrap();
        let runtime_dir = RuntimeDir::at(folder.path().join("run"));
        runtime_dir
            .ensure(&Surroundings::of_this_process())
            .unwrap();
        let settings = HostSettings {
            io: IoChoice::Threads,
            spin: Duration::ZERO,
            memory_bytes: 64 << 20,
            cores,
            tls: None,
            runtime_dir,
            state_dir: None,
            disks: DiskSettings::of_this_process(),
        };
        let events = EventHub::default();
        let handle = runtime.handle();
        let ground = Rc::new(Ground {
            host: Host::new(&handle, settings, events.clone()).unwrap(),
            folder,
            handle,
            events,
        });
        runtime.block_on(test(ground));
    }

    /// A path in the folder.
    pub fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// A new mirror; what assembles it.
    pub async fn mirror(&self, name: &str) -> AssembleRequest {
        let members: Vec<String> = ["a", "b"]
            .iter()
            .map(|letter| self.path(&format!("{name}.{letter}")).display().to_string())
            .collect();
        let request = CreateRequest {
            name: name.to_owned(),
            homehost: String::new(),
            organisation: Organisation::Raid1,
            members: members.clone(),
            spares: Vec::new(),
            strip_bytes: None,
            size_bytes: None,
            member_size_bytes: Some(8 << 20),
            data_offset_bytes: None,
            version: MdVersion::V12,
            has_bitmap: true,
            region_bytes: None,
            has_log: false,
            is_write_back: false,
            has_ppl: false,
            write_mostly: Vec::new(),
            is_assume_clean: true,
            is_forced: true,
        };
        let creation = Creation::prepare(&self.handle, &request, Access::ReadWrite).await;
        creation
            .unwrap()
            .carry_out(&self.handle, None)
            .await
            .unwrap();
        AssembleRequest {
            members,
            name: Some(name.to_owned()),
            options: Options::default(),
            volume: VolumeOptions::default(),
            balance: None,
            may_write: false,
            backup_file: None,
            choice: Choice::Only,
            planned: Vec::new(),
            change: plexum_daemon::assembly::Change::None,
            goal: None,
            device: DeviceWish::TakeOver,
            vhost_user: None,
        }
    }

    /// Opens the one volume that some members make.
    pub async fn open(&self, request: &AssembleRequest) -> Result<Rc<Hosted>, Refusal> {
        let hosted = self.admit(request).await?;
        self.host.open(std::slice::from_ref(&hosted))?;
        Ok(hosted)
    }

    /// Admits the one volume that some members make.
    pub async fn admit(&self, request: &AssembleRequest) -> Result<Rc<Hosted>, Refusal> {
        let mut prepared = self.host.prepare(request).await?;
        assert_eq!(prepared.len(), 1);
        self.host.admit(prepared.remove(0), None)
    }

    /// A client of a volume through its Unix socket.
    pub async fn guest(&self, hosted: &Hosted) -> Guest {
        let socket = connect_unix(&self.handle, hosted.client_socket()).await;
        self.attach(socket.unwrap(), hosted.name()).await
    }

    /// A client of a volume through TCP.
    pub async fn guest_from_afar(&self, address: std::net::SocketAddr, name: &str) -> Guest {
        let socket = connect_tcp(&self.handle, address).await;
        self.attach(socket.unwrap(), name).await
    }

    async fn attach(&self, socket: Socket, name: &str) -> Guest {
        let options = ConnectOptions::new(name);
        let connected = connect(socket, BufPool::new(1 << 20), &options).await;
        let (client, driver) = connected.unwrap();
        let _driving = self.handle.spawn(driver.run());
        client
    }

    /// What happened, by name of the volume and of the event.
    pub fn told(&self) -> Vec<(String, String)> {
        let events = self.events.since(0);
        let told = events
            .iter()
            .filter(|event| event.name != "resync_finished");
        told.map(|event| (event.volume.clone(), event.name.clone()))
            .collect()
    }
}

/// Writes 4 KiB of `byte` at a block.
pub async fn write(client: &Guest, block: u64, byte: u8) -> Result<(), ClientError> {
    let data = BufPool::new(0).copy_of(&[byte; 4096]).freeze();
    client.write(block * 4096, data, Fua::No).await
}

/// The byte that 4 KiB at a block have.
pub async fn read(client: &Guest, block: u64) -> Result<u8, ClientError> {
    let buf = client
        .read(block * 4096, BufPool::new(0).take(4096))
        .await?;
    assert!(buf.iter().all(|byte| *byte == buf[0]), "one write, whole");
    Ok(buf[0])
}
