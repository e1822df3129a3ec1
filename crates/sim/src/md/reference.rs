//! The independent, slow model of every organisation: where data and redundancy must be, and what they must say.
//!
//! Written from the geometry and parity sections of the md reference (7 and 8) in the plainest form, sharing nothing
//! with the engine: one strip at a time, maps by direct calculation, GF(2^8) by shifting bits.
//!
//! Invariants:
//! - it never repairs or guesses: what cannot be had is `None`;
//! - data areas are given as whole byte vectors, a missing member is `None`.

use super::spec::{Level, Spec};
use super::stripes::{StripeRoles, gf_inverse, gf_power, gf_table, stripe_roles};

/// The independent model of one array.
#[derive(Clone, Debug)]
pub struct Reference {
    spec: Spec,
    /// Data bytes of each member; they differ only for linear and RAID-0.
    sizes: Vec<u64>,
    /// Ranges of members that count as missing.
    bad: Vec<(usize, std::ops::Range<u64>)>,
    /// Most bytes that one comparison covers.
    unit_bytes: u64,
}

/// A place where redundancy is not what it must be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mismatch {
    /// Member that differs from what the others say (copies: the later copy; parity: the member of P or Q).
    pub member: usize,
    /// Byte offset in its data area of the first difference in the strip.
    pub offset_bytes: u64,
    /// The same place in the space that the bitmap counts in: bytes of the volume for copies, of the member for parity.
    pub sync_bytes: u64,
}

/// A unit of the volume: its first byte, its length, and its places as (member, byte of the data area).
pub type Unit = (u64, u64, Vec<(usize, u64)>);

/// Data areas by slot; `None` for a missing member.
pub type Members = Vec<Option<Vec<u8>>>;

impl Reference {
    /// The model for arrays with members of one size.
    #[must_use]
    pub fn new(spec: &Spec) -> Self {
        Self {
            spec: spec.clone(),
            sizes: vec![spec.component_bytes; spec.member_count],
            bad: Vec::new(),
            unit_bytes: u64::MAX,
        }
    }

    /// The model for linear and RAID-0 arrays of unequal members, data bytes by slot.
    #[must_use]
    pub fn with_sizes(spec: &Spec, sizes: &[u64]) -> Self {
        Self {
            spec: spec.clone(),
            sizes: sizes.to_vec(),
            bad: Vec::new(),
            unit_bytes: u64::MAX,
        }
    }

    /// Takes these ranges (slot, bytes of the data area) as missing: the members' own bad-block lists.
    #[must_use]
    pub fn without_ranges(mut self, bad: &[(usize, std::ops::Range<u64>)]) -> Self {
        self.bad = bad.to_vec();
        self
    }

    /// Names differences in units of at most so many bytes (a divisor of the strip) instead of one for each strip.
    #[must_use]
    pub fn in_units_of(mut self, unit_bytes: u64) -> Self {
        self.unit_bytes = unit_bytes;
        self
    }

    /// Size of the volume in bytes.
    #[must_use]
    pub fn volume_bytes(&self) -> u64 {
        let Spec {
            level,
            strip_bytes: strip,
            component_bytes: size,
            ..
        } = self.spec;
        let n = self.spec.member_count as u64;
        match level {
            Level::Linear => self
                .sizes
                .iter()
                .map(|bytes| round_down(*bytes, strip))
                .sum(),
            Level::Raid0 => self
                .sizes
                .iter()
                .map(|bytes| round_down(*bytes, strip))
                .sum(),
            Level::Raid1 => size,
            Level::Raid4 | Level::Raid5 => size / strip * strip * (n - 1),
            Level::Raid6 => size / strip * strip * (n - 2),
            Level::Raid10 => self.raid10().array_chunks * strip,
        }
    }

    /// All places of the strip that begins at volume byte `at`, first copy first: (member, member offset).
    /// For parity the one data place. `at` must begin a unit of `unit_bytes`.
    #[must_use]
    pub fn places(&self, at: u64) -> Vec<(usize, u64)> {
        let strip = self.spec.strip_bytes;
        match self.spec.level {
            Level::Linear => vec![self.linear_place(at)],
            Level::Raid0 => vec![self.raid0_place(at)],
            Level::Raid1 => (0..self.spec.member_count)
                .map(|member| (member, at))
                .collect(),
            Level::Raid10 => self.raid10().copies(at / strip, at % strip),
            level => {
                let parities = if level == Level::Raid6 { 2 } else { 1 };
                let k = (self.spec.member_count - parities) as u64;
                let (stripe, index) = (at / strip / k, (at / strip % k) as usize);
                let roles = stripe_roles(level, self.spec.layout, self.spec.member_count, stripe);
                vec![(roles.data[index], stripe * strip + at % strip)]
            }
        }
    }

    /// Bytes of the volume that lie contiguous on every member, from `at` on.
    fn unit_at(&self, at: u64) -> u64 {
        let end = self.volume_bytes();
        let unit = match self.spec.level {
            Level::Raid1 => 4096 - at % 4096,
            Level::Linear => 512,
            _ => self.spec.strip_bytes - at % self.spec.strip_bytes,
        };
        unit.min(self.step(end - at))
    }

    /// Most bytes that are looked at together: sectors as soon as sectors can be missing.
    fn step(&self, whole: u64) -> u64 {
        if self.bad.is_empty() {
            whole.min(self.unit_bytes)
        } else {
            (512).min(whole)
        }
    }

    fn piece(&self, members: &Members, member: usize, offset: u64, length: u64) -> Option<Vec<u8>> {
        let is_bad = |(slot, range): &(usize, std::ops::Range<u64>)| {
            *slot == member && range.start < offset + length && offset < range.end
        };
        if self.bad.iter().any(is_bad) {
            return None;
        }
        piece(members, member, offset, length)
    }

    fn linear_place(&self, at: u64) -> (usize, u64) {
        let mut rest = at;
        for (member, bytes) in self.sizes.iter().enumerate() {
            let bytes = round_down(*bytes, self.spec.strip_bytes);
            if rest < bytes {
                return (member, rest);
            }
            rest -= bytes;
        }
        panic!("byte {at} is inside of the volume");
    }

    /// Zones by brute force: each zone takes the members larger than the last limit up to the next smallest size.
    fn raid0_place(&self, at: u64) -> (usize, u64) {
        let strip = self.spec.strip_bytes;
        let sizes: Vec<u64> = self
            .sizes
            .iter()
            .map(|bytes| round_down(*bytes, strip))
            .collect();
        let (mut zone_start, mut member_start) = (0, 0);
        loop {
            let members: Vec<usize> = (0..sizes.len())
                .filter(|m| sizes[*m] > member_start)
                .collect();
            let limit = members
                .iter()
                .map(|m| sizes[*m])
                .min()
                .expect("byte is inside of the volume");
            let k = members.len() as u64;
            let zone_bytes = (limit - member_start) * k;
            if at < zone_start + zone_bytes {
                let rel = at - zone_start;
                let row = rel / (strip * k);
                let turn = if self.spec.layout == 1 {
                    at / strip
                } else {
                    rel / strip
                };
                let member = members[(turn % k) as usize];
                return (member, member_start + row * strip + at % strip);
            }
            zone_start += zone_bytes;
            member_start = limit;
        }
    }

    fn raid10(&self) -> Raid10 {
        Raid10::new(&self.spec)
    }

    /// The volume's contents from what is there; `None` in place of strips that cannot be had.
    /// Strips are given in order, as (volume offset, bytes).
    #[must_use]
    pub fn strips(&self, members: &Members) -> Vec<(u64, Option<Vec<u8>>)> {
        let mut strips = Vec::new();
        let mut at = 0;
        while at < self.volume_bytes() {
            let length = self.unit_at(at);
            strips.push((at, self.strip(members, at, length)));
            at += length;
        }
        strips
    }

    /// The whole content; `None` when any part cannot be had.
    #[must_use]
    pub fn content(&self, members: &Members) -> Option<Vec<u8>> {
        let mut all = Vec::new();
        for (_, bytes) in self.strips(members) {
            all.extend_from_slice(&bytes?);
        }
        Some(all)
    }

    fn strip(&self, members: &Members, at: u64, length: u64) -> Option<Vec<u8>> {
        let places = self.places(at);
        let direct = places
            .iter()
            .find_map(|(member, offset)| self.piece(members, *member, *offset, length));
        if direct.is_some() || !self.spec.level.has_parity() {
            return direct;
        }
        let (member, offset) = places[0];
        let stripe = offset / self.spec.strip_bytes;
        let roles = stripe_roles(
            self.spec.level,
            self.spec.layout,
            self.spec.member_count,
            stripe,
        );
        let index = roles.data.iter().position(|data| *data == member)?;
        recover_strip(
            &roles,
            &|member| self.piece(members, member, offset, length),
            index,
            length,
        )
    }

    /// Lays `content` out over the members that are there: data, copies and parity. What belongs to no byte of the
    /// volume stays as it is.
    pub fn encode_into(&self, content: &[u8], members: &mut Members) {
        let mut put = |member: usize, offset: u64, bytes: &[u8]| {
            if let Some(Some(area)) = members.get_mut(member) {
                area[offset as usize..offset as usize + bytes.len()].copy_from_slice(bytes);
            }
        };
        let mut at = 0;
        while at < self.volume_bytes() {
            let length = self.unit_at(at);
            let bytes = &content[at as usize..(at + length) as usize];
            for (member, offset) in self.places(at) {
                put(member, offset, bytes);
            }
            at += length;
        }
        if !self.spec.level.has_parity() {
            return;
        }
        let Spec {
            level,
            layout,
            member_count,
            strip_bytes: strip,
            ..
        } = self.spec;
        for stripe in 0..self.spec.component_bytes / strip {
            let roles = stripe_roles(level, layout, member_count, stripe);
            let k = roles.data.len() as u64;
            let start = |index: u64| ((stripe * k + index) * strip) as usize;
            let data: Vec<Vec<u8>> = (0..k)
                .map(|index| content[start(index)..start(index + 1)].to_vec())
                .collect();
            put(roles.p, stripe * strip, &xor_all(&data, strip));
            if let Some(q) = roles.q {
                put(q, stripe * strip, &q_of(&roles, &data, strip));
            }
        }
    }

    /// Units of the volume in order, each with its places: (volume byte, length, places).
    #[must_use]
    pub fn units(&self) -> Vec<Unit> {
        let mut units = Vec::new();
        let mut at = 0;
        while at < self.volume_bytes() {
            let length = self.unit_at(at);
            units.push((at, length, self.places(at)));
            at += length;
        }
        units
    }

    /// Every place where redundancy does not agree with the data, of members that are there.
    #[must_use]
    pub fn mismatches(&self, members: &Members) -> Vec<Mismatch> {
        if self.spec.level.has_parity() {
            return self.parity_mismatches(members);
        }
        let mut found = Vec::new();
        let mut at = 0;
        while at < self.volume_bytes() {
            let length = self.unit_at(at);
            let there: Vec<(usize, u64, Vec<u8>)> = self
                .places(at)
                .into_iter()
                .filter_map(|(member, offset)| {
                    Some((member, offset, self.piece(members, member, offset, length)?))
                })
                .collect();
            for (member, offset, bytes) in there.iter().skip(1) {
                found.extend(difference(*member, *offset, at, &there[0].2, bytes));
            }
            at += length;
        }
        found
    }

    fn parity_mismatches(&self, members: &Members) -> Vec<Mismatch> {
        let strip = self.spec.strip_bytes;
        let mut found = Vec::new();
        let step = self.step(strip);
        for at in (0..self.spec.component_bytes / strip * strip).step_by(step as usize) {
            let Spec {
                level,
                layout,
                member_count,
                ..
            } = self.spec;
            let roles = stripe_roles(level, layout, member_count, at / strip);
            let data = roles
                .data
                .iter()
                .map(|member| self.piece(members, *member, at, step));
            let Some(data) = data.collect::<Option<Vec<Vec<u8>>>>() else {
                continue;
            };
            if let Some(p) = self.piece(members, roles.p, at, step) {
                found.extend(difference(roles.p, at, at, &xor_all(&data, step), &p));
            }
            let q = roles
                .q
                .and_then(|q| Some((q, self.piece(members, q, at, step)?)));
            if let Some((member, q)) = q {
                found.extend(difference(member, at, at, &q_of(&roles, &data, step), &q));
            }
        }
        found
    }
}

fn round_down(bytes: u64, unit: u64) -> u64 {
    bytes.checked_div(unit).map_or(bytes, |count| count * unit)
}

fn piece(members: &Members, member: usize, offset: u64, length: u64) -> Option<Vec<u8>> {
    let bytes = members.get(member)?.as_ref()?;
    let (start, end) = (offset as usize, (offset + length) as usize);
    // Past the end of a short image nothing was ever written.
    let mut part = vec![0; length as usize];
    if start < bytes.len() {
        let end = end.min(bytes.len());
        part[..end - start].copy_from_slice(&bytes[start..end]);
    }
    Some(part)
}

fn difference(
    member: usize,
    offset: u64,
    sync: u64,
    expected: &[u8],
    found: &[u8],
) -> Option<Mismatch> {
    let first = expected.iter().zip(found).position(|(a, b)| a != b)?;
    Some(Mismatch {
        member,
        offset_bytes: offset + first as u64,
        sync_bytes: sync + first as u64,
    })
}

fn xor_all(strips: &[Vec<u8>], length: u64) -> Vec<u8> {
    let mut sum = vec![0; length as usize];
    for strip in strips {
        sum.iter_mut().zip(strip).for_each(|(a, b)| *a ^= b);
    }
    sum
}

fn q_of(roles: &StripeRoles, data: &[Vec<u8>], length: u64) -> Vec<u8> {
    let mut sum = vec![0; length as usize];
    for (strip, exponent) in data.iter().zip(&roles.exponents) {
        let table = gf_table(gf_power(*exponent));
        sum.iter_mut()
            .zip(strip)
            .for_each(|(a, b)| *a ^= table[usize::from(*b)]);
    }
    sum
}

/// Data strip `index` of a stripe from what is left (reference section 8).
fn recover_strip(
    roles: &StripeRoles,
    piece: &dyn Fn(usize) -> Option<Vec<u8>>,
    index: usize,
    length: u64,
) -> Option<Vec<u8>> {
    let data: Vec<Option<Vec<u8>>> = roles.data.iter().map(|member| piece(*member)).collect();
    let p = piece(roles.p);
    let q = roles.q.and_then(piece);
    let lost: Vec<usize> = (0..data.len()).filter(|i| data[*i].is_none()).collect();
    let zeroes = vec![0; length as usize];
    let known: Vec<Vec<u8>> = data
        .iter()
        .map(|d| d.clone().unwrap_or_else(|| zeroes.clone()))
        .collect();
    match (lost.as_slice(), p, q) {
        ([_], Some(p), _) => {
            let mut strips = known;
            strips.push(p);
            Some(xor_all(&strips, length))
        }
        ([_], None, Some(q)) => {
            let sum = xor_all(&[q, q_of(roles, &known, length)], length);
            let table = gf_table(gf_inverse(gf_power(roles.exponents[index])));
            Some(sum.iter().map(|byte| table[usize::from(*byte)]).collect())
        }
        ([x, y], Some(p), Some(q)) => {
            let p_rest = xor_all(&[p, xor_all(&known, length)], length);
            let q_rest = xor_all(&[q, q_of(roles, &known, length)], length);
            let (gx, gy) = (gf_power(roles.exponents[*x]), gf_power(roles.exponents[*y]));
            let (times_gy, divide) = (gf_table(gy), gf_table(gf_inverse(gx ^ gy)));
            let first = p_rest
                .iter()
                .zip(&q_rest)
                .map(|(p, q)| divide[usize::from(q ^ times_gy[usize::from(*p)])]);
            let first: Vec<u8> = first.collect();
            Some(if index == *x {
                first
            } else {
                xor_all(&[p_rest, first], length)
            })
        }
        _ => None,
    }
}

/// RAID-10 as section 7 gives it, word for word.
struct Raid10 {
    n: u64,
    near: u64,
    far: u64,
    is_offset: bool,
    set_size: u64,
    stride: u64,
    strip: u64,
    array_chunks: u64,
}

impl Raid10 {
    fn new(spec: &Spec) -> Self {
        let (near, far) = (
            u64::from(spec.layout & 0xff),
            u64::from((spec.layout >> 8) & 0xff),
        );
        let (is_offset, far_set) = (spec.layout >> 16 & 1 == 1, spec.layout >> 17);
        let n = spec.member_count as u64;
        let chunks = spec.component_bytes / spec.strip_bytes;
        let array_chunks = chunks / far * n / near;
        let used = (array_chunks * near * far).div_ceil(n);
        let set_size = match far_set {
            0 => n,
            1 => n / far,
            _ => far * near,
        };
        let stride = if is_offset {
            spec.strip_bytes
        } else {
            used / far * spec.strip_bytes
        };
        Self {
            n,
            near,
            far,
            is_offset,
            set_size,
            stride,
            strip: spec.strip_bytes,
            array_chunks,
        }
    }

    fn copies(&self, chunk: u64, inside: u64) -> Vec<(usize, u64)> {
        let x = chunk * self.near;
        let (mut stripe, mut dev) = (x / self.n, x % self.n);
        if self.is_offset {
            stripe *= self.far;
        }
        let mut sec = stripe * self.strip + inside;
        let last = (self.n / self.set_size - 1) * self.set_size;
        let last_size = self.set_size + self.n % self.set_size;
        let mut places = Vec::new();
        for _ in 0..self.near {
            let (mut d, mut s) = (dev, sec);
            places.push((d as usize, s));
            for _ in 1..self.far {
                let set = d / self.set_size;
                d += self.near;
                if !self.n.is_multiple_of(self.set_size) && d > last {
                    d = last + (d - last) % last_size;
                } else {
                    d = d % self.set_size + self.set_size * set;
                }
                s += self.stride;
                places.push((d as usize, s));
            }
            dev += 1;
            if dev == self.n {
                dev = 0;
                sec += self.strip;
            }
        }
        places
    }
}

#[cfg(test)]
mod tests;
