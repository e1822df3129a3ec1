//! `plexum daemon` and `plexum forget`.

use std::time::Duration;

use plexum_daemon::config::{Config, ConfigFiles, Surroundings, degraded_start};
use plexum_daemon::disk::DiskSettings;
use plexum_daemon::host::HostSettings;
use plexum_daemon::memory::{self, StateDir};
use plexum_daemon::problem::{Code, Problem};
use plexum_daemon::scrub::ScrubConfig;
use plexum_daemon::serve::MEMORY_BYTES_DEFAULT;
use plexum_daemon::service::{self, ServiceRequest};
use plexum_runtime::process::join_write_out_path;
use serde_json::{Value, json};

use crate::args::{self, Common};
use crate::control::runtime_dir;
use crate::daemon_client::{Daemon, line_of, waiting_in};
use crate::errors::Outcome;
use crate::output::{Screen, check, object};
use crate::serve::{cores, io_choice, memory_bytes};

/// Runs the daemon: returns when it was told to end.
///
/// # Errors
/// What keeps a daemon from running; what went wrong with stopping.
pub fn run(args: &args::Daemon, common: &Common, screen: &Screen) -> Outcome {
    let request = request(args)?;
    if common.dry_run {
        service::rehearse(&request)?;
        let socket = request.settings.runtime_dir.daemon_socket();
        screen.line(format!("would listen on {}", socket.display()));
        screen.object(&object(
            "plan",
            None,
            json!({"command": "daemon", "socket": socket}),
        ));
        return Ok(0);
    }
    // Volumes that are attached come back to a daemon that was started again, and it hears nothing of that.
    let _ = join_write_out_path();
    let mut ready = |told: &Value| {
        for problem in told["problems"].as_array().into_iter().flatten() {
            screen.note(format!(
                "not known: {}",
                problem.as_str().unwrap_or_default()
            ));
        }
        for problem in told["configuration"].as_array().into_iter().flatten() {
            let problem = problem.as_str().unwrap_or_default();
            screen.note(format!("not configured: {problem}"));
        }
        for lacking in told["channels"].as_array().into_iter().flatten() {
            screen.note(lacking.as_str().unwrap_or_default());
        }
        if let Some(reason) = told["not_kept"].as_str() {
            screen.note(format!(
                "incidents are not kept for the next start: {reason}"
            ));
        }
        for waiting in waiting_in(told) {
            screen.note(line_of(&waiting));
        }
        let count = told["volumes"].as_u64().unwrap_or(0);
        let socket = told["socket"].as_str().unwrap_or_default();
        screen.line(format!("plexum daemon, {count} volumes served: {socket}"));
        if let Some(address) = told["metrics"].as_str() {
            screen.line(format!("metrics: http://{address}/metrics"));
        }
        if let Some(address) = told["page_url"].as_str() {
            screen.line(format!("page: {address}"));
        }
        screen.object(&object("ready", None, told.clone()));
        check()
    };
    service::run(request, &mut ready).map(|()| 0)
}

fn request(args: &args::Daemon) -> Result<ServiceRequest, Problem> {
    let files = args
        .config
        .clone()
        .map_or_else(own_files, ConfigFiles::named);
    let (config, config_problems) = Config::read(&files);
    let mut start = config.start.policy();
    if let Some(wait_s) = args.wait {
        start.wait = Duration::from_secs(wait_s);
    }
    if let Some(word) = &args.degraded {
        let usage = |reason| Problem::new(Code::Usage, format!("--degraded {reason}"));
        start.degraded = degraded_start(word).map_err(usage)?;
    }
    let scrub = args.scrub_every.map(|every| ScrubConfig {
        every,
        within: args.scrub_within.clone().unwrap_or_default(),
        rate: args.scrub_rate,
    });
    Ok(ServiceRequest {
        settings: HostSettings {
            io: io_choice(&args.io)?,
            spin: Duration::from_micros(args.spin),
            memory_bytes: memory_bytes(args.memory.unwrap_or(MEMORY_BYTES_DEFAULT))?,
            cores: cores(args.cores)?,
            tls: None,
            runtime_dir: runtime_dir(),
            state_dir: StateDir::locate(&memory::Surroundings::of_this_process()),
            disks: DiskSettings::of_this_process(),
        },
        start,
        scrub: scrub.or_else(|| config.scrub.clone()),
        metrics_listen: args.metrics_listen,
        config,
        config_problems,
    })
}

/// The configuration of this user; root's is that of the machine.
pub fn own_files() -> ConfigFiles {
    ConfigFiles::locate(&Surroundings::of_this_process())
}

/// `plexum forget`: the daemon expects a volume no more. Nothing on its members changes.
///
/// # Errors
/// `NoServer` without a daemon; `WrongState` while it is served; `NoSuchVolume`.
pub fn forget(args: &args::Forget, common: &Common, screen: &Screen) -> Outcome {
    let Some(daemon) = Daemon::find() else {
        let problem = Problem::new(Code::NoServer, "no daemon runs, so no volume is expected");
        return Err(problem.hint("to start it:   plexum daemon"));
    };
    let name = &args.volume;
    if common.dry_run {
        daemon.check_forget(name)?;
        screen.line(format!("would expect {name} no more"));
        screen.object(&object("plan", Some(name), json!({"command": "forget"})));
        return Ok(0);
    }
    daemon.forget(name)?;
    screen.done(format!(
        "{name} is expected no more; its members are as they were"
    ));
    screen.object(&object("forgotten", Some(name), json!({})));
    Ok(0)
}
