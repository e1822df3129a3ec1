//! SnapRAID over folders, one file in each.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use super::{Array, Keeper, Made, Work, timed, write_noise};
use crate::BenchError;
use crate::process::{need_program, output};

struct Snapraid {
    program: PathBuf,
    configuration: PathBuf,
    lost: PathBuf,
}

pub(super) fn make(folder: &Path, array: Array) -> Made {
    let program = need_program("snapraid")?;
    let at = |name: &str| folder.join(name);
    let told = |error: std::io::Error| BenchError(format!("{}: {error}", folder.display()));
    let mut text = String::new();
    for (parity, word) in ["parity", "2-parity"]
        .iter()
        .enumerate()
        .take(array.parities)
    {
        let parity_folder = at(&format!("p{parity}"));
        std::fs::create_dir_all(&parity_folder).map_err(told)?;
        let _ = writeln!(text, "{word} {}/parity", parity_folder.display()); // a String takes everything
    }
    for data in 0..array.data_members {
        let data_folder = at(&format!("d{data}"));
        std::fs::create_dir_all(&data_folder).map_err(told)?;
        write_noise(&data_folder.join("file"), array.share_bytes())?;
        let _ = writeln!(
            text,
            "data d{data} {0}/\ncontent {0}/content",
            data_folder.display()
        );
    }
    let configuration = at("conf");
    std::fs::write(&configuration, text).map_err(told)?;
    let snapraid = Snapraid {
        program,
        configuration,
        lost: at("d0").join("file"),
    };
    snapraid.tell(&["sync"])?;
    Ok(Box::new(snapraid))
}

impl Snapraid {
    fn tell(&self, words: &[&str]) -> Result<String, BenchError> {
        let mut tell = Command::new(&self.program);
        // Its folders are all on one device, which it refuses outside of tests.
        tell.args(["--test-skip-device", "--conf"])
            .arg(&self.configuration);
        output(tell.args(words))
    }
}

impl Keeper for Snapraid {
    fn work(&mut self, work: Work) -> Result<Duration, BenchError> {
        if work == Work::Scrub {
            return timed(|| self.tell(&["check"]));
        }
        std::fs::remove_file(&self.lost)
            .map_err(|error| BenchError(format!("{}: {error}", self.lost.display())))?;
        timed(|| self.tell(&["fix", "--filter-disk", "d0"]))
    }
}
