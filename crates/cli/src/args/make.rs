//! Words of `plexum create` and `plexum convert`.

use std::path::PathBuf;

use crate::units::parse_bytes;

/// `plexum create`.
#[derive(clap::Args, Debug)]
pub struct Create {
    /// Name of the volume
    #[arg(required_unless_present = "config")]
    pub name: Option<String>,
    /// Members in slot order: file, device, `missing` or URI
    #[arg(value_name = "MEMBER")]
    pub members: Vec<String>,
    /// linear, 0, 1, 4, 5, 6 or 10
    #[arg(short = 'l', long, required_unless_present = "config")]
    pub level: Option<String>,
    /// A spare; may be repeated
    #[arg(long, value_name = "MEMBER")]
    pub spare: Vec<String>,
    /// Layout in md's words: left-symmetric, ls, n2, f2, o2, ...
    #[arg(long, short = 'p')]
    pub layout: Option<String>,
    /// Bytes of a strip (md: chunk) [default: 512K]
    #[arg(long, short = 'c', alias = "chunk", value_name = "SIZE", value_parser = parse_bytes)]
    pub strip: Option<u64>,
    /// Use only so much of each member
    #[arg(long, value_name = "SIZE", value_parser = parse_bytes)]
    pub size: Option<u64>,
    /// Where the data of former members begin; no stripe log is made then
    #[arg(long, value_name = "SIZE", value_parser = parse_bytes)]
    pub data_offset: Option<u64>,
    /// Make members that do not exist as sparse files of this size
    #[arg(long, value_name = "SIZE", value_parser = parse_bytes)]
    pub member_size: Option<u64>,
    /// md-1.2, md-1.1, md-1.0, md-0.90, gmirror, gstripe, gconcat or gvinum
    #[arg(long, default_value = "md-1.2", alias = "metadata")]
    pub format: String,
    /// Write-intent bitmap: internal or none [default: internal where there is redundancy]
    #[arg(long, value_name = "WHERE")]
    pub bitmap: Option<String>,
    /// Bytes that one bit stands for
    #[arg(long, value_name = "SIZE", value_parser = parse_bytes, alias = "bitmap-chunk")]
    pub bitmap_region: Option<u64>,
    /// What closes the write hole: log, ppl, bitmap or resync
    #[arg(long, value_name = "POLICY")]
    pub consistency: Option<String>,
    /// Mode of the stripe log: write-through or write-back
    #[arg(long, value_name = "MODE")]
    pub log: Option<String>,
    /// Which copy is read: round-robin, prefer, split, split:SIZE, load, load-7, nearest, adaptive or adaptive:ahead
    #[arg(long, value_name = "POLICY")]
    pub balance: Option<String>,
    /// Read this member only when nothing else can be; may be repeated
    #[arg(long, value_name = "MEMBER")]
    pub write_mostly: Vec<String>,
    /// Take copies or parity for equal: no first resync
    #[arg(long)]
    pub assume_clean: bool,
    /// Write nothing: serve read-only what it would be, to see whether the data are right
    #[arg(long = "try", requires = "assume_clean", conflicts_with_all = ["config", "force", "member_size"])]
    pub is_trial: bool,
    /// With --try: return when it is served; `plexum stop` ends it
    #[arg(long, requires = "is_trial")]
    pub background: bool,
    /// Overwrite what was found on members
    #[arg(long)]
    pub force: bool,
    /// Host part of the stored name [default: this host's name]
    #[arg(long, value_name = "HOST")]
    pub homehost: Option<String>,
    /// Volumes from a Vinum-style configuration
    #[arg(short = 'f', long = "file", value_name = "FILE", id = "config")]
    pub config: Option<PathBuf>,
    /// Least size of the volume; set by `convert`, no option.
    #[arg(skip)]
    pub size_min_bytes: Option<u64>,
}

/// `plexum convert`.
#[derive(clap::Args, Debug)]
pub struct Convert {
    /// Members of the volume; it must not be served
    #[arg(value_name = "MEMBER", required = true)]
    pub members: Vec<String>,
    /// md-1.2, md-1.1, md-1.0, md-0.90, gmirror or gvinum; zfs: a volume of a pool, copied
    #[arg(long, value_name = "FORMAT")]
    pub to: String,
    /// Copy onto these new members, in slot order; without it the data stay in place; of a pool all members
    #[arg(long, value_name = "MEMBER", num_args = 1..)]
    pub onto: Vec<String>,
    /// Which of several volumes of Vinum drives; or of a ZFS pool: POOL/VOLUME[@SNAPSHOT]
    #[arg(long, value_name = "NAME")]
    pub volume: Option<String>,
    /// Name of the new volume [default: as the old one]; in a pool: POOL/VOLUME
    #[arg(long)]
    pub name: Option<String>,
    /// Level of the new volume [default: as the old one]
    #[arg(short = 'l', long)]
    pub level: Option<String>,
    /// Bytes of a strip of the new volume
    #[arg(long, short = 'c', value_name = "SIZE", value_parser = parse_bytes)]
    pub strip: Option<u64>,
    /// Make new members that do not exist as sparse files of this size
    #[arg(long, value_name = "SIZE", value_parser = parse_bytes)]
    pub member_size: Option<u64>,
    /// Where it is noted how far a copy is [default: plexum-convert-NAME.journal]
    #[arg(long, value_name = "FILE")]
    pub journal: Option<PathBuf>,
    /// Overwrite what was found on new members
    #[arg(long)]
    pub force: bool,
}
