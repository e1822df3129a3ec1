//! From devices to a served mirror.

use plexum_format::gmirror::{Balance, MirrorLabel};

use crate::labels::{ForeignError, last_sector, provider_name};
use plexum_block::buf::BufPool;
use plexum_block::clock::Clock;
use plexum_block::device::Device;
use plexum_block::ranges::RangeSet;
use plexum_engine::balance::Policy;
use plexum_engine::intent::regions::Regions;
use plexum_engine::state::{MemberRecord, Standing};
use plexum_engine::volume::VolumeOptions;
use plexum_engine::volume::{DrivePart, Volume, VolumeParts};
use plexum_layout::{Geometry, GeometrySpec, Organisation};

use super::{
    Assembled, Component, ComponentState, GmirrorMetadata, Key, Mirror, Provider, Refusal, assemble,
};

/// What opening a mirror asks for besides the devices.
pub struct MirrorRequest {
    /// Start without components that have not been given.
    pub run_degraded: bool,
    /// The name that each label may be bound to is not compared.
    pub ignores_names: bool,
    /// Settings of the volume.
    pub volume: VolumeOptions,
    /// How reads are spread, instead of what the labels say.
    pub balance: Option<Policy>,
    /// Name instead of the one in the labels.
    pub name: Option<String>,
}

/// Puts a mirror together from devices; those that are not used are dropped. Also gives what was assembled: the mirror,
/// and who is not used and why.
///
/// # Errors
/// `ForeignError`; nothing was written.
pub async fn open_mirror<D: Device, C: Clock>(
    devices: Vec<(String, D)>,
    clock: C,
    pool: BufPool,
    request: MirrorRequest,
) -> Result<(Volume<D, C>, Assembled), ForeignError> {
    let mut providers = Vec::new();
    for (index, (name, device)) in devices.iter().enumerate() {
        let (mut label, sector_bytes) =
            last_sector(device, &pool, index, MirrorLabel::parse).await?;
        if request.ignores_names {
            label.provider = String::new();
        }
        providers.push(Provider {
            key: Key(index),
            name: provider_name(name, &label.provider).to_owned(),
            size_bytes: device.info().size_bytes,
            sector_bytes,
            label,
        });
    }
    let mut assembled = assemble(providers);
    let may_start = request.run_degraded || request.volume.is_read_only;
    let waits = assembled
        .mirror
        .as_ref()
        .is_some_and(|mirror| !mirror.is_running);
    if waits && !may_start {
        return Err(ForeignError::Degraded(degraded_text(&assembled, &devices)));
    }
    if waits {
        assembled.start_degraded();
    }
    let Some(mirror) = assembled.mirror.clone() else {
        return Err(unfit(&assembled, &devices));
    };
    let parts = parts(devices, clock, pool, request, &mirror, &assembled)?;
    Ok((Volume::new(parts), assembled))
}

/// How many are here; and of those that were given and do not count, why.
fn degraded_text<D>(assembled: &Assembled, devices: &[(String, D)]) -> String {
    let Some(mirror) = &assembled.mirror else {
        return String::new();
    };
    let mut text = format!(
        "{}: {} of {} components are here",
        mirror.name,
        mirror.components.len(),
        mirror.component_count
    );
    for (key, reason) in &assembled.refused {
        text.push_str(&format!("; {} does not count: {reason}", devices[key.0].0));
    }
    text
}

fn unfit<D>(assembled: &Assembled, devices: &[(String, D)]) -> ForeignError {
    match assembled.refused.first() {
        Some((key, reason)) => {
            let text = format!("{}: {reason}", devices[key.0].0);
            match reason {
                Refusal::OtherProvider { .. } => ForeignError::Bound(key.0, text),
                _ => ForeignError::Unfit(Some(key.0), text),
            }
        }
        None => ForeignError::Missing("no complete component is here".to_owned()),
    }
}

fn parts<D: Device, C: Clock>(
    devices: Vec<(String, D)>,
    clock: C,
    pool: BufPool,
    request: MirrorRequest,
    mirror: &Mirror,
    assembled: &Assembled,
) -> Result<VolumeParts<D, C>, ForeignError> {
    let bad = |text: String| ForeignError::Unfit(None, text);
    let slots = usize::from(mirror.component_count).max(mirror.components.len());
    let geometry = Geometry::new(&GeometrySpec {
        organisation: Organisation::Raid1,
        member_count: u16::try_from(slots).map_err(|_| bad("too many components".into()))?,
        strip_bytes: 0,
        component_bytes: mirror.volume_bytes,
        member_sizes_bytes: Vec::new(),
    })
    .map_err(|error| bad(error.to_string()))?;
    let mut devices: Vec<Option<(String, D)>> = devices.into_iter().map(Some).collect();
    let (mut members, mut keys) = (Vec::new(), Vec::new());
    let mut sector_bytes = 512;
    for (slot, component) in (0_u16..).zip(&mirror.components) {
        let Some(standing) = standing_of(component) else {
            continue;
        };
        let taken = devices.get_mut(component.key.0).and_then(Option::take);
        let (name, device) = taken.expect("a component is one of the devices, once");
        sector_bytes = sector_bytes.max(device.info().sector_bytes);
        keys.push((component.key, standing));
        members.push(DrivePart {
            name,
            device: Some(device),
            record: MemberRecord {
                slot: Some(slot),
                standing,
                is_replacement: false,
                is_write_mostly: false,
            },
            data: 0..mirror.volume_bytes,
            bad: RangeSet::new(),
        });
    }
    let mut options = request.volume;
    options.balance = request.balance.unwrap_or(policy_of(mirror));
    let metadata = GmirrorMetadata::new(mirror.clone(), assembled.effects.clone(), &keys)
        .with_bug(options.bug);
    Ok(VolumeParts {
        name: request.name.unwrap_or_else(|| mirror.name.clone()),
        regions: Regions::without_bitmap(&geometry, sector_bytes, None),
        geometry,
        clock,
        pool,
        members,
        metadata: Box::new(metadata),
        event_count: 0,
        is_uneven: false,
        log: None,
        resync_start_bytes: None,
        options,
    })
}

/// Stale components wait for the operator: they are no members.
fn standing_of(component: &Component) -> Option<Standing> {
    match component.state {
        ComponentState::Active => Some(Standing::Active),
        ComponentState::Synchronizing => Some(Standing::Rebuilding {
            valid_below_bytes: component.label.sync_offset_bytes,
            by_bitmap: false,
        }),
        ComponentState::New | ComponentState::Stale => None,
    }
}

/// The engine's policy for what the labels say; "none" would never answer a read upstream.
#[must_use]
pub fn policy_of(mirror: &Mirror) -> Policy {
    match mirror.balance {
        Balance::None | Balance::RoundRobin => Policy::RoundRobin,
        Balance::Load => Policy::Load,
        Balance::Prefer => Policy::Prefer,
        Balance::Split => Policy::Split {
            slice_bytes: u64::from(mirror.slice_bytes),
        },
    }
}
