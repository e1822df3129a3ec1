//! Sockets on both reactors.

use std::os::unix::fs::PermissionsExt;
use std::rc::Rc;

use crate::common::{disk_folder, on_both, pattern, pool};
use plexum_block::buf::Buf;
use plexum_nbd::transport::{Transport, TransportError};
use plexum_runtime::socket::{Listener, Socket, connect_tcp, connect_unix};

async fn read_exactly(socket: &Socket, length: usize) -> Vec<u8> {
    let mut bytes = vec![0; length];
    let mut done = 0;
    while done < length {
        let count = socket.read(&mut bytes[done..]).await.unwrap();
        assert!(count > 0, "the stream ended after {done} of {length} bytes");
        done += count;
    }
    bytes
}

#[test]
fn many_pieces_arrive_in_order_while_the_other_direction_is_busy_too() {
    on_both(async |handle| {
        let (a, b) = Socket::pair(&handle).unwrap();
        let (a, b) = (Rc::new(a), Rc::new(b));
        let bytes = pattern(1, 3 << 20);
        let pool = pool();
        let whole = pool.copy_of(&bytes).freeze();
        // Pieces of all sizes, empty ones among them, more than one call can take.
        let mut pieces: Vec<Buf> = Vec::new();
        let mut start = 0;
        while start < whole.len() {
            let end = (start + (pieces.len() * 977) % 50_000).min(whole.len());
            pieces.push(whole.slice(start..end));
            start = end;
        }
        assert!(pieces.len() > 64);
        let mut tasks = Vec::new();
        for (from, to) in [(&a, &b), (&b, &a)] {
            let (from, to) = (Rc::clone(from), Rc::clone(to));
            let (pieces, bytes) = (pieces.clone(), bytes.clone());
            tasks.push(handle.spawn(async move { from.write_all(&pieces).await.unwrap() }));
            tasks.push(handle.spawn(async move {
                let got = read_exactly(&to, bytes.len()).await;
                assert!(got == bytes);
            }));
        }
        for task in tasks {
            task.await.unwrap();
        }
    });
}

#[test]
fn a_unix_listener_takes_connections_and_names_the_peer() {
    on_both(async |handle| {
        let folder = disk_folder();
        let path = folder.path().join("socket");
        let listener = Listener::bind_unix(&handle, &path).unwrap();
        let mode = std::fs::metadata(&path).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600, "only for the same user");
        let again = Listener::bind_unix(&handle, &path).map(|_| ()).unwrap_err();
        assert_eq!(again.kind(), std::io::ErrorKind::AddrInUse);
        let server = handle.spawn(async move {
            for _ in 0..3 {
                let socket = listener.accept().await.unwrap();
                assert_eq!(socket.peer().unwrap().pid, std::process::id());
                let got = read_exactly(&socket, 5).await;
                socket
                    .write_all(&[pool().copy_of(&got).freeze()])
                    .await
                    .unwrap();
            }
        });
        for _ in 0..3 {
            let socket = connect_unix(&handle, &path).await.unwrap();
            let hello = pool().copy_of(b"hello").freeze();
            socket.write_all(&[hello]).await.unwrap();
            assert_eq!(read_exactly(&socket, 5).await, b"hello");
            assert_eq!(
                socket.read(&mut [0; 9]).await,
                Ok(0),
                "the server has closed"
            );
        }
        server.await.unwrap();
    });
}

#[test]
fn tcp_connects_both_ways_and_a_refused_connection_is_an_error() {
    on_both(async |handle| {
        let listener = Listener::bind_tcp(&handle, "127.0.0.1:0".parse().unwrap()).unwrap();
        let address = listener.local_address().unwrap();
        let server = handle.spawn(async move {
            let socket = listener.accept().await.unwrap();
            read_exactly(&socket, 3).await
        });
        let socket = connect_tcp(&handle, address).await.unwrap();
        socket
            .write_all(&[pool().copy_of(b"abc").freeze()])
            .await
            .unwrap();
        assert_eq!(server.await.unwrap(), b"abc");
        let refused = connect_tcp(&handle, address).await.unwrap_err();
        assert_eq!(refused.kind(), std::io::ErrorKind::ConnectionRefused);
    });
}

#[test]
fn closing_ends_a_read_and_a_write_that_wait_on_both_sides() {
    on_both(async |handle| {
        let (a, b) = Socket::pair(&handle).unwrap();
        let (a, b) = (Rc::new(a), Rc::new(b));
        let reader = Rc::clone(&a);
        let reads = handle.spawn(async move { reader.read(&mut [0; 16]).await });
        let writer = Rc::clone(&a);
        let data = pool().take_zeroed(4 << 20).freeze();
        let writes = handle.spawn(async move { writer.write_all(&[data]).await });
        handle.spawn(async {}).await.unwrap(); // both have run into their waits
        a.close();
        a.close();
        assert_eq!(reads.await.unwrap(), Ok(0));
        assert_eq!(writes.await.unwrap(), Err(TransportError::Closed));
        // The peer reads what was on its way, then the end; its own writes fail without a signal.
        let mut buf = vec![0; 1 << 20];
        while b.read(&mut buf).await.unwrap() > 0 {}
        let late = pool().copy_of(&[1]).freeze();
        assert_eq!(b.write_all(&[late]).await, Err(TransportError::Closed));
    });
}

#[test]
fn a_peer_that_does_not_read_stops_only_its_own_writer() {
    on_both(async |handle| {
        let (a, _silent) = Socket::pair(&handle).unwrap();
        let (c, d) = Socket::pair(&handle).unwrap();
        let data = pool().take_zeroed(8 << 20).freeze();
        let blocked = handle.spawn(async move { a.write_all(&[data]).await });
        let hello = pool().copy_of(b"hello").freeze();
        for _ in 0..10 {
            c.write_all(std::slice::from_ref(&hello)).await.unwrap();
            assert_eq!(read_exactly(&d, 5).await, b"hello");
        }
        assert!(!blocked.is_finished());
    });
}
