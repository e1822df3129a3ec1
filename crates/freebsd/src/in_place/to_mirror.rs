//! A mirror of md becomes one of gmirror.

use plexum_format::SECTOR_BYTES;
use plexum_format::gmirror::{Balance, MirrorLabel, NewMirrorLabel};
use plexum_format::md::Superblock;

use plexum_engine::metadata::MetadataWrite;
use plexum_layout::Organisation;

use super::{InPlace, Seen, md_erasure, md_name, short};

/// Plans to make a gmirror of the members of a Linux RAID-1.
///
/// # Errors
/// A sentence: why it cannot stay in place.
pub fn to_mirror(seen: &[Seen]) -> Result<InPlace, String> {
    if let Some(rest) = unfinished_to_mirror(seen) {
        return Ok(rest);
    }
    let members: Option<Vec<&Superblock>> = seen.iter().map(|seen| seen.md.as_ref()).collect();
    let members = members.filter(|members| !members.is_empty());
    let members = members.ok_or("a member carries no md superblock")?;
    let first = members[0];
    let name = md_name(first);
    let volume_bytes = first.component_sectors * SECTOR_BYTES;
    if members.len() != first.member_count as usize {
        let due = first.member_count;
        return Err(format!("{} of {due} members are here", members.len()));
    }
    let mut make = Vec::new();
    for (index, (member, md)) in seen.iter().zip(&members).enumerate() {
        check_md(member, md, first)?;
        let Some(slot) = md.role().slot() else {
            return Err(format!("{} is a spare or failed", member.name));
        };
        let label = MirrorLabel::create(&NewMirrorLabel {
            name,
            mirror_id: short(&(first.array_uuid, "mirror")),
            component_id: short(&(first.array_uuid, slot.0)),
            component_count: u8::try_from(members.len()).map_err(|_| "too many members")?,
            priority: u8::try_from(slot.0).unwrap_or(u8::MAX),
            slice_bytes: 4096,
            balance: Balance::Load,
            volume_bytes,
            sector_bytes: 512,
            provider_bytes: member.size_bytes,
        });
        let label = label.map_err(|error| format!("{}: {error}", member.name))?;
        if let Some((found, _)) = &member.mirror
            && found.encode() != label.encode()
        {
            return Err(format!(
                "{} carries a label of another gmirror, or one that was used since",
                member.name
            ));
        }
        let bytes = label.encode().to_vec();
        let at_bytes = member.size_bytes - 512;
        make.push((index, MetadataWrite { at_bytes, bytes }));
    }
    Ok(InPlace {
        name: name.to_owned(),
        from: format!("raid1, md-{}", first.version),
        to: "gmirror".into(),
        volume_bytes,
        make,
        erase: seen.iter().enumerate().filter_map(md_erasure).collect(),
    })
}

fn unfinished_to_mirror(seen: &[Seen]) -> Option<InPlace> {
    let (first, _) = seen.first()?.mirror.as_ref()?;
    let md = seen.iter().find_map(|seen| seen.md.as_ref());
    let all = seen.iter().all(|seen| {
        let label = seen.mirror.as_ref().map(|(label, _)| label.mirror_id);
        label == Some(first.mirror_id)
    });
    let is_own = md.is_none_or(|md| first.mirror_id == short(&(md.array_uuid, "mirror")));
    let some_erased = seen.iter().any(|seen| seen.md.is_none());
    if !all || !is_own || !some_erased || usize::from(first.component_count) != seen.len() {
        return None;
    }
    Some(InPlace {
        name: first.name.clone(),
        from: "what is left of it".into(),
        to: "gmirror".into(),
        volume_bytes: 0,
        make: Vec::new(),
        erase: seen.iter().enumerate().filter_map(md_erasure).collect(),
    })
}

/// Whether a member of an md array can be a component of a gmirror as it is.
fn check_md(member: &Seen, md: &Superblock, first: &Superblock) -> Result<(), String> {
    let name = &member.name;
    let reason = if md.array_uuid != first.array_uuid {
        "it belongs to another array".to_owned()
    } else if md.level != Organisation::Raid1.md_level() {
        format!("the array is of level {}, not a mirror", md.level)
    } else if md.data_offset_sectors != 0 {
        let at = md.data_offset_sectors * SECTOR_BYTES;
        format!("its data begin at byte {at}; those of a gmirror begin at byte 0")
    } else if md.events != first.events || md.rebuild_offset_sectors.is_some() {
        "it is not in sync".to_owned()
    } else if !md.is_clean() {
        "it was not stopped cleanly, or its resync has not ended".to_owned()
    } else if md.reshape.is_some() || md.is_replacement || md.has_bad_blocks {
        "it is being reshaped or replaced, or has bad blocks".to_owned()
    } else if md.bitmap_sector() > Some(md.super_offset_sectors) {
        "its bitmap may reach into the last sector; turn it off first: plexum set VOLUME bitmap=none".to_owned()
    } else if md.bad_block_log_sector() > Some(md.super_offset_sectors) {
        "its list of bad blocks may reach into the last sector".to_owned()
    } else {
        return Ok(());
    };
    Err(format!("{name}: {reason}"))
}
