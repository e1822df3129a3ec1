//! One client leaves a volume, in either way; its neighbours and the volume stay.

use std::cell::Cell;
use std::rc::Rc;

use plexum_daemon::host::{ClientKey, Close, Refusal};
use plexum_front::client::{ClientId, Leave};
use plexum_nbd::client::ClientError;

use crate::ground::{Ground, read, write};

/// The clients of a volume in the order in which they came, those of the main thread first.
async fn keys(ground: &Ground, name: &str) -> Vec<ClientKey> {
    let clients = ground.host.clients(name).await.unwrap();
    clients.iter().map(|(key, _)| *key).collect()
}

#[test]
fn a_client_that_drains_has_its_writes_and_its_neighbour_goes_on() {
    Ground::run(1, async |ground| {
        let request = ground.mirror("v").await;
        let hosted = ground.open(&request).await.unwrap();
        let (leaver, stayer) = (ground.guest(&hosted).await, ground.guest(&hosted).await);
        let writing = leaver.clone();
        let writes = ground.handle.spawn(async move {
            let mut written = 0;
            for block in 0..200 {
                match write(&writing, block, 1).await {
                    Ok(()) => written += 1,
                    Err(_) => break,
                }
            }
            written
        });
        write(&stayer, 500, 2).await.unwrap();
        let first = keys(&ground, "v").await[0];
        ground
            .host
            .end_client("v", first, Leave::Drain)
            .await
            .unwrap();
        let written = writes.await.unwrap();
        assert!(read(&leaver, 0).await.is_err());
        for block in 0..written {
            assert_eq!(read(&stayer, block).await, Ok(1), "it was answered");
        }
        assert_eq!(read(&stayer, 500).await, Ok(2));
        assert_eq!(keys(&ground, "v").await.len(), 1);
    });
}

#[test]
fn of_a_client_that_is_fenced_nothing_is_written_after_the_fence() {
    Ground::run(1, async |ground| {
        let request = ground.mirror("v").await;
        let hosted = ground.open(&request).await.unwrap();
        let (leaver, stayer) = (ground.guest(&hosted).await, ground.guest(&hosted).await);
        // Many writes of one block under way, for as long as they are taken.
        let is_on = Rc::new(Cell::new(true));
        let mut writers = Vec::new();
        for number in 0..16 {
            let (client, is_on) = (leaver.clone(), Rc::clone(&is_on));
            writers.push(ground.handle.spawn(async move {
                while is_on.get() && write(&client, number, 1).await.is_ok() {}
            }));
        }
        let mut seen = 0;
        while seen == 0 {
            seen = read(&stayer, 15).await.unwrap();
        }
        let first = keys(&ground, "v").await[0];
        ground
            .host
            .end_client("v", first, Leave::Fence)
            .await
            .unwrap();
        assert!(!keys(&ground, "v").await.contains(&first), "it has left");
        for block in 0..16 {
            write(&stayer, block, 9).await.unwrap();
        }
        is_on.set(false);
        for writer in writers {
            writer.await.unwrap();
        }
        for block in 0..16 {
            assert_eq!(read(&stayer, block).await, Ok(9));
        }
    });
}

#[test]
fn clients_on_every_core_are_known_and_can_be_told_to_leave() {
    Ground::run(2, async |ground| {
        let request = ground.mirror("v").await;
        let hosted = ground.open(&request).await.unwrap();
        let mut guests = Vec::new();
        for block in 0..6 {
            let guest = ground.guest(&hosted).await;
            write(&guest, block, 3).await.unwrap();
            guests.push(guest);
        }
        let known = keys(&ground, "v").await;
        let on = |core: usize| known.iter().filter(|key| key.core == core).count();
        assert_eq!((on(0), on(1)), (3, 3));
        for how in [Leave::Drain, Leave::Fence] {
            let elsewhere = keys(&ground, "v").await;
            let elsewhere = elsewhere.iter().find(|key| key.core == 1).unwrap();
            ground.host.end_client("v", *elsewhere, how).await.unwrap();
        }
        assert_eq!(keys(&ground, "v").await.len(), 4);
        let mut alive = 0;
        for guest in &guests {
            alive += usize::from(read(guest, 0).await == Ok(3));
        }
        assert_eq!(alive, 4);
        ground.host.close("v", Close::Force).await.unwrap();
        for guest in &guests {
            assert_eq!(read(guest, 0).await, Err(ClientError::Gone));
        }
    });
}

#[test]
fn a_client_from_afar_is_known_by_its_address() {
    Ground::run(1, async |ground| {
        let request = ground.mirror("v").await;
        let hosted = ground.open(&request).await.unwrap();
        let address = "127.0.0.1:0".parse().unwrap();
        let address = ground.host.listen_tcp(address).unwrap();
        let near = ground.guest(&hosted).await;
        let far = ground.guest_from_afar(address, "v").await;
        read(&near, 0).await.unwrap();
        read(&far, 0).await.unwrap();
        let clients = ground.host.clients("v").await.unwrap();
        let peers: Vec<&str> = clients
            .iter()
            .map(|(_, client)| client.peer.as_str())
            .collect();
        assert_eq!(peers, ["", "127.0.0.1"]);
        let (key, _) = clients[1];
        ground
            .host
            .end_client("v", key, Leave::Drain)
            .await
            .unwrap();
        assert!(read(&far, 0).await.is_err());
        read(&near, 0).await.unwrap();
        assert_eq!(hosted.status().unwrap().exports[0].clients, 1);
    });
}

#[test]
fn a_client_that_is_not_there_is_refused() {
    Ground::run(2, async |ground| {
        let request = ground.mirror("v").await;
        ground.open(&request).await.unwrap();
        let refused = Refusal::NoSuchClient {
            name: "v".to_owned(),
        };
        for (core, way) in [(0, 0), (0, 9), (1, 0), (9, 0)] {
            let id = ClientId(77);
            let key = ClientKey { core, way, id };
            let ended = ground.host.end_client("v", key, Leave::Drain).await;
            assert_eq!(ended, Err(refused.clone()), "{key:?}");
        }
    });
}
