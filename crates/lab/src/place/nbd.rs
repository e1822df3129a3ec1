//! A served volume, reached as every client reaches it: over NBD, one connection for each process.

use std::cell::RefCell;
use std::net::ToSocketAddrs;
use std::path::Path;
use std::rc::Rc;
use std::time::{Duration, Instant};

use plexum_block::buf::BufPool;
use plexum_block::clock::Clock;
use plexum_block::device::Fua;
use plexum_disks::rng::Rng;
use plexum_nbd::client::{Client, ClientError, ConnectOptions, Driver, connect};
use plexum_nbd::transport::Transport;
use plexum_nbd::uri::{Address, NbdUri};
use plexum_nbd::wire::option::tflag;
use plexum_runtime::socket::{Socket, connect_tcp, connect_unix};
use plexum_runtime::{Handle, IoChoice, Runtime};

use super::lanes::{note, pause};
use super::{Actor, Timed, Wish, check, failed, interrupt};
use crate::error::LabError;
use crate::target::{REQUEST_BYTES_MAX, Traffic};
use crate::workload::{IoRequest, Operation, Outcome};

/// Memory that the buffers of a run may keep, in bytes.
const POOL_BYTES: usize = 64 << 20;

/// An export.
pub(super) struct NbdPlace {
    uri: NbdUri,
    pub(super) size_bytes: u64,
}

fn runtime() -> Result<Runtime, LabError> {
    Runtime::new(IoChoice::Auto).map_err(|error| LabError::Io(error.to_string()))
}

/// What all lanes share.
struct LaneRun {
    size_bytes: u64,
    limit: Option<Duration>,
    started: Instant,
    traffic: RefCell<Traffic>,
    payload: plexum_block::buf::Buf,
    pool: BufPool,
}

impl NbdPlace {
    /// Looks at the export.
    pub(super) fn open(name: &str, wish: &Wish<'_>) -> Result<Self, LabError> {
        let uri: NbdUri = name
            .parse()
            .map_err(|error| LabError::Usage(format!("{name}: {error}")))?;
        if uri.has_tls {
            return Err(LabError::Usage(format!(
                "{name}: workloads run without TLS only; name the Unix socket of the volume"
            )));
        }
        let mut runtime = runtime()?;
        let handle = runtime.handle();
        let (size_bytes, is_read_only) = runtime.block_on(async {
            let (client, _driver) = reach(&handle, &uri, &BufPool::new(0)).await?;
            let remote = client.remote();
            Ok::<_, LabError>((remote.size_bytes, remote.has(tflag::READ_ONLY)))
        })?;
        if wish.writes && is_read_only {
            return Err(LabError::Usage(format!("{name} is served read-only")));
        }
        Ok(Self { uri, size_bytes })
    }

    pub(super) fn run(
        &self,
        actors: Vec<Actor>,
        limit: Option<Duration>,
    ) -> Result<Outcome, LabError> {
        let mut runtime = runtime()?;
        let handle = runtime.handle();
        runtime.block_on(self.run_all(&handle, actors, limit))
    }

    async fn run_all(
        &self,
        handle: &Handle,
        actors: Vec<Actor>,
        limit: Option<Duration>,
    ) -> Result<Outcome, LabError> {
        let pool = BufPool::new(POOL_BYTES);
        let mut ready = Vec::new();
        for actor in actors {
            let (client, driver) = reach(handle, &self.uri, &pool).await?;
            drop(handle.spawn(async move { driver.run().await }));
            ready.push((actor, client));
        }
        let shared = Rc::new(LaneRun {
            size_bytes: self.size_bytes,
            limit,
            started: Instant::now(),
            traffic: RefCell::default(),
            payload: payload(&pool),
            pool,
        });
        let mut lanes = Vec::new();
        let process_count = ready.len();
        for (process, (actor, client)) in ready.into_iter().enumerate() {
            let stream = Rc::new(RefCell::new(actor.requests));
            for _ in 0..actor.depth {
                let (stream, client) = (Rc::clone(&stream), client.clone());
                let (shared, handle2) = (Rc::clone(&shared), handle.clone());
                let lane = async move { work(&handle2, &shared, &stream, &client).await };
                lanes.push((process, handle.spawn(lane)));
            }
        }
        let mut process_bytes = vec![0; process_count];
        for (process, lane) in lanes {
            let died = |_| LabError::Bug("a process of the workload died".to_owned());
            process_bytes[process] += lane.await.map_err(died)??;
        }
        let elapsed = shared.started.elapsed();
        Ok(Outcome {
            elapsed_ns: u64::try_from(elapsed.as_nanos()).unwrap_or(u64::MAX),
            traffic: shared.traffic.take(),
            process_bytes,
        })
    }
}

/// Bytes that do not compress.
fn payload(pool: &BufPool) -> plexum_block::buf::Buf {
    let mut buf = pool.take(REQUEST_BYTES_MAX);
    let mut rng = Rng::new(1);
    for chunk in buf.chunks_mut(8) {
        chunk.copy_from_slice(&rng.next_u64().to_le_bytes()[..chunk.len()]);
    }
    buf.freeze()
}

async fn reach(
    handle: &Handle,
    uri: &NbdUri,
    pool: &BufPool,
) -> Result<(Client<Socket>, Driver<Socket>), LabError> {
    let told =
        |error: std::io::Error| LabError::Usage(format!("{uri}: no server answers: {error}"));
    let socket = match &uri.address {
        Address::Unix(path) => connect_unix(handle, Path::new(path)).await.map_err(told)?,
        Address::Tcp { host, port } => {
            let mut found = (host.as_str(), *port).to_socket_addrs().map_err(told)?;
            let address = found
                .next()
                .ok_or_else(|| LabError::Usage(format!("{uri}: the host has no address")))?;
            connect_tcp(handle, address).await.map_err(told)?
        }
    };
    connect(socket, pool.clone(), &ConnectOptions::new(&uri.export))
        .await
        .map_err(|error| LabError::Usage(format!("{uri}: {error}")))
}

type Stream = RefCell<Box<dyn Iterator<Item = Timed> + Send>>;

async fn work<T: Transport>(
    handle: &Handle,
    shared: &LaneRun,
    stream: &Stream,
    client: &Client<T>,
) -> Result<u64, LabError> {
    let mut bytes = 0;
    while shared
        .limit
        .is_none_or(|limit| shared.started.elapsed() < limit)
    {
        interrupt::check()?;
        let Some((at_ns, request)) = stream.borrow_mut().next() else {
            break;
        };
        let wait = pause(at_ns, &request, shared.started.elapsed());
        if !wait.is_zero() {
            handle.clock().sleep(wait).await;
        }
        let began = Instant::now();
        carry_out(shared, client, &request).await?;
        note(&mut shared.traffic.borrow_mut(), &request, began.elapsed());
        bytes += request.length_bytes;
    }
    Ok(bytes)
}

async fn carry_out<T: Transport>(
    shared: &LaneRun,
    client: &Client<T>,
    request: &IoRequest,
) -> Result<(), LabError> {
    let length = check(request, shared.size_bytes)?;
    let at = request.offset_bytes;
    let write = |fua| client.write(at, shared.payload.slice(0..length), fua);
    let done: Result<(), ClientError> = match request.operation {
        Operation::Read => client.read(at, shared.pool.take(length)).await.map(drop),
        Operation::Write => write(Fua::No).await,
        Operation::WriteThrough => write(Fua::Yes).await,
        Operation::Flush => client.flush().await,
    };
    done.map_err(|error| failed(request, error))
}
