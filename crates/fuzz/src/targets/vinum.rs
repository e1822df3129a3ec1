//! Vinum's drives. Number: offset in the drive.

use plexum_format::vinum::{Config, DriveHeader, header};

use super::{Target, agree, as_it_is};
use crate::mutate::Hints;

/// Header of a drive.
pub const HEADER: Target = Target {
    name: "vinum-header",
    check: |input| {
        let Ok(mut written) = DriveHeader::parse(&input.bytes, input.numbers[0]) else {
            return Ok(false);
        };
        // What is read in the original Vinum's format is written in the current one.
        written.format = header::HeaderFormat::Current;
        let again = DriveHeader::parse(&written.encode(), input.numbers[0]);
        let again = again.map_err(|error| error.to_string())?;
        let show = |h: &DriveHeader| format!("{:?}", header::describe(h));
        agree(&written, &again, |h| h.encode().to_vec(), show)
    },
    write_back: |input| {
        let header = DriveHeader::parse(&input.bytes, input.numbers[0]);
        header.ok().map(|header| header.encode().to_vec())
    },
    repair: as_it_is,
    hints: Hints {
        soft: &[80..120, 120..512],
        is_text: false,
        words: &[b"NO VINUM", b"IN VINO\0"],
    },
    length_max_bytes: 1024,
};

/// The configuration's text.
pub const CONFIG: Target = Target {
    name: "vinum-config",
    check: |input| {
        let Ok(first) = Config::parse(&input.bytes, input.numbers[0]) else {
            return Ok(false);
        };
        let Ok(text) = first.encode() else {
            return Ok(true); // longer than a copy: said so, nothing to read
        };
        let again = Config::parse(&text, input.numbers[0]).map_err(|error| error.to_string())?;
        agree(&first, &again, Config::to_string_bytes, |c| {
            format!("{c:?}")
        })
    },
    write_back: |input| {
        let config = Config::parse(&input.bytes, input.numbers[0]).ok()?;
        Some(config.to_string().into_bytes())
    },
    repair: as_it_is,
    hints: Hints {
        soft: &[],
        is_text: true,
        words: &[
            b"volume ",
            b"plex ",
            b"sd ",
            b"drive ",
            b"name ",
            b"org raid5 ",
            b"org concat ",
            b"len ",
            b"state up\n",
            b"\n",
            b" 9223372036854775807s ",
            b" -1 ",
        ],
    },
    length_max_bytes: 16384,
};

trait Text {
    fn to_string_bytes(&self) -> Vec<u8>;
}

impl Text for Config {
    fn to_string_bytes(&self) -> Vec<u8> {
        self.to_string().into_bytes()
    }
}
