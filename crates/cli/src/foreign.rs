//! FreeBSD's formats on the command line: making volumes, and telling how members fit together.

use plexum_daemon::advice::shell_word;
use plexum_daemon::changes::Reverse;
use plexum_daemon::create::this_host;
use plexum_daemon::examine::Examination;
use plexum_daemon::foreign::Kind;
use plexum_daemon::foreign::create::{ForeignCreation, LabelRequest, MirrorOptions};
use plexum_daemon::foreign::offline::{Found, Judged, judge};
use plexum_daemon::inspect::inspect;
use plexum_daemon::open::{AnyDevice, MemberWord, check_writers};
use plexum_daemon::owners::{Choice, judge as judge_owners, rivals, survey_word};
use plexum_daemon::problem::{Code, Problem};
use plexum_format::gmirror::Balance;
use plexum_freebsd::gvinum::{SHORTCUT_STRIP_BYTES, Shortcut};
use plexum_layout::Level;
use plexum_runtime::file::{Access, OpenOptions};
use serde_json::json;

use crate::args::{Common, Create};
use crate::errors::Outcome;
use crate::history::{noted, tell, tell_undo};
use crate::offline::runtime;
use crate::output::{Screen, object, table};
use crate::plan::{Force, Found as Destroyed, Plan, Verdict, check_size};
use crate::units::show_bytes;
use crate::verdict::{SetVerdict, show_start};
use crate::words::Words;

fn usage(text: impl Into<String>) -> Problem {
    Problem::new(Code::Usage, text)
}

/// What is to be made.
pub enum CreateRequest {
    /// Labels of gmirror, gstripe or gconcat.
    Labels(LabelRequest),
    /// A system of Vinum drives: the text, and how messages call it.
    System(Vec<u8>, String),
}

/// What `create` asks for, when it is one of FreeBSD's formats.
///
/// # Errors
/// `Usage` for what does not go together, `NoSuchFile` for a text that is not there.
pub fn create_request(args: &Create) -> Result<Option<CreateRequest>, Problem> {
    if let Some(path) = &args.config {
        let shown = path.display().to_string();
        let text =
            std::fs::read(path).map_err(|error| Problem::from_io(&error, "reading", &shown))?;
        return Ok(Some(CreateRequest::System(text, shown)));
    }
    let kind = match args.format.as_str() {
        "gmirror" => Kind::Gmirror,
        "gstripe" => Kind::Gstripe,
        "gconcat" => Kind::Gconcat,
        "gvinum" | "vinum" => Kind::Gvinum,
        _ => return Ok(None),
    };
    let level: Level = args
        .level
        .as_deref()
        .unwrap_or_default()
        .parse()
        .map_err(|error: plexum_layout::GeometryError| usage(error.to_string()))?;
    let name = args.name.clone().unwrap_or_default();
    if kind == Kind::Gvinum {
        let text = shortcut(args, level)?
            .script(&name, &args.members, 0)
            .map_err(usage)?;
        return Ok(Some(CreateRequest::System(
            text.into_bytes(),
            "the shortcut".into(),
        )));
    }
    let expected = match kind {
        Kind::Gmirror => Level::Raid1,
        Kind::Gstripe => Level::Raid0,
        _ => Level::Linear,
    };
    if level != expected {
        let format = kind.name();
        return Err(
            usage(format!("{format} is {expected}, not {level}")).hint(format!(
                "plexum create {name} --level {expected} --format {format} ..."
            )),
        );
    }
    if !args.spare.is_empty() {
        return Err(usage(format!("{} has no spares", kind.name())));
    }
    Ok(Some(CreateRequest::Labels(LabelRequest {
        kind,
        name,
        members: args.members.clone(),
        member_size_bytes: args.member_size,
        strip_bytes: args.strip,
        balance: label_balance(args.balance.as_deref().unwrap_or("load"))?,
        is_assume_clean: args.assume_clean,
        mirror: MirrorOptions::default(),
    })))
}

/// gmirror's policies by their words.
///
/// # Errors
/// `Usage` for another word.
pub fn label_balance(word: &str) -> Result<Balance, Problem> {
    Ok(match word {
        "load" => Balance::Load,
        "prefer" => Balance::Prefer,
        "round-robin" => Balance::RoundRobin,
        "split" => Balance::Split,
        _ => {
            let text = format!("{word} is no balance that gmirror records");
            return Err(usage(text).hint("these are:   load prefer round-robin split"));
        }
    })
}

fn shortcut(args: &Create, level: Level) -> Result<Shortcut, Problem> {
    let strip_bytes = args.strip.unwrap_or(SHORTCUT_STRIP_BYTES);
    Ok(match level {
        Level::Linear => Shortcut::Concat,
        Level::Raid0 => Shortcut::Stripe { strip_bytes },
        Level::Raid5 => Shortcut::Raid5 { strip_bytes },
        Level::Raid1 => Shortcut::Mirror,
        Level::Raid10 => Shortcut::StripedMirror { strip_bytes },
        _ => {
            return Err(usage(format!("gvinum has no {level}"))
                .hint("it has:   linear 0 1 5 10, and more with a text:   plexum create -f FILE"));
        }
    })
}

/// Plans, asks, writes.
///
/// # Errors
/// As `ForeignCreation`.
pub fn create(request: &CreateRequest, args: &Create, common: &Common, screen: &Screen) -> Outcome {
    let mut runtime = runtime()?;
    let handle = runtime.handle();
    if common.dry_run {
        handle.rehearse();
    }
    let access = Access::ReadWrite;
    let creation = match request {
        CreateRequest::Labels(labels) => {
            runtime.block_on(ForeignCreation::labels(&handle, labels, access))?
        }
        CreateRequest::System(text, path) => {
            let host = args.homehost.clone().unwrap_or_else(this_host);
            let making =
                ForeignCreation::system(&handle, text, path, args.member_size, &host, access);
            runtime.block_on(making)?
        }
    };
    if let [volume] = creation.volumes.as_slice() {
        check_size(args, volume.size_bytes)?;
    }
    let plan = plan(&creation);
    if !screen.is_json {
        for note in &creation.notes {
            screen.note(note);
        }
    }
    if plan.confirm(common, args.force.into(), screen)? == Verdict::OnlyShown {
        return Ok(0);
    }
    let report = object("created", Some(&plan.volume), plan.details.clone());
    let words: Vec<String> = creation
        .members
        .iter()
        .map(|member| member.member.clone())
        .collect();
    let volumes = creation.volumes.clone();
    let format = creation.kind.name();
    let has_overwritten = creation
        .members
        .iter()
        .any(|member| !member.found.is_empty());
    let noted = noted(common, Reverse::Allowed);
    let written = runtime.block_on(creation.carry_out(&handle, noted.as_ref()))?;
    screen.object(&report);
    for volume in volumes {
        let size = show_bytes(volume.size_bytes);
        screen.done(format!(
            "{}: {} {format}, {size}",
            volume.name, volume.level
        ));
    }
    screen.done(format!(
        "to serve it:   plexum serve --write {}",
        words.join(" ")
    ));
    tell(&written, screen);
    if has_overwritten {
        tell_undo(&written, screen);
    }
    Ok(0)
}

fn plan(creation: &ForeignCreation) -> Plan {
    let names: Vec<&str> = creation
        .volumes
        .iter()
        .map(|volume| volume.name.as_str())
        .collect();
    let format = creation.kind.name();
    let mut lines: Vec<String> = creation
        .volumes
        .iter()
        .map(|volume| {
            let size = show_bytes(volume.size_bytes);
            format!("create {}: {}, {format}, {size}", volume.name, volume.level)
        })
        .collect();
    let mut rows = vec![
        ["MEMBER", "SIZE", "WHAT IS DONE"]
            .map(str::to_owned)
            .to_vec(),
    ];
    for member in &creation.members {
        let what = if member.is_new {
            "made, labelled"
        } else {
            "labelled"
        };
        rows.push(vec![
            member.member.clone(),
            show_bytes(member.size_bytes),
            what.to_owned(),
        ]);
    }
    lines.extend(table(&rows).into_iter().map(|line| format!("  {line}")));
    let destroys = creation.members.iter().flat_map(|member| {
        member.found.iter().map(|found| Destroyed {
            member: member.member.clone(),
            what: found.what.clone(),
        })
    });
    let volumes = creation.volumes.iter().map(|volume| {
        json!({"volume": volume.name, "level": volume.level, "size_bytes": volume.size_bytes})
    });
    let members = creation.members.iter().map(|member| {
        json!({"member": member.member, "size_bytes": member.size_bytes, "is_new": member.is_new})
    });
    Plan {
        command: "create",
        volume: names.join(" "),
        lines,
        details: json!({
            "format": format,
            "volumes": volumes.collect::<Vec<_>>(),
            "members": members.collect::<Vec<_>>(),
        }),
        destroys: destroys.collect(),
    }
}

/// What is asked about members that become ones of a mirror or a system that is there.
pub struct NewMember<'a> {
    force: Force,
    common: &'a Common,
    screen: &'a Screen,
}

impl<'a> NewMember<'a> {
    /// As the words of the command say; `-f` overwrites what is found.
    pub fn of(words: &Words, common: &'a Common, screen: &'a Screen) -> Self {
        Self {
            force: words.has('f').into(),
            common,
            screen,
        }
    }

    /// Looks for all that `create` looks for, and asks as it does. Nothing is written.
    ///
    /// # Errors
    /// Of opening; `Busy`; `WouldDestroy`, `NotConfirmed`.
    pub fn check(&self, command: &'static str, member: &str) -> Result<(), Problem> {
        let mut runtime = runtime()?;
        let handle = runtime.handle();
        handle.rehearse();
        let found = runtime.block_on(async {
            let word = MemberWord::parse(member);
            let device = AnyDevice::open(&handle, &word, &OpenOptions::read_write()).await?;
            check_writers(&word, member)?;
            inspect(&device, member).await
        })?;
        let destroys = found.into_iter().map(|found| Destroyed {
            member: member.to_owned(),
            what: found.what,
        });
        let plan = Plan {
            command,
            volume: String::new(),
            lines: Vec::new(),
            details: json!({}),
            destroys: destroys.collect(),
        };
        if plan.destroys.is_empty() {
            return Ok(());
        }
        plan.confirm(self.common, self.force, self.screen).map(drop)
    }
}

/// Whether the bytes of members whose labels are written are those of one set alone; `--yes` says that it is known.
///
/// # Errors
/// `SeveralOwners`.
pub fn check_owners(members: &[String], common: &Common) -> Result<(), Problem> {
    for member in members.iter().filter(|_| !common.yes) {
        let Some(survey) = survey_word(member).filter(|survey| rivals(survey).len() > 1) else {
            continue;
        };
        judge_owners(member, &survey, Choice::Only).map_err(|mut problem| {
            problem.hints.retain(|hint| hint.contains("plexum examine"));
            problem.hint("to change this one all the same, add:   --yes")
        })?;
    }
    Ok(())
}

/// Members of FreeBSD's formats, judged.
pub struct ForeignSets {
    /// One entry a volume, with what `serve` is given for it: the members of its set.
    judged: Vec<(Judged, String)>,
    sets: usize,
    option: String,
}

impl ForeignSets {
    /// Judges them.
    #[must_use]
    pub fn of(examinations: &[Examination]) -> Self {
        let mut sets: Vec<(Vec<&Found>, Vec<String>)> = Vec::new();
        for one in examinations {
            let Some(found) = &one.foreign else { continue };
            let word = shell_word(&one.member);
            match sets.iter_mut().find(|(set, _)| found.fits(set)) {
                Some((set, words)) => {
                    set.push(found);
                    words.push(word);
                }
                None => sets.push((vec![found], vec![word])),
            }
        }
        let judged = sets.iter().flat_map(|(set, words)| {
            let words = words.join(" ");
            judge(set).into_iter().map(move |one| (one, words.clone()))
        });
        Self {
            judged: judged.collect(),
            sets: sets.len(),
            option: crate::disputed::format_option(examinations),
        }
    }

    /// A line for each volume.
    pub fn verdicts(&self) -> impl Iterator<Item = SetVerdict> {
        let of_one =
            |(one, words): &(Judged, String)| SetVerdict::of_judged(one, words, &self.option);
        self.judged.iter().map(of_one)
    }

    /// How they fit together; the exit code.
    #[must_use]
    pub fn show(&self, screen: &Screen) -> u8 {
        for ((judged, words), verdict) in self.judged.iter().zip(self.verdicts()) {
            show_judged(judged, &verdict, words, &self.option, screen);
        }
        match self.sets {
            0 | 1 => 0,
            _ => Code::ForeignMember.exit(),
        }
    }
}

fn show_judged(judged: &Judged, verdict: &SetVerdict, words: &str, option: &str, screen: &Screen) {
    let size = show_bytes(judged.size_bytes);
    let (level, state) = (&judged.level, &judged.state);
    screen.line("");
    screen.line(format!(
        "{}: {level}, {}, {size}, {state}",
        judged.name,
        judged.kind.name()
    ));
    let rows: Vec<Vec<String>> = judged.rows.iter().map(|row| row.to_vec()).collect();
    for line in table(&rows) {
        screen.line(format!("  {line}"));
    }
    let set = object(
        "set",
        Some(&judged.name),
        json!({
            "can_start": judged.problem.is_none(), "format": judged.kind.name(),
            "level": level, "state": state, "size_bytes": judged.size_bytes,
            "problem": judged.problem.as_ref().map(|problem| problem.to_json()["error"].clone()),
        }),
    );
    screen.object(&verdict.put_into(set));
    let command = format!("plexum serve {words}{option}");
    show_start(judged.problem.as_ref(), &command, screen);
}
