//! What the figures were taken on: without it they mean nothing.

use std::process::Command;

use serde::Serialize;

use crate::client::Client;
use crate::process::{find_program, output};

/// The machine and the programs beside Plexum.
#[derive(Clone, Debug, Serialize)]
pub struct Machine {
    /// Processor by its own name.
    pub processor: String,
    /// Processors that may be used.
    pub processors: usize,
    /// Memory.
    pub memory_bytes: u64,
    /// Kernel's version.
    pub kernel: String,
    /// Distribution.
    pub system: String,
    /// Parity kernel that runs here.
    pub parity_kernel: &'static str,
    /// Who asks the servers.
    pub client: &'static str,
    /// Load average of the last minute, when this was written down.
    pub load: f64,
    /// Versions of the peers that are installed.
    pub peers: Vec<String>,
}

/// Peers, and how they tell their version.
const PEERS: [(&str, &str); 7] = [
    ("nbdkit", "--version"),
    ("qemu-nbd", "--version"),
    ("qemu-img", "--version"),
    ("nbd-server", "-V"),
    ("mkfs.btrfs", "--version"),
    ("snapraid", "--version"),
    ("fio", "--version"),
];

impl Machine {
    /// Looks.
    #[must_use]
    pub fn look() -> Self {
        let read = |path: &str| std::fs::read_to_string(path).unwrap_or_default();
        let (cpu, memory) = (read("/proc/cpuinfo"), read("/proc/meminfo"));
        let kib = value(&memory, "MemTotal", ':').and_then(|text| {
            let number = text.split_whitespace().next()?;
            number.parse::<u64>().ok()
        });
        let system = value(&read("/etc/os-release"), "PRETTY_NAME", '=')
            .map(|text| text.trim_matches('"').to_owned());
        let load = read("/proc/loadavg");
        Self {
            processor: value(&cpu, "model name", ':').unwrap_or_else(|| "unknown".to_owned()),
            processors: std::thread::available_parallelism().map_or(1, usize::from),
            memory_bytes: kib.unwrap_or(0) << 10,
            kernel: read("/proc/sys/kernel/osrelease").trim().to_owned(),
            system: system.unwrap_or_else(|| "unknown".to_owned()),
            parity_kernel: plexum_parity::chosen().kernel().name(),
            client: Client::find().words(),
            load: load
                .split_whitespace()
                .next()
                .and_then(|word| word.parse().ok())
                .unwrap_or(0.0),
            peers: PEERS
                .iter()
                .filter_map(|(program, option)| version(program, option))
                .collect(),
        }
    }

    /// One paragraph.
    #[must_use]
    pub fn words(&self) -> String {
        format!(
            "{} ({} processors), {} GiB, Linux {}, {}; parity by {}; load {:.1} at the start; client: {}; peers: {}",
            self.processor,
            self.processors,
            (self.memory_bytes + (1 << 29)) >> 30,
            self.kernel,
            self.system,
            self.parity_kernel,
            self.load,
            self.client,
            self.peers.join(", ")
        )
    }
}

/// What stands behind the first line that begins with `name`.
fn value(text: &str, name: &str, sign: char) -> Option<String> {
    let line = text.lines().find(|line| line.starts_with(name))?;
    Some(line.split_once(sign)?.1.trim().to_owned())
}

fn version(program: &str, option: &str) -> Option<String> {
    let text = output(Command::new(find_program(program)?).arg(option)).ok()?;
    let digits = |word: &&str| word.chars().any(|c| c.is_ascii_digit());
    let number = text.lines().next()?.split_whitespace().find(digits)?;
    let number = number
        .trim_start_matches("fio-")
        .trim_matches(['(', ')', ',']);
    Some(format!("{program} {}", number.trim_start_matches('v')))
}

#[cfg(test)]
mod tests {
    use super::value;

    #[test]
    fn a_value_stands_behind_its_sign() {
        let text = "processor\t: 0\nmodel name\t: A: b\n";
        assert_eq!(value(text, "model name", ':').as_deref(), Some("A: b"));
        assert_eq!(value(text, "flags", ':'), None);
    }
}
