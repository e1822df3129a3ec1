//! `plexum pool create` and `plexum pool create-volume`.

use plexum_daemon::changes::Reverse;
use plexum_daemon::pool_change::PoolChange;
use plexum_daemon::pool_write::{PoolCreation, PoolRequest, open_writable, wall_seconds};
use plexum_daemon::problem::Problem;
use plexum_pool::{Foreign, GroupKind};
use plexum_runtime::file::Access;
use serde_json::{Value, json};

use super::args::{Create, CreateVolume};
use super::whose::Whose;
use crate::args::Common;
use crate::errors::Outcome;
use crate::history::{keep, noted};
use crate::offline::runtime;
use crate::output::{Screen, object, table};
use crate::plan::{Found, Plan, Verdict};
use crate::units::show_bytes;

/// Blocks that a plan shows.
const SHOWN_BLOCKS: [u64; 6] = [4 << 10, 8 << 10, 16 << 10, 32 << 10, 64 << 10, 128 << 10];

/// The kind that a word begins a group of.
fn kind_of(word: &str) -> Option<GroupKind> {
    let kind = plexum_daemon::pool_change::kind_of(word).ok();
    kind.filter(|kind| *kind != GroupKind::Single)
}

/// Groups by their words.
pub(super) fn groups(words: &[String]) -> Vec<(GroupKind, Vec<String>)> {
    let mut groups: Vec<(GroupKind, Vec<String>)> = Vec::new();
    for word in words {
        match (kind_of(word), groups.last_mut()) {
            (Some(kind), _) => groups.push((kind, Vec::new())),
            (None, Some((kind, members))) if *kind != GroupKind::Single => {
                members.push(word.clone())
            }
            (None, _) => groups.push((GroupKind::Single, vec![word.clone()])),
        }
    }
    groups
}

/// Runs `pool create`.
///
/// # Errors
/// `Usage`, and everything that `PoolCreation` refuses.
pub fn create(args: &Create, common: &Common, screen: &Screen) -> Outcome {
    let request = PoolRequest {
        name: args.name.clone(),
        groups: groups(&args.groups),
        member_size_bytes: args.member_size,
        sector_bytes: args.sector,
    };
    let mut runtime = runtime()?;
    let handle = runtime.handle();
    if common.dry_run {
        handle.rehearse();
    }
    let creation = runtime.block_on(PoolCreation::prepare(&handle, &request, Access::ReadWrite))?;
    let plan = plan(&creation);
    if plan.confirm(common, args.force.into(), screen)? == Verdict::OnlyShown {
        return Ok(0);
    }
    let report = object("created", Some(&creation.name), plan.details.clone());
    let words: Vec<String> = creation
        .members()
        .map(|member| member.member.clone())
        .collect();
    let (name, words) = (creation.name.clone(), words.join(" "));
    runtime.block_on(creation.carry_out(&handle))?;
    keep(noted(common, Reverse::Refused), screen);
    screen.object(&report);
    screen.done(format!(
        "{name}: ZFS pool of {} members",
        args.groups.len() - words_of_kinds(&args.groups)
    ));
    screen.done(format!(
        "to make a volume in it:   plexum pool create-volume {name}/vol 1G {words}"
    ));
    Ok(0)
}

fn words_of_kinds(words: &[String]) -> usize {
    words.iter().filter(|word| kind_of(word).is_some()).count()
}

fn plan(creation: &PoolCreation) -> Plan {
    let name = &creation.name;
    let mut lines = vec![format!(
        "create {name}: ZFS pool, sectors of {}",
        show_bytes(1 << creation.ashift)
    )];
    let mut rows = vec![
        ["GROUP", "MEMBER", "SIZE", "WHAT IS DONE"]
            .map(str::to_owned)
            .to_vec(),
    ];
    for (n, group) in creation.groups.iter().enumerate() {
        for member in &group.members {
            let done = if member.is_new {
                "made, labelled"
            } else {
                "labelled"
            };
            rows.push(vec![
                format!("{n} {}", group.kind.plex_kind()),
                member.member.clone(),
                show_bytes(member.size_bytes),
                done.to_owned(),
            ]);
        }
    }
    lines.extend(table(&rows).into_iter().map(|line| format!("  {line}")));
    for (n, group) in creation.groups.iter().enumerate() {
        lines.push(format!("what blocks of a volume cost in group {n}:"));
        let shape = (group.kind, group.members.len(), 1_u64 << creation.ashift);
        lines.extend(costs(shape).into_iter().map(|line| format!("  {line}")));
    }
    let destroys = creation.members().flat_map(|member| {
        member.found.iter().map(|found| Found {
            member: member.member.clone(),
            what: found.what.clone(),
        })
    });
    let groups = creation.groups.iter().map(|group| {
        let members = group.members.iter().map(|member| {
            json!({"member": member.member, "size_bytes": member.size_bytes, "is_new": member.is_new})
        });
        json!({"group_kind": group.kind.plex_kind().to_string(), "size_bytes": group.size_bytes,
            "members": members.collect::<Vec<_>>()})
    });
    Plan {
        command: "pool create",
        volume: name.clone(),
        lines,
        details: json!({"format": "zfs", "sector_bytes": 1_u64 << creation.ashift,
            "groups": groups.collect::<Vec<_>>()}),
        destroys: destroys.collect(),
    }
}

/// Kind, members and sector of a group.
type Shape = (GroupKind, usize, u64);

/// Sectors of data, and all sectors with parity and padding, that a block takes in a group.
fn sectors((kind, members, sector): Shape, block_bytes: u64) -> (u64, u64) {
    let data = block_bytes.div_ceil(sector);
    match kind {
        GroupKind::Single => (data, data),
        GroupKind::Mirror => (data, data * members as u64),
        GroupKind::RaidZ(parities) => {
            let parities = u64::from(parities);
            let rows = data.div_ceil((members as u64).saturating_sub(parities).max(1));
            (
                data,
                (data + rows * parities).next_multiple_of(parities + 1),
            )
        }
    }
}

/// A table of what blocks of different sizes cost.
fn costs(shape: Shape) -> Vec<String> {
    let mut rows = vec![
        ["BLOCK", "SPACE", "MEMBERS READ", "WRITTEN FOR 4K"]
            .map(str::to_owned)
            .to_vec(),
    ];
    let (kind, members, sector) = shape;
    for block in SHOWN_BLOCKS.into_iter().filter(|block| *block >= sector) {
        let (data, all) = sectors(shape, block);
        let reads = match kind {
            GroupKind::RaidZ(parities) => data.min(members as u64 - u64::from(parities)),
            _ => 1,
        };
        let written = all * sector * 10 / (4 << 10);
        rows.push(vec![
            show_bytes(block),
            format!("{}.{:02} x", all / data, all % data * 100 / data),
            reads.to_string(),
            format!("{}.{} x", written / 10, written % 10),
        ]);
    }
    table(&rows)
}

/// Runs `pool create-volume`.
///
/// # Errors
/// Of opening the pool; why the volume cannot be made.
pub fn create_volume(args: &CreateVolume, common: &Common, screen: &Screen) -> Outcome {
    let change = PoolChange::CreateVolume {
        name: args.name.clone(),
        size_bytes: args.size,
        block_bytes: args.block,
    };
    let whose = Whose::find(&args.members, Some(&args.name))?;
    let (made, shape) = match &whose {
        Whose::Server(served) if common.dry_run => (served.rehearse(&change)?, None),
        Whose::Server(served) => (served.change(&change, common.why.as_deref())?, None),
        Whose::Nobody(members) => make_volume(members, args, &change, common)?,
    };
    let block_bytes = made["block_bytes"].as_u64().unwrap_or(0);
    let (name, size) = (&args.name, show_bytes(args.size));
    let details = json!({"format": "zfs", "size_bytes": args.size, "block_bytes": block_bytes});
    let block = show_bytes(block_bytes);
    if common.dry_run {
        screen.line(format!(
            "create {name}: volume of {size}, blocks of {block}"
        ));
        let costs = shape.map(costs).unwrap_or_default();
        costs
            .iter()
            .for_each(|line| screen.line(format!("  {line}")));
        let mut plan = object("plan", Some(name), details);
        plan["command"] = "pool create-volume".into();
        screen.object(&plan);
        return Ok(0);
    }
    if let Whose::Nobody(_) = whose {
        keep(noted(common, Reverse::Refused), screen);
    }
    screen.object(&object("created", Some(name), details));
    screen.done(format!("{name}: volume of {size}, blocks of {block}"));
    screen.done(
        format!(
            "to serve it:   plexum serve --write --dataset {name} {}",
            args.members.join(" ")
        )
        .trim_end(),
    );
    Ok(0)
}

/// Makes the volume, or in a dry run looks whether it could be; with what blocks of it cost.
fn make_volume(
    members: &[String],
    args: &CreateVolume,
    change: &PoolChange,
    common: &Common,
) -> Result<(Value, Option<Shape>), Problem> {
    let mut runtime = runtime()?;
    let handle = runtime.handle();
    if common.dry_run {
        handle.rehearse();
    }
    let foreign = match args.force {
        true => Foreign::Taken,
        false => Foreign::Refused,
    };
    runtime.block_on(async {
        let mut pool = open_writable(&handle, members, foreign, args.trust.into()).await?;
        let shape = Some(pool.first_group());
        if common.dry_run {
            return Ok((change.rehearse(&handle, &mut pool).await?, shape));
        }
        let (made, _) = change.carry_out(&handle, &mut pool).await?;
        pool.export(wall_seconds()?).await?;
        Ok((made, shape))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(text: &str) -> Vec<String> {
        text.split(' ').map(str::to_owned).collect()
    }

    #[test]
    fn groups_begin_with_their_word_and_members_before_one_stand_alone() {
        let found = groups(&words("a b mirror c d raidz2 e f g"));
        let expected = [
            (GroupKind::Single, words("a")),
            (GroupKind::Single, words("b")),
            (GroupKind::Mirror, words("c d")),
            (GroupKind::RaidZ(2), words("e f g")),
        ];
        assert_eq!(found, expected);
    }

    #[test]
    fn what_blocks_cost_is_what_the_tables_say() {
        let raidz2 = (GroupKind::RaidZ(2), 8, 4096);
        assert_eq!(sectors(raidz2, 4 << 10), (1, 3));
        assert_eq!(sectors(raidz2, 16 << 10), (4, 6));
        assert_eq!(sectors(raidz2, 128 << 10), (32, 45));
        assert_eq!(sectors((GroupKind::Mirror, 2, 512), 4 << 10), (8, 16));
        assert_eq!(costs(raidz2).len(), 7);
    }
}
