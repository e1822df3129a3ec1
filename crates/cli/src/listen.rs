//! Where a server listens besides its Unix socket, and whom it lets in there.

use std::net::{SocketAddr, ToSocketAddrs};

use plexum_daemon::host::NvmeListen;
use plexum_daemon::problem::{Code, Problem};
use plexum_nbd::tls::{TlsMode, TlsServer};
use plexum_nvme::server::Allowed;

use crate::args::Serve;

/// The address of `--listen`.
///
/// # Errors
/// `Usage` for a word that is none; `InsecureListen`.
pub fn listen_address(text: &str, args: &Serve) -> Result<SocketAddr, Problem> {
    let address = address_of("--listen", text, "127.0.0.1:10809")?;
    let is_forced = args.tls_cert.is_some() && tls_mode(args)? == TlsMode::Forced;
    if !address.ip().is_loopback() && !args.insecure_listen && !is_forced {
        return Err(insecure(address, "and TLS is not demanded")
            .hint("to demand TLS:   --tls-cert FILE --tls-key FILE --tls-clients CA")
            .hint("to listen all the same, add:   --insecure-listen"));
    }
    Ok(address)
}

/// Where hosts come for NVMe/TCP, which has no TLS here.
///
/// # Errors
/// As `listen_address`.
pub fn nvme(args: &Serve) -> Result<Option<NvmeListen>, Problem> {
    let Some(text) = &args.nvme else {
        return Ok(None);
    };
    let address = address_of("--nvme", text, "127.0.0.1:4420")?;
    if !address.ip().is_loopback() && !args.insecure_listen {
        return Err(insecure(address, "and NVMe/TCP is not encrypted")
            .hint("in a network of your own, add:   --insecure-listen --allow-host NQN"));
    }
    Ok(Some(NvmeListen {
        address,
        allowed: match args.allow_host.is_empty() {
            true => Allowed::All,
            false => Allowed::Only(args.allow_host.clone()),
        },
    }))
}

fn address_of(word: &str, text: &str, example: &str) -> Result<SocketAddr, Problem> {
    let found = text.to_socket_addrs().ok();
    found.and_then(|mut found| found.next()).ok_or_else(|| {
        usage(format!("{word} {text}: an address and a port are expected"))
            .hint(format!("for example:   {word} {example}"))
    })
}

fn insecure(address: SocketAddr, why: &str) -> Problem {
    let text = format!("{address} can be reached from other machines, {why}");
    Problem::new(Code::InsecureListen, text)
        .why("everybody who reaches it could read and write the volume")
}

/// What the server shows and whom it lets in; with certificates TLS is demanded unless something else is said.
///
/// # Errors
/// `Usage` for words that do not belong together, and files that cannot be used.
pub fn tls(args: &Serve) -> Result<Option<(TlsServer, TlsMode)>, Problem> {
    let (Some(chain), Some(key)) = (&args.tls_cert, &args.tls_key) else {
        if args.tls_cert.is_some()
            || args.tls_key.is_some()
            || args.tls.is_some()
            || args.tls_clients.is_some()
        {
            return Err(usage("TLS needs both --tls-cert FILE and --tls-key FILE"));
        }
        return Ok(None);
    };
    let server = TlsServer::new(chain, key, args.tls_clients.as_deref()).map_err(|error| {
        usage(error.to_string()).hint("certificates and keys are files in PEM format")
    })?;
    Ok(Some((server, tls_mode(args)?)))
}

fn tls_mode(args: &Serve) -> Result<TlsMode, Problem> {
    match args.tls.as_deref() {
        None | Some("forced") => Ok(TlsMode::Forced),
        Some("selective") => Ok(TlsMode::Selective),
        Some(other) => Err(usage(format!("--tls {other}: it is selective or forced"))),
    }
}

fn usage(text: impl Into<String>) -> Problem {
    Problem::new(Code::Usage, text)
}
