//! Which files there are, and what is in them.

use std::ffi::OsString;
use std::fs::File;
use std::io::{self, ErrorKind, Read};
use std::path::{Path, PathBuf};

use super::ConfigProblem;

/// Largest file that is read, in bytes: nobody writes as much by hand.
const FILE_BYTES_MAX: u64 = 1 << 20;

/// What decides where the files are; read from the process in one place so that the choice can be tested.
#[derive(Clone, Debug, Default)]
pub struct Surroundings {
    /// `$XDG_CONFIG_HOME`, when set and not empty.
    pub xdg_config_home: Option<OsString>,
    /// `$HOME`, when set and not empty.
    pub home: Option<OsString>,
    /// Effective user number.
    pub user_id: u32,
}

impl Surroundings {
    /// Those of this process.
    #[must_use]
    pub fn of_this_process() -> Self {
        let set = |name| std::env::var_os(name).filter(|value| !value.is_empty());
        Self {
            xdg_config_home: set("XDG_CONFIG_HOME"),
            home: set("HOME"),
            user_id: crate::runtime_dir::Surroundings::of_this_process().user_id,
        }
    }
}

/// Whether the first file has to be there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Need {
    /// Without it everything is as usual.
    MayLack,
    /// Somebody has named it.
    Named,
}

/// The files of a configuration.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConfigFiles {
    main: Option<PathBuf>,
    need: Need,
}

impl ConfigFiles {
    /// Where they are: below `$XDG_CONFIG_HOME/plexum`, for root `/etc/plexum`, else `~/.config/plexum`.
    #[must_use]
    pub fn locate(from: &Surroundings) -> Self {
        let folder = match (&from.xdg_config_home, from.user_id, &from.home) {
            (Some(folder), _, _) => Some(Path::new(folder).join("plexum")),
            (None, 0, _) => Some(PathBuf::from("/etc/plexum")),
            (None, _, Some(home)) => Some(Path::new(home).join(".config/plexum")),
            (None, _, None) => None,
        };
        Self {
            main: folder.map(|folder| folder.join("plexum.toml")),
            need: Need::MayLack,
        }
    }

    /// This one, which has to be there, and those of `conf.d` beside it.
    #[must_use]
    pub fn named(main: PathBuf) -> Self {
        Self {
            main: Some(main),
            need: Need::Named,
        }
    }

    /// The first file; none for a user without a home.
    #[must_use]
    pub fn main(&self) -> Option<&Path> {
        self.main.as_deref()
    }

    /// All of them in their order, and of each that cannot be read, why.
    pub(super) fn texts(&self) -> (Vec<(PathBuf, String)>, Vec<ConfigProblem>) {
        let (mut texts, mut problems) = (Vec::new(), Vec::new());
        let Some(main) = &self.main else {
            return (texts, problems);
        };
        let folder = main.parent().unwrap_or(Path::new("/")).join("conf.d");
        let mut files = vec![main.clone()];
        match toml_files(&folder) {
            Ok(found) => files.extend(found),
            Err(error) => problems.push(problem(&folder, &error)),
        }
        for file in files {
            match read(&file) {
                Ok(text) => texts.push((file, text)),
                Err(error)
                    if error.kind() == ErrorKind::NotFound
                        && (self.need == Need::MayLack || file != *main) => {}
                Err(error) => problems.push(problem(&file, &error)),
            }
        }
        (texts, problems)
    }
}

/// Files of a folder that may not be there, by name.
fn toml_files(folder: &Path) -> io::Result<Vec<PathBuf>> {
    let entries = match std::fs::read_dir(folder) {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(Vec::new()),
        entries => entries?,
    };
    let paths = entries.map(|entry| Ok(entry?.path()));
    let paths: io::Result<Vec<PathBuf>> = paths.collect();
    let mut files = paths?;
    // What begins with a dot is an editor's.
    files.retain(|path| {
        let is_hidden = path
            .file_name()
            .is_some_and(|name| name.as_encoded_bytes().starts_with(b"."));
        !is_hidden && path.extension().is_some_and(|end| end == "toml")
    });
    files.sort();
    Ok(files)
}

fn read(file: &Path) -> io::Result<String> {
    let mut text = String::new();
    File::open(file)?
        .take(FILE_BYTES_MAX + 1)
        .read_to_string(&mut text)?;
    match text.len() as u64 > FILE_BYTES_MAX {
        true => Err(io::Error::other("larger than 1 MiB")),
        false => Ok(text),
    }
}

fn problem(path: &Path, error: &io::Error) -> ConfigProblem {
    ConfigProblem {
        file: path.to_owned(),
        line: None,
        reason: crate::problem::words_of(error),
    }
}
