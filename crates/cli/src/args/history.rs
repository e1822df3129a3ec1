//! Words of `plexum history` and `plexum undo`.

/// `plexum history`.
#[derive(clap::Args, Debug)]
pub struct History {}

/// `plexum undo`.
#[derive(clap::Args, Debug)]
pub struct Undo {
    /// Number of the change, as `history` shows it
    #[arg(value_name = "NUMBER")]
    pub change: u64,
}
