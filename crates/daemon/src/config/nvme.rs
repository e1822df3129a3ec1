//! The table `[nvme]`: where volumes are found over NVMe/TCP, and by whom.

use std::net::SocketAddr;

use plexum_nvme::server::Allowed;
use serde::Deserialize;
use toml::Spanned;

use super::{ConfigProblem, Source};
use crate::host::NvmeListen;

/// What is configured of NVMe/TCP.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NvmeConfig {
    listen: Option<SocketAddr>,
    /// Who may come, when somebody has said so: an empty list is nobody.
    hosts: Option<Vec<String>>,
}

#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub(super) struct RawNvme {
    listen: Option<Spanned<String>>,
    insecure_listen: Option<bool>,
    allow_hosts: Option<Vec<String>>,
}

impl NvmeConfig {
    /// Where to listen; none: nowhere.
    #[must_use]
    pub fn listen(&self) -> Option<NvmeListen> {
        Some(NvmeListen {
            address: self.listen?,
            allowed: self.hosts.clone().map_or(Allowed::All, Allowed::Only),
        })
    }

    /// Adds what a later file says. An address that others reach is to be wished for in the file that names it.
    pub(super) fn add(&mut self, raw: &RawNvme, source: &Source<'_>) -> Result<(), ConfigProblem> {
        if let Some(text) = &raw.listen {
            let address: SocketAddr = text.get_ref().parse().map_err(|_| {
                let reason = "an address with a port is needed, such as \"127.0.0.1:4420\"";
                source.problem("listen", text, reason)
            })?;
            if !address.ip().is_loopback() && raw.insecure_listen != Some(true) {
                let reason = format!(
                    "{address} can be reached from other machines, and everybody there could read and write the \
                     volumes; to listen all the same: insecure-listen = true"
                );
                return Err(source.problem("listen", text, &reason));
            }
            self.listen = Some(address);
        }
        if let Some(hosts) = &raw.allow_hosts {
            self.hosts = Some(hosts.clone());
        }
        Ok(())
    }
}
