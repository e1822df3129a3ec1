//! Labels at the end of FreeBSD's providers. Numbers: offset of the label, size of the provider.

use md5::{Digest, Md5};
use plexum_format::gconcat::{self, ConcatLabel};
use plexum_format::gmirror::{self, MirrorLabel};
use plexum_format::gstripe::{self, StripeLabel};

use super::{Target, agree, as_it_is};
use crate::input::Input;
use crate::mutate::Hints;

/// gmirror.
pub const MIRROR: Target = Target {
    name: "gmirror",
    check: |input| {
        let parse = |bytes: &[u8]| MirrorLabel::parse(bytes, input.numbers[0], input.numbers[1]);
        let Ok(first) = parse(&input.bytes) else {
            return Ok(false);
        };
        let again = parse(&first.encode()).map_err(|error| error.to_string())?;
        let show = |label: &MirrorLabel| format!("{:?}", gmirror::describe(label));
        agree(&first, &again, |label| label.encode().to_vec(), show)
    },
    write_back: |input| {
        let label = MirrorLabel::parse(&input.bytes, input.numbers[0], input.numbers[1]);
        label.ok().map(|label| label.encode().to_vec())
    },
    repair: repair_mirror,
    hints: Hints {
        soft: &[20..32, 36..40, 41..50],
        is_text: false,
        words: &[],
    },
    length_max_bytes: 1024,
};

/// The MD5 follows the fields; versions 3 and 4 have the same.
fn repair_mirror(input: &mut Input) {
    let Some(sector) = input.bytes.first_chunk_mut::<512>() else {
        return;
    };
    let sum = Md5::digest(&sector[..MIRROR_FIELDS_BYTES]);
    sector[MIRROR_FIELDS_BYTES..][..16].copy_from_slice(&sum);
}

const MIRROR_FIELDS_BYTES: usize = 119;

/// gstripe.
pub const STRIPE: Target = Target {
    name: "gstripe",
    check: |input| {
        let parse = |bytes: &[u8]| StripeLabel::parse(bytes, input.numbers[0], input.numbers[1]);
        let Ok(first) = parse(&input.bytes) else {
            return Ok(false);
        };
        let again = parse(&first.encode()).map_err(|error| error.to_string())?;
        let show = |label: &StripeLabel| format!("{:?}", gstripe::describe(label));
        agree(&first, &again, |label| label.encode().to_vec(), show)
    },
    write_back: |input| {
        let label = StripeLabel::parse(&input.bytes, input.numbers[0], input.numbers[1]);
        label.ok().map(|label| label.encode().to_vec())
    },
    repair: as_it_is,
    hints: LABEL_HINTS,
    length_max_bytes: 1024,
};

/// gconcat.
pub const CONCAT: Target = Target {
    name: "gconcat",
    check: |input| {
        let parse = |bytes: &[u8]| ConcatLabel::parse(bytes, input.numbers[0], input.numbers[1]);
        let Ok(first) = parse(&input.bytes) else {
            return Ok(false);
        };
        let again = parse(&first.encode()).map_err(|error| error.to_string())?;
        let show = |label: &ConcatLabel| format!("{:?}", gconcat::describe(label));
        agree(&first, &again, |label| label.encode().to_vec(), show)
    },
    write_back: |input| {
        let label = ConcatLabel::parse(&input.bytes, input.numbers[0], input.numbers[1]);
        label.ok().map(|label| label.encode().to_vec())
    },
    repair: as_it_is,
    hints: LABEL_HINTS,
    length_max_bytes: 1024,
};

/// Name, identity and what follows the label.
const LABEL_HINTS: Hints = Hints {
    soft: &[20..28, 36..40, 128..512],
    is_text: false,
    words: &[],
};
