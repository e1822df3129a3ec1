//! gstripe and gconcat: all members or nothing.
//!
//! Source: freebsd-geom.md section 3.

use plexum_format::FormatError;
use plexum_format::gconcat::ConcatLabel;
use plexum_format::gstripe::StripeLabel;

use crate::labels::{ForeignError, last_sector, provider_name};
use plexum_block::buf::BufPool;
use plexum_block::clock::Clock;
use plexum_block::device::Device;
use plexum_block::ranges::RangeSet;
use plexum_engine::intent::regions::Regions;
use plexum_engine::metadata::PlainMetadata;
use plexum_engine::state::{MemberRecord, Standing};
use plexum_engine::volume::VolumeOptions;
use plexum_engine::volume::{DrivePart, Volume, VolumeParts};
use plexum_layout::{Geometry, GeometrySpec, Organisation, Raid0Layout};

/// A member's label with its provider.
#[derive(Clone, Debug)]
pub struct Labelled<L> {
    /// The caller's number of the device.
    pub index: usize,
    /// Its name for people.
    pub name: String,
    /// Its size.
    pub size_bytes: u64,
    /// Bytes before its label.
    pub usable_bytes: u64,
    /// Its label.
    pub label: L,
}

/// Members in order with their address map.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Joined {
    /// Name of the volume.
    pub name: String,
    /// Its identity.
    pub id: u32,
    /// Address map.
    pub geometry: Geometry,
    /// By slot: the caller's number, and the bytes used from 0 on.
    pub slots: Vec<(usize, u64)>,
}

/// Why labels make no volume; `member` is the caller's number where one is to blame.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JoinError {
    /// The sentence.
    pub message: String,
    /// Who is to blame.
    pub member: Option<usize>,
    /// Members are missing; everything else fits.
    pub is_missing: bool,
    /// A label is bound to a provider of another name.
    pub is_bound: bool,
}

/// What both labels say.
struct Common<'a> {
    name: &'a str,
    id: u32,
    slot: u16,
    count: u16,
    strip_bytes: u64,
    provider: &'a str,
}

/// Joins the members of a gstripe.
///
/// # Errors
/// [`JoinError`] with the first thing that does not fit.
pub fn join_stripe(members: &[Labelled<StripeLabel>]) -> Result<Joined, JoinError> {
    join(members, |label| Common {
        name: &label.name,
        id: label.volume_id,
        slot: label.slot.0,
        count: label.member_count,
        strip_bytes: u64::from(label.strip_bytes),
        provider: &label.provider,
    })
}

/// Joins the members of a gconcat.
///
/// # Errors
/// As [`join_stripe`].
pub fn join_concat(members: &[Labelled<ConcatLabel>]) -> Result<Joined, JoinError> {
    join(members, |label| Common {
        name: &label.name,
        id: label.volume_id,
        slot: label.slot.0,
        count: label.member_count,
        strip_bytes: 0,
        provider: &label.provider,
    })
}

fn join<L>(
    members: &[Labelled<L>],
    common: impl for<'a> Fn(&'a L) -> Common<'a>,
) -> Result<Joined, JoinError> {
    let fail = |message: String, member: Option<usize>| JoinError {
        message,
        member,
        is_missing: false,
        is_bound: false,
    };
    let first = members
        .first()
        .ok_or_else(|| fail("no member is given".into(), None))?;
    let want = common(&first.label);
    let slots = slots_of(members, &want, &common)?;
    let missing: Vec<String> = (0..slots.len())
        .filter(|slot| slots[*slot].is_none())
        .map(|slot| slot.to_string())
        .collect();
    if !missing.is_empty() {
        return Err(JoinError {
            message: format!("{} lacks members: number {}", want.name, missing.join(", ")),
            member: None,
            is_missing: true,
            is_bound: false,
        });
    }
    let slots: Vec<(usize, u64)> = slots.into_iter().flatten().collect();
    let sizes: Vec<u64> = slots.iter().map(|(_, usable)| *usable).collect();
    let is_stripe = want.strip_bytes > 0;
    let smallest = sizes.iter().copied().min().unwrap_or(0);
    let geometry = Geometry::with_any_strip(&GeometrySpec {
        organisation: if is_stripe {
            Organisation::Raid0(Raid0Layout::Original)
        } else {
            Organisation::Linear
        },
        member_count: want.count,
        strip_bytes: want.strip_bytes,
        component_bytes: smallest,
        member_sizes_bytes: if is_stripe { Vec::new() } else { sizes },
    });
    let geometry = geometry.map_err(|error| fail(error.to_string(), None))?;
    Ok(Joined {
        name: want.name.to_owned(),
        id: want.id,
        geometry,
        slots,
    })
}

/// Who has which number.
fn slots_of<L>(
    members: &[Labelled<L>],
    want: &Common<'_>,
    common: &impl for<'a> Fn(&'a L) -> Common<'a>,
) -> Result<Vec<Option<(usize, u64)>>, JoinError> {
    let blame = |message: String, member: Option<usize>| JoinError {
        message,
        member,
        is_missing: false,
        is_bound: false,
    };
    let mut slots: Vec<Option<(usize, u64)>> = vec![None; usize::from(want.count)];
    for member in members {
        let label = common(&member.label);
        let who = Some(member.index);
        let bound = label.provider;
        if !bound.is_empty() && bound != provider_name(&member.name, bound) {
            return Err(JoinError {
                is_bound: true,
                ..blame(
                    format!("{}: its label is bound to {bound}", member.name),
                    who,
                )
            });
        }
        if label.name != want.name || label.id != want.id {
            let (name, id) = (label.name, label.id);
            let text = format!("{} belongs to {name} with id {id}", member.name);
            return Err(blame(text, who));
        }
        if label.count != want.count || label.strip_bytes != want.strip_bytes {
            let text = format!(
                "{}: its label contradicts that of {}",
                member.name, members[0].name
            );
            return Err(blame(text, who));
        }
        let Some(place) = slots.get_mut(usize::from(label.slot)) else {
            return Err(blame(
                format!("{}: its number is {}", member.name, label.slot),
                who,
            ));
        };
        if place.is_some() {
            let text = format!(
                "{}: another member has number {} too",
                member.name, label.slot
            );
            return Err(blame(text, who));
        }
        *place = Some((member.index, member.usable_bytes));
    }
    Ok(slots)
}

/// Which of the two formats.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum JoinedFormat {
    /// gstripe.
    Stripe,
    /// gconcat.
    Concat,
}

impl JoinedFormat {
    /// FreeBSD's name for it.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Stripe => "gstripe",
            Self::Concat => "gconcat",
        }
    }
}

/// Whether the names count that labels are bound to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BoundNames {
    /// A member has the name that its label is bound to.
    Kept,
    /// The user says that a member is the right one under another name.
    Ignored,
}

/// Opens a gstripe or gconcat volume: all of its members have to be given.
///
/// # Errors
/// `ForeignError`; nothing was written.
pub async fn open_joined<D: Device, C: Clock>(
    devices: Vec<(String, D)>,
    format: JoinedFormat,
    clock: C,
    pool: BufPool,
    options: VolumeOptions,
    name: Option<String>,
) -> Result<(Volume<D, C>, Joined), ForeignError> {
    let joined = join_devices(&devices, format, &pool, BoundNames::Kept).await?;
    Ok(volume_of(
        devices,
        joined,
        format,
        (clock, pool),
        options,
        name,
    ))
}

/// The order in which devices make a gstripe or gconcat volume.
///
/// # Errors
/// `ForeignError`.
pub async fn join_devices<D: Device>(
    devices: &[(String, D)],
    format: JoinedFormat,
    pool: &BufPool,
    names: BoundNames,
) -> Result<Joined, ForeignError> {
    let joined = match format {
        JoinedFormat::Stripe => {
            let mut members = labelled(devices, pool, StripeLabel::parse).await?;
            if names == BoundNames::Ignored {
                members
                    .iter_mut()
                    .for_each(|member| member.label.provider.clear());
            }
            join_stripe(&members)
        }
        JoinedFormat::Concat => {
            let mut members = labelled(devices, pool, ConcatLabel::parse).await?;
            if names == BoundNames::Ignored {
                members
                    .iter_mut()
                    .for_each(|member| member.label.provider.clear());
            }
            join_concat(&members)
        }
    };
    joined.map_err(|error| match error.member {
        _ if error.is_missing => ForeignError::Missing(error.message),
        Some(member) if error.is_bound => ForeignError::Bound(member, error.message),
        member => ForeignError::Unfit(member, error.message),
    })
}

/// The volume of joined devices.
pub fn volume_of<D: Device, C: Clock>(
    devices: Vec<(String, D)>,
    joined: Joined,
    format: JoinedFormat,
    (clock, pool): (C, BufPool),
    options: VolumeOptions,
    name: Option<String>,
) -> (Volume<D, C>, Joined) {
    let mut devices: Vec<Option<(String, D)>> = devices.into_iter().map(Some).collect();
    let mut members = Vec::new();
    let mut sector_bytes = 512;
    for (slot, (index, usable_bytes)) in (0_u16..).zip(&joined.slots) {
        let taken = devices.get_mut(*index).and_then(Option::take);
        let (name, device) = taken.expect("a member is one of the devices, once");
        sector_bytes = sector_bytes.max(device.info().sector_bytes);
        members.push(DrivePart {
            name,
            device: Some(device),
            record: MemberRecord {
                slot: Some(slot),
                standing: Standing::Active,
                is_replacement: false,
                is_write_mostly: false,
            },
            data: 0..*usable_bytes,
            bad: RangeSet::new(),
        });
    }
    let volume = Volume::new(VolumeParts {
        name: name.unwrap_or_else(|| joined.name.clone()),
        regions: Regions::without_bitmap(&joined.geometry, sector_bytes, None),
        geometry: joined.geometry.clone(),
        clock,
        pool,
        members,
        metadata: Box::new(PlainMetadata::new(format.name())),
        event_count: 0,
        is_uneven: false,
        log: None,
        resync_start_bytes: None,
        options,
    });
    (volume, joined)
}

async fn labelled<D: Device, L>(
    devices: &[(String, D)],
    pool: &BufPool,
    parse: impl Fn(&[u8], u64, u64) -> Result<L, FormatError> + Copy,
) -> Result<Vec<Labelled<L>>, ForeignError> {
    let mut members = Vec::new();
    for (index, (name, device)) in devices.iter().enumerate() {
        let (label, sector_bytes) = last_sector(device, pool, index, parse).await?;
        let size_bytes = device.info().size_bytes;
        members.push(Labelled {
            index,
            name: name.clone(),
            size_bytes,
            usable_bytes: size_bytes - u64::from(sector_bytes),
            label,
        });
    }
    Ok(members)
}
