//! A job: one array's share of a guest's time, as member files and a script.

use std::path::{Path, PathBuf};

/// What the content of an array should be.
#[derive(Clone, Debug, PartialEq)]
pub enum Expected {
    /// Nothing is expected of it.
    Anything,
    /// The pattern of this seed, over the whole array.
    Seed(u64),
    /// Content with this SHA-256, lower-case hexadecimal.
    Sha256(String),
}

/// How a created array is left.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ending {
    /// Stopped cleanly.
    Stop,
    /// Power cut of the whole guest, once all jobs of the guest are through. See [`Job::crash_at_end`].
    Crash,
}

/// What to look at when an array is judged.
#[derive(Clone, Debug)]
pub struct Judge {
    /// The content it should have.
    pub expected: Expected,
    /// Each set of members (positions in the list of files) to leave out in turn; the empty set is the whole array.
    pub without: Vec<Vec<usize>>,
    /// Whether the kernel's `check` runs afterwards, on all members, and must find nothing.
    pub scrub: bool,
    /// Whether `mdadm -E` must show a clean array and `mdadm -X` an empty bitmap before anything else.
    /// The kernel would otherwise resync first and hide faults.
    pub clean: bool,
}

impl Judge {
    /// Reads the whole array, looks at its metadata, checks it.
    #[must_use]
    pub fn new(expected: Expected) -> Judge {
        Judge {
            expected,
            without: vec![Vec::new()],
            scrub: true,
            clean: true,
        }
    }
}

/// Every set of members that may be missing, the empty one first: those of `0..members` for which `is_survivable` says
/// so.
///
/// For [`Judge::without`]. A wrong order of Q, for instance, passes with single members missing and fails with two.
///
/// # Panics
/// With more than 16 members, which no guest takes.
#[must_use]
pub fn survivable_losses(
    members: usize,
    is_survivable: impl Fn(&[usize]) -> bool,
) -> Vec<Vec<usize>> {
    assert!(members <= 16, "a guest takes 16 members");
    let sets = (0..1_u32 << members).map(|set| {
        let is_in = |member: &usize| set >> member & 1 == 1;
        (0..members).filter(is_in).collect::<Vec<_>>()
    });
    let mut sets: Vec<_> = sets.filter(|set| is_survivable(set)).collect();
    sets.sort_by_key(Vec::len);
    sets
}

/// An array for the kernel to create.
#[derive(Clone, Debug)]
pub struct Create {
    /// Level in mdadm's words: `1`, `raid6`, `linear`, ...
    pub level: String,
    /// Further options of `mdadm --create`, such as `--layout=n2`, `--chunk=64`, `--bitmap=internal`, `--metadata=1.0`.
    /// Metadata is 1.2 unless they say otherwise.
    pub options: Vec<String>,
    /// How many of the last members are spares.
    pub spares: usize,
    /// Seed of the pattern to fill it with; `None` leaves it as it is.
    pub seed: Option<u64>,
    /// Script that runs on the running array after the first resync and the fill.
    pub then: String,
    /// How it is left.
    pub ending: Ending,
}

impl Create {
    /// An array of `level` with mdadm's defaults, filled with the pattern of `seed`, stopped.
    #[must_use]
    pub fn new(level: &str, options: &[&str], seed: u64) -> Create {
        Create {
            level: level.to_owned(),
            options: options.iter().map(|&option| option.to_owned()).collect(),
            spares: 0,
            seed: Some(seed),
            then: String::new(),
            ending: Ending::Stop,
        }
    }
}

/// One array's share of a guest run.
#[derive(Clone, Debug)]
pub struct Job {
    pub(crate) name: String,
    pub(crate) members: Vec<PathBuf>,
    pub(crate) script: String,
    pub(crate) works_on_copies: bool,
    pub(crate) ending: Ending,
    pub(crate) seeds: Vec<u64>,
    pub(crate) judge: Option<Judge>,
    pub(crate) seconds: u64,
}

impl Job {
    /// Runs a bash script on the members, in place. `src/job.sh` has its functions (`start`, `stop`, `fill`,
    /// `put_content`, `scrub`, `examine`, `put`, ...), `oracle/README.md` those of md-oracle. The script's exit code is
    /// the report's.
    pub fn script(name: &str, members: &[impl AsRef<Path>], script: &str) -> Job {
        Job {
            name: name.to_owned(),
            members: members
                .iter()
                .map(|path| path.as_ref().to_owned())
                .collect(),
            script: script.to_owned(),
            works_on_copies: false,
            ending: Ending::Stop,
            seeds: Vec::new(),
            judge: None,
            seconds: 60,
        }
    }

    /// Judges what is on the members, on copies of them. [`Report::faults`](crate::Report::faults) says what is wrong.
    pub fn judge(name: &str, members: &[impl AsRef<Path>], judge: &Judge) -> Job {
        let mut script = String::from("examine\n");
        for (number, without) in judge.without.iter().enumerate() {
            let devices: Vec<String> = (0..members.len())
                .filter(|member| !without.contains(member))
                .map(|member| format!("$D{member}"))
                .collect();
            let devices = devices.join(" ");
            script.push_str(&format!(
                "if start --readonly {devices}; then put_content read.{number}; stop || exit 3; \
                 else put read.{number}.sha256 refused; stop; fi\n"
            ));
        }
        if judge.scrub {
            script.push_str(
                "start $DEVS || exit 3\nscrub || exit 3\nput_content after_scrub\nstop || exit 3\n",
            );
        }
        Job {
            works_on_copies: true,
            judge: Some(judge.clone()),
            seconds: 60 + 4 * judge.without.len() as u64,
            ..Job::script(name, members, &script)
        }
    }

    /// Lets the kernel create an array on the members, in place.
    pub fn create(name: &str, members: &[impl AsRef<Path>], create: &Create) -> Job {
        let disks = members.len().saturating_sub(create.spares);
        let mut arguments = vec![
            format!("--level={}", create.level),
            format!("--raid-devices={disks}"),
            "--homehost=any".to_owned(),
        ];
        if create.spares > 0 {
            arguments.push(format!("--spare-devices={}", create.spares));
        }
        if !create
            .options
            .iter()
            .any(|option| option.starts_with("--metadata"))
        {
            arguments.push("--metadata=1.2".to_owned());
        }
        arguments.extend(create.options.iter().cloned());
        let quoted: Vec<String> = arguments.iter().map(|argument| quote(argument)).collect();
        let mut script = format!(
            "mdadm --create \"$MD\" --run --force {} $DEVS </dev/null >>\"$OUT/mdadm\" 2>&1 || exit 3\nmd_wait \"$MD\" || exit 3\n",
            quoted.join(" ")
        );
        if let Some(seed) = create.seed {
            script.push_str(&format!("fill {seed} || exit 3\n"));
        }
        if !create.then.is_empty() {
            script.push_str(&format!(
                "then_() {{\n{}\n}}\nthen_ || exit $?\n",
                create.then
            ));
        }
        if create.ending == Ending::Stop {
            script.push_str("put_content made\nstop || exit 3\nexamine\n");
        }
        Job {
            ending: create.ending,
            seeds: create.seed.into_iter().collect(),
            seconds: 90,
            ..Job::script(name, members, &script)
        }
    }

    /// Leaves the array running and cuts the power of the whole guest at the end; jobs that end so run last in it.
    /// What the guest's kernel had not written to the members is lost.
    #[must_use]
    pub fn crash_at_end(mut self) -> Job {
        self.ending = Ending::Crash;
        self
    }

    /// Says that the script calls `fill` with these seeds.
    #[must_use]
    pub fn with_seeds(mut self, seeds: &[u64]) -> Job {
        self.seeds.extend_from_slice(seeds);
        self
    }

    /// Time this job may take on a busy machine, in seconds (60 by default, 90 for a creation).
    #[must_use]
    pub fn with_limit(mut self, seconds: u64) -> Job {
        self.seconds = seconds;
        self
    }

    /// Works on copies: the caller's files stay as they are.
    #[must_use]
    pub fn on_copies(mut self) -> Job {
        self.works_on_copies = true;
        self
    }
}

fn quote(argument: &str) -> String {
    format!("'{}'", argument.replace('\'', "'\\''"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_judge_leaves_out_the_members_it_was_told_to() {
        let judge = Judge {
            without: vec![vec![], vec![0, 2]],
            ..Judge::new(Expected::Anything)
        };
        let job = Job::judge("a", &["m0", "m1", "m2"], &judge);
        assert!(job.script.contains("start --readonly $D0 $D1 $D2;"));
        assert!(
            job.script
                .contains("start --readonly $D1; then put_content read.1")
        );
        assert!(job.works_on_copies);
    }

    #[test]
    fn losses_are_all_sets_that_are_survived() {
        let pairs = survivable_losses(4, |lost| lost.len() <= 2);
        assert_eq!(pairs.len(), 1 + 4 + 6);
        assert_eq!((&pairs[0][..], &pairs[10][..]), (&[][..], &[2, 3][..]));
        let mirrors = survivable_losses(4, |lost| {
            lost.len() <= 2 && lost != [0, 1] && lost != [2, 3]
        });
        assert_eq!(mirrors.len(), 1 + 4 + 4);
    }

    #[test]
    fn options_reach_mdadm_as_single_words() {
        let job = Job::create(
            "a",
            &["m0", "m1"],
            &Create::new("1", &["--name=it's me"], 1),
        );
        assert!(job.script.contains("'--name=it'\\''s me'"));
        assert!(job.script.contains("'--metadata=1.2'"));
        let old = Job::create("a", &["m0"], &Create::new("1", &["--metadata=0.90"], 1));
        assert!(!old.script.contains("1.2"));
    }
}
