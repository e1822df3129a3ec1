//! Sending: a message by one transport, and a sign of life. Blocks, so each is done in a thread of its own.

use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::AsFd;
use std::process::Command;
use std::time::Duration;

use plexum_incidents::channel::webhook::{Request, request};
use plexum_incidents::channel::{journal, mail, program, smtp};
use plexum_incidents::config::{HeartbeatBy, Transport};
use plexum_incidents::message::Message;

use super::process::run;

/// How long a transport may take: less than after what a message without an answer counts as failed.
const SEND_LIMIT: Duration = Duration::from_secs(60);
/// The largest file of a token that is read, in bytes.
const TOKEN_BYTES_MAX: u64 = 64 << 10;

/// Sends `message`, and gives what the transport answered.
///
/// # Errors
/// Why it has not arrived, in one line.
pub(super) fn send(transport: &Transport, message: &Message) -> Result<String, String> {
    match transport {
        Transport::Journal => write_line(&journal::line(message)),
        Transport::Program { command } => {
            let start = program::start(message, command);
            let mut started = command_of(&start.command)?;
            started.envs(start.environment);
            answer_of(started, start.input)
        }
        Transport::Sendmail { to, from, command } => {
            let addresses = mail::Addresses {
                to: to.clone(),
                from: from.clone(),
            };
            answer_of(command_of(command)?, mail::mail(message, &addresses))
        }
        Transport::Smtp(server) => {
            let start = smtp::start(message, server);
            answer_of(command_of(&start.command)?, start.input)
        }
        Transport::Webhook {
            service,
            url,
            token_file,
        } => {
            let token = token_file.as_deref().map(read_token).transpose()?;
            curl(&request(message, service, url, token.as_deref()))
        }
    }
}

/// Gives a sign of life.
///
/// # Errors
/// Why it was not taken, in one line.
pub(super) fn beat(by: &HeartbeatBy) -> Result<String, String> {
    match by {
        HeartbeatBy::Url(url) => curl(&Request {
            method: "GET",
            url: url.clone(),
            headers: Vec::new(),
            body: String::new(),
        }),
        HeartbeatBy::Program(command) => answer_of(command_of(command)?, String::new()),
    }
}

fn command_of(words: &[String]) -> Result<Command, String> {
    let (program, arguments) = words.split_first().ok_or("no program is configured")?;
    let mut command = Command::new(program);
    command.args(arguments).current_dir("/");
    Ok(command)
}

fn answer_of(command: Command, input: String) -> Result<String, String> {
    let program = command.get_program().to_string_lossy().into_owned();
    run(command, input, SEND_LIMIT)?.answer(&program)
}

/// A line on standard error, which is the journal where systemd has started the daemon.
fn write_line(line: &str) -> Result<String, String> {
    let told = |error: io::Error| format!("standard error: {}", crate::problem::words_of(&error));
    // Not by way of `io::stderr`: who holds its lock while nobody reads would hold up everybody.
    let stderr = io::stderr().as_fd().try_clone_to_owned().map_err(told)?;
    let mut file = File::from(stderr);
    file.write_all(format!("{line}\n").as_bytes())
        .map_err(told)?;
    Ok("written to standard error".to_owned())
}

fn read_token(path: &str) -> Result<String, String> {
    let mut text = String::new();
    let read = File::open(path).and_then(|file| {
        let mut file = file.take(TOKEN_BYTES_MAX);
        file.read_to_string(&mut text)
    });
    match read {
        Ok(_) => Ok(text),
        Err(error) => Err(format!("{path}: {}", crate::problem::words_of(&error))),
    }
}

/// Has curl make the request. All of it goes by standard input: a token in a command line could be read by everybody.
fn curl(request: &Request) -> Result<String, String> {
    let mut command = Command::new("curl");
    command
        .args(["--disable", "--config", "-"])
        .current_dir("/");
    let ended = run(command, curl_config(request), SEND_LIMIT)?;
    ended.answer("curl")
}

/// What curl is told, in the form of its configuration.
///
/// Source: curl(1), `--config`.
fn curl_config(request: &Request) -> String {
    let mut text = String::new();
    let mut option = |name: &str, value: &str| {
        text.push_str(&format!("{name} = \"{}\"\n", quoted(value)));
    };
    option("url", &request.url);
    option("request", request.method);
    option("proto", "=http,https");
    option("max-time", "30");
    option("user-agent", "plexum");
    // The answer begins with its status; a body of a refusal is told as well.
    option("write-out", "\nHTTP %{http_code}");
    for (name, value) in &request.headers {
        option("header", &format!("{name}: {value}"));
    }
    if !request.body.is_empty() {
        option("data-raw", &request.body);
    }
    text.push_str("silent\nshow-error\nfail-with-body\ngloboff\n");
    text
}

/// Source: curl(1): within quotes these have a meaning.
fn quoted(value: &str) -> String {
    value
        .replace('\\', "\\\\")
        .replace('"', "\\\"")
        .replace('\n', "\\n")
        .replace('\r', "\\r")
        .replace('\t', "\\t")
}
