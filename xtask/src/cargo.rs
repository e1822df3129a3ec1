//! Cargo, called by a program that cargo has started.

use std::process::Command;

/// Cargo, without what cargo has told this program of its own package: build scripts look at that, and what stands on
/// them would be built again, and once more by whoever calls cargo from a shell.
pub fn plain() -> Command {
    let mut command = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    for (name, _) in std::env::vars_os() {
        let told = ["CARGO_PKG_", "CARGO_MANIFEST_"];
        if told
            .iter()
            .any(|word| name.to_string_lossy().starts_with(word))
        {
            command.env_remove(name);
        }
    }
    command
}
