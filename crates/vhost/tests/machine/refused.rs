//! Messages that cannot be followed.

use plexum_vhost::session::SessionError;
use plexum_vhost::wire::{InflightArea, Message, Region, RingFile, RingValue};

use crate::ground::{Ground, on_ground};
use crate::guest::{Guest, ORDINARY};

/// A session that is over, whatever it said, leaves nothing.
async fn ends(
    ground: &Ground,
    message: Message,
    file: Option<std::os::fd::OwnedFd>,
) -> SessionError {
    let (mut guest, served) = ground.connect();
    guest.greet(ORDINARY).await;
    guest.send(&message, file.as_ref()).await;
    assert!(
        guest.answer().await.is_none(),
        "{message:?} ends the connection"
    );
    let ended = served.await.unwrap();
    ground.assert_empty();
    ended.expect_err("it ends before its time")
}

#[test]
fn messages_that_cannot_be_followed_end_their_own_session_with_a_reason() {
    let region = Guest::region();
    let value = |ring, value| RingValue { ring, value };
    let area = |queues, descriptors| InflightArea {
        size_bytes: 1 << 60,
        file_offset_bytes: 1 << 60,
        queues,
        descriptors,
    };
    let memfd = || {
        Some(
            plexum_runtime::vhost::SharedMemory::share(1 << 20)
                .unwrap()
                .0,
        )
    };
    let no_file = RingFile {
        ring: 0,
        has_file: false,
    };
    let with_file = RingFile {
        ring: 0,
        has_file: true,
    };
    let folder = || {
        Some(std::os::fd::OwnedFd::from(
            std::fs::File::open("/").unwrap(),
        ))
    };
    let zero = || {
        Some(std::os::fd::OwnedFd::from(
            std::fs::File::open("/dev/zero").unwrap(),
        ))
    };
    let region = |change: fn(&mut Region)| {
        let mut changed = region;
        change(&mut changed);
        changed
    };
    type File = Option<std::os::fd::OwnedFd>;
    let cases: Vec<(Message, File)> = vec![
        (Message::SetFeatures(1 << 50), None),
        (Message::SetProtocolFeatures(1 << 50), None),
        (Message::SetMemoryTable(vec![region(|_| {})]), None),
        (Message::SetMemoryTable(vec![region(|_| {})]), memfd()), // shorter than it says
        (Message::SetMemoryTable(vec![region(|_| {})]), folder()),
        (Message::SetMemoryTable(vec![region(|_| {})]), zero()),
        (Message::AddRegion(region(|_| {})), memfd()), // overlaps
        (
            Message::AddRegion(region(|region| region.size_bytes = 0)),
            memfd(),
        ),
        (
            Message::AddRegion(region(|region| region.guest_address = u64::MAX - 5)),
            memfd(),
        ),
        (
            Message::AddRegion(region(|region| region.user_address = u64::MAX - 5)),
            memfd(),
        ),
        (
            Message::AddRegion(region(|region| region.file_offset_bytes = u64::MAX - 5)),
            memfd(),
        ),
        (
            Message::RemoveRegion(region(|region| region.size_bytes = 1)),
            None,
        ),
        (Message::SetRingSize(value(0, 0)), None),
        (Message::SetRingSize(value(0, 3)), None),
        (Message::SetRingSize(value(0, 2048)), None),
        (Message::SetRingSize(value(256, 64)), None),
        (Message::SetRingSize(value(u32::MAX, 64)), None),
        (Message::SetRingBase(value(0, 0x1_0000)), None),
        (Message::GetRingBase(value(9999, 0)), None),
        (Message::SetRingEnabled(value(256, 1)), None),
        (Message::SetKick(no_file), None),
        (Message::SetKick(with_file), None),
        (Message::SetKick(with_file), zero()),
        (Message::SetCall(with_file), memfd()),
        (Message::SetCall(with_file), folder()),
        (Message::SetBackendChannel, zero()),
        (Message::GetInflight(area(0, 64)), None),
        (Message::GetInflight(area(1, 0)), None),
        (Message::GetInflight(area(257, 64)), None),
        (Message::GetInflight(area(1, 1025)), None),
        (Message::SetInflight(area(1, 64)), memfd()),
        (Message::SetInflight(area(1, 64)), None),
    ];
    on_ground(
        |_| {},
        |ground| async move {
            for (message, file) in cases {
                let error = ends(&ground, message.clone(), file).await;
                let is_refused = matches!(&error, SessionError::Refused { request, .. } if *request == message.request());
                assert!(is_refused, "{message:?}: {error}");
            }
        },
    );
}
