//! What NVMe/TCP hosts send.

use plexum_nvme::wire::command::{BlockRange, Command, Sgl, admin, io};
use plexum_nvme::wire::digest::Digests;
use plexum_nvme::wire::fabrics::{Connect, ConnectData, Fabrics};
use plexum_nvme::wire::pdu::{Head, IcRequest, Kind, Transfer};

/// A command by its name, and the data of its capsule.
type Sample = (&'static str, [u8; 64], Vec<u8>);

/// Commands of fabrics.
fn of_fabrics() -> Vec<Sample> {
    let connect = Fabrics::Connect(Connect {
        record_format: 0,
        queue: 1,
        size_less_one: 127,
        has_no_flow_control: false,
        keep_alive_ms: 5000,
    });
    let name = "nqn.2014-08.org.nvmexpress:uuid:20013f8b-b27a-48bd-891f-198303efef09";
    let data = ConnectData {
        host_id: [7; 16],
        controller: 1,
        subsystem: name.to_owned(),
        host: name.to_owned(),
    };
    let get = Fabrics::Get {
        offset_bytes: 0x14,
        is_long: false,
    };
    let set = Fabrics::Set {
        offset_bytes: 0x14,
        value: 0x0046_0001,
    };
    vec![
        ("connect", connect.encode(1), data.encode().to_vec()),
        ("get", get.encode(2), Vec::new()),
        ("set", set.encode(3), Vec::new()),
    ]
}

/// Commands of both kinds of queues.
fn of_queues() -> Vec<Sample> {
    let command = |opcode, sgl, dwords| {
        let command = Command {
            opcode,
            flags: 1 << 6,
            id: 3,
            namespace: 1,
            sgl,
            dwords,
        };
        command.encode()
    };
    let range = BlockRange {
        first_block: 8,
        block_count: 64,
    };
    let (none, block, here) = (Sgl::transport(0), Sgl::transport(512), Sgl::in_capsule(512));
    let (at, page) = ([8, 0, 0, 0, 0, 0], [1, 0, 0, 0, 0, 0]);
    let trim = command(
        io::DATASET_MANAGEMENT,
        Sgl::in_capsule(16),
        [0, 4, 0, 0, 0, 0],
    );
    vec![
        ("read", command(io::READ, block, at), Vec::new()),
        ("ask", command(io::WRITE, block, at), Vec::new()),
        ("write", command(io::WRITE, here, at), vec![5; 512]),
        ("flush", command(io::FLUSH, none, [0; 6]), Vec::new()),
        (
            "zero",
            command(io::WRITE_ZEROES, none, [8, 0, 7, 0, 0, 0]),
            Vec::new(),
        ),
        ("trim", trim, range.encode().to_vec()),
        (
            "identify",
            command(admin::IDENTIFY, Sgl::transport(4096), page),
            Vec::new(),
        ),
    ]
}

/// Writes all files.
pub(super) fn gather() -> Result<(), String> {
    let commands = [of_fabrics(), of_queues()].concat();
    for number in 0..4 {
        let digests = Digests::decode(number as u8);
        let numbers = [number, 0, 0, 0];
        let save = |name: &str, kind, header: &[u8], data: &[u8]| {
            let head = Head::of(kind, 0, data.len() as u32, digests, 4);
            let mut bytes = Vec::from(head.encode());
            bytes.extend_from_slice(header);
            // The digests themselves are not looked at here.
            bytes.resize(bytes.len() + digests.header_bytes(), 0);
            bytes.extend_from_slice(data);
            bytes.resize(head.total_bytes as usize, 0);
            super::save("nvme-pdu", &format!("{number}-{name}"), numbers, &bytes)
        };
        for (name, command, data) in &commands {
            save(name, Kind::Command, command, data)?;
        }
        let transfer = Transfer {
            command: 3,
            tag: 0,
            offset_bytes: 0,
            count_bytes: 512,
        };
        let head = Head::of(Kind::HostData, 0, 512, digests, 4);
        let header = transfer.encode(&head);
        save("data", Kind::HostData, &header[8..], &[6; 512])?;
    }
    let wish = IcRequest {
        alignment_bytes: 4,
        digests: Digests::default(),
        transfers_max: 1,
    };
    super::save("nvme-pdu", "wish", [0; 4], &wish.encode())
}
