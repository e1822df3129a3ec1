//! Volumes open and close while others are served, with refusals and holds that programs understand.

use std::io::Write;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::rc::Rc;

use plexum_daemon::host::{Close, Hold, Host, Refusal, Stage};
use plexum_daemon::problem::Code;
use plexum_daemon::status::JobKind;
use plexum_engine::upkeep::Pace;
use plexum_engine::upkeep::scrub::ScrubMode;
use plexum_runtime::file::{FileDevice, OpenOptions};

use crate::ground::{Ground, read, write};

fn names(host: &Host) -> Vec<(String, Stage)> {
    let list = host.list();
    list.iter()
        .map(|hosted| (hosted.name().to_owned(), hosted.stage()))
        .collect()
}

/// Handles that this process has of some files.
fn handles_of(files: &[String]) -> usize {
    let handles = std::fs::read_dir("/proc/self/fd").unwrap();
    let targets = handles.filter_map(|handle| std::fs::read_link(handle.ok()?.path()).ok());
    let is_one = |target: &PathBuf| files.iter().any(|file| target == Path::new(file));
    targets.filter(is_one).count()
}

#[test]
fn a_volume_opens_and_closes_while_another_one_is_served() {
    Ground::run(1, async |ground| {
        let first = ground.mirror("first").await;
        let first = ground.open(&first).await.unwrap();
        let guest = ground.guest(&first).await;
        write(&guest, 1, 7).await.unwrap();
        let second = ground.mirror("second").await;
        let second = ground.open(&second).await.unwrap();
        let other = ground.guest(&second).await;
        write(&other, 1, 9).await.unwrap();
        assert_eq!(read(&guest, 1).await, Ok(7));
        ground.host.close("second", Close::Drain).await.unwrap();
        assert!(read(&other, 1).await.is_err());
        assert_eq!(read(&guest, 1).await, Ok(7));
        let open = [("first".to_owned(), Stage::Open)];
        assert_eq!(names(&ground.host), open);
        ground.host.close("first", Close::Drain).await.unwrap();
        ground.host.empty().await;
        let told = ground.told();
        let told: Vec<(&str, &str)> = told.iter().map(|(v, e)| (v.as_str(), e.as_str())).collect();
        let expected = [
            ("first", "started"),
            ("second", "started"),
            ("second", "stopped"),
            ("first", "stopped"),
        ];
        assert_eq!(told, expected);
    });
}

#[test]
fn a_volume_with_a_client_is_not_closed_unless_it_is_forced() {
    Ground::run(1, async |ground| {
        let request = ground.mirror("v").await;
        let hosted = ground.open(&request).await.unwrap();
        let guest = ground.guest(&hosted).await;
        write(&guest, 0, 1).await.unwrap();
        let refused = ground.host.close("v", Close::IfFree).await;
        let held = Refusal::Held {
            name: "v".to_owned(),
            holds: vec![Hold::Clients { count: 1 }],
        };
        assert_eq!(refused, Err(held));
        assert_eq!(read(&guest, 0).await, Ok(1), "nothing was changed");
        ground.host.close("v", Close::Force).await.unwrap();
        assert!(read(&guest, 0).await.is_err());
        assert!(!hosted.client_socket().exists());
        assert_eq!(names(&ground.host), []);
    });
}

#[test]
fn a_client_that_reads_no_answers_holds_up_a_close_until_it_is_forced() {
    Ground::run(1, async |ground| {
        let request = ground.mirror("v").await;
        for is_drained_first in [false, true] {
            let hosted = ground.open(&request).await.unwrap();
            let mut deaf = UnixStream::connect(hosted.client_socket()).unwrap();
            // A handshake and reads of 64 MiB, sent without waiting for anything.
            let mut bytes = vec![0, 0, 0, 3];
            bytes.extend(b"IHAVEOPT\0\0\0\x01\0\0\0\x01v");
            for _ in 0..64 {
                bytes.extend([0x25, 0x60, 0x95, 0x13, 0, 0, 0, 0]);
                bytes.extend([0; 16]);
                bytes.extend((1_u32 << 20).to_be_bytes());
            }
            deaf.write_all(&bytes).unwrap();
            let mut has_begun = false;
            while !has_begun {
                let clients = ground.host.clients("v").await.unwrap();
                has_begun = clients.iter().any(|(_, client)| client.under_way > 0);
                plexum_runtime::yield_now().await;
            }
            if is_drained_first {
                let host = Rc::clone(&ground.host);
                let draining = async move { host.close("v", Close::Drain).await };
                let draining = ground.handle.spawn(draining);
                for _ in 0..100 {
                    plexum_runtime::yield_now().await;
                }
                assert!(!draining.is_finished(), "answers wait for the client");
            }
            ground.host.close("v", Close::Force).await.unwrap();
        }
    });
}

#[test]
fn a_volume_that_nobody_holds_is_closed_without_force() {
    Ground::run(1, async |ground| {
        let request = ground.mirror("v").await;
        let hosted = ground.open(&request).await.unwrap();
        let guest = ground.guest(&hosted).await;
        assert_eq!(ground.host.holds("v").unwrap().len(), 1);
        guest.disconnect();
        let mut clients = 1;
        while clients > 0 {
            clients = ground.host.clients("v").await.unwrap().len();
            plexum_runtime::yield_now().await; // until its session has ended
        }
        ground.host.close("v", Close::IfFree).await.unwrap();
    });
}

#[test]
fn the_members_of_a_closed_volume_are_free_and_it_opens_again_with_its_data() {
    for cores in [1, 2] {
        Ground::run(cores, async |ground| {
            let request = ground.mirror("v").await;
            for round in 1..4 {
                let hosted = ground.open(&request).await.unwrap();
                let guest = ground.guest(&hosted).await;
                let second = ground.guest(&hosted).await; // with two cores it is served by the other one
                if round > 1 {
                    assert_eq!(read(&second, 3).await, Ok(round - 1));
                }
                write(&guest, 3, round).await.unwrap();
                assert_eq!(read(&second, 3).await, Ok(round));
                for member in &request.members {
                    let taken = FileDevice::open(
                        &ground.handle,
                        member.as_ref(),
                        &OpenOptions::read_write(),
                    );
                    assert!(taken.is_err(), "it is locked while it is served");
                }
                ground.host.close("v", Close::Drain).await.unwrap();
                assert_eq!(handles_of(&request.members), 0, "on any thread");
                for member in &request.members {
                    let path = member.as_ref();
                    let free = FileDevice::open(&ground.handle, path, &OpenOptions::read_write());
                    assert!(free.is_ok(), "{member} is free, with {cores} cores");
                }
            }
        });
    }
}

#[test]
fn a_name_that_is_served_is_refused_and_is_free_after_the_close() {
    Ground::run(1, async |ground| {
        let first = ground.mirror("v").await;
        let _first = ground.open(&first).await.unwrap();
        let mut second = ground.mirror("w").await;
        second.name = Some("v".to_owned());
        let taken = Refusal::NameTaken {
            name: "v".to_owned(),
        };
        assert_eq!(ground.open(&second).await.err(), Some(taken));
        ground.host.close("v", Close::Drain).await.unwrap();
        let hosted = ground.open(&second).await.unwrap();
        let served = hosted.served().unwrap();
        let members = served.known_members();
        assert!(members[0].name.as_ref().unwrap().ends_with("w.a"));
    });
}

#[test]
fn two_volumes_do_not_share_a_member_and_the_refusal_says_whose_it_is() {
    Ground::run(1, async |ground| {
        let request = ground.mirror("v").await;
        let hosted = ground.open(&request).await.unwrap();
        let mut again = request.clone();
        again.name = Some("w".to_owned());
        match ground.open(&again).await.err() {
            Some(Refusal::MemberTaken { member, volume, .. }) => {
                assert_eq!(volume, "v");
                assert!(request.members.contains(&member), "{member}");
            }
            other => panic!("{other:?}"),
        }
        let guest = ground.guest(&hosted).await;
        write(&guest, 0, 1).await.unwrap();
    });
}

#[test]
fn who_is_not_served_is_refused_with_the_names_that_are() {
    Ground::run(1, async |ground| {
        let request = ground.mirror("v").await;
        let hosted = ground.admit(&request).await.unwrap();
        assert_eq!(names(&ground.host), [("v".to_owned(), Stage::Admitted)]);
        assert!(!hosted.client_socket().exists(), "nobody can connect yet");
        ground.host.open(&[Rc::clone(&hosted)]).unwrap();
        let unknown = Refusal::NoSuchVolume {
            name: "x".to_owned(),
            served: vec!["v".to_owned()],
        };
        assert_eq!(ground.host.holds("x"), Err(unknown.clone()));
        let closed = ground.host.close("x", Close::Drain).await;
        assert_eq!(closed, Err(unknown.clone()));
        assert_eq!(unknown.problem().code, Code::NoSuchVolume);
        assert!(ground.host.get("v").is_some());
        assert_eq!(hosted.status().unwrap().exports.len(), 1);
        ground.host.close("v", Close::Drain).await.unwrap();
        assert!(
            hosted.served().is_err(),
            "who keeps it keeps no member open"
        );
        assert!(hosted.status().is_none());
    });
}

#[test]
fn a_job_holds_its_volume() {
    Ground::run(1, async |ground| {
        let request = ground.mirror("v").await;
        let hosted = ground.open(&request).await.unwrap();
        let served = hosted.served().unwrap();
        served.volume.set_pace(Pace {
            is_paused: true,
            ..Pace::default()
        });
        assert!(served.volume.start_scrub(ScrubMode::Check));
        drop(served);
        let holds = ground.host.holds("v").unwrap();
        assert_eq!(holds, [Hold::Job(JobKind::Scrub)]);
        let refused = ground.host.close("v", Close::IfFree).await;
        assert!(matches!(refused, Err(Refusal::Held { .. })), "{refused:?}");
        ground.host.close("v", Close::Drain).await.unwrap();
    });
}

#[test]
fn a_volume_that_cannot_listen_lets_nobody_in_and_opens_once_it_can() {
    Ground::run(1, async |ground| {
        let first = ground.mirror("a").await;
        let first = ground.admit(&first).await.unwrap();
        let second = ground.mirror("b").await;
        let second = ground.admit(&second).await.unwrap();
        let both = [Rc::clone(&first), second];
        let address = "127.0.0.1:0".parse().unwrap();
        ground.host.listen_tcp(address).unwrap();
        let other = UnixListener::bind(both[1].client_socket()).unwrap();
        let refused = ground.host.open(&both).map_err(Refusal::problem);
        assert_eq!(refused.unwrap_err().code, Code::SocketInUse);
        assert!(!first.client_socket().exists(), "none of them is open");
        assert!(both[1].client_socket().exists(), "it is somebody else's");
        drop(other);
        ground.host.open(&both).unwrap();
        let guest = ground.guest(&first).await;
        write(&guest, 0, 1).await.unwrap();
    });
}

#[test]
fn what_opens_later_is_found_at_the_tcp_address_and_what_was_closed_is_not() {
    Ground::run(1, async |ground| {
        let first = ground.mirror("first").await;
        ground.open(&first).await.unwrap();
        let address = "127.0.0.1:0".parse().unwrap();
        let address = ground.host.listen_tcp(address).unwrap();
        let second = ground.mirror("second").await;
        let second = ground.open(&second).await.unwrap();
        for name in ["first", "second"] {
            let guest = ground.guest_from_afar(address, name).await;
            write(&guest, 0, 1).await.unwrap();
        }
        let uris: Vec<String> = {
            let exports = second.status().unwrap().exports;
            exports.into_iter().map(|export| export.uri).collect()
        };
        assert_eq!(uris[1], format!("nbd://{address}/second"));
        ground.host.close("first", Close::Force).await.unwrap();
        let socket = plexum_runtime::socket::connect_tcp(&ground.handle, address).await;
        let options = plexum_nbd::client::ConnectOptions::new("first");
        let pool = plexum_block::buf::BufPool::new(0);
        let gone = plexum_nbd::client::connect(socket.unwrap(), pool, &options).await;
        assert!(gone.is_err());
        let guest = ground.guest_from_afar(address, "second").await;
        assert_eq!(read(&guest, 0).await, Ok(1));
    });
}

#[test]
fn a_close_that_nobody_waits_for_any_more_goes_on_to_its_end() {
    Ground::run(1, async |ground| {
        let request = ground.mirror("v").await;
        let hosted = ground.open(&request).await.unwrap();
        let _guest = ground.guest(&hosted).await;
        {
            let mut closing = std::pin::pin!(ground.host.close("v", Close::Drain));
            assert!(plexum_block::wait::poll_once(closing.as_mut()).is_pending());
        }
        assert_eq!(hosted.stage(), Stage::Closing);
        let twice = ground.host.close("v", Close::Drain).await;
        let closing = Refusal::IsClosing {
            name: "v".to_owned(),
        };
        assert_eq!(twice, Err(closing));
        ground.host.empty().await;
        ground.open(&request).await.unwrap();
    });
}
