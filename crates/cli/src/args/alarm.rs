//! Words of `plexum incident`, `plexum ack` and `plexum alert`.

/// `plexum incident`.
#[derive(clap::Args, Debug)]
pub struct Incident {
    /// Number of one; without it all are listed
    pub id: Option<String>,
}

/// `plexum ack`.
#[derive(clap::Args, Debug)]
pub struct Ack {
    /// Number of the incident
    pub id: String,
    /// Why it is known, for whoever reads it later
    #[arg(long, value_name = "TEXT")]
    pub why: String,
}

/// `plexum alert`.
#[derive(clap::Args, Debug)]
pub struct Alert {
    /// What to do
    #[command(subcommand)]
    pub command: AlertCommand,
}

/// What `plexum alert` does.
#[derive(clap::Subcommand, Debug)]
pub enum AlertCommand {
    /// Send a message the whole way, and say what the transport answers
    #[command(after_help = "Example:\n  plexum alert test\n  plexum alert test phone")]
    Test {
        /// Name of a channel; without it all of them, one after the other
        channel: Option<String>,
    },
}
