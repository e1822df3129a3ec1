//! What alarms answer to people: what is open, what was told, and that somebody knows of it.

use std::pin::pin;
use std::rc::Rc;
use std::time::Duration;

use futures_util::future::{Either, select};
use plexum_block::clock::Clock;
use plexum_incidents::incident::{Acknowledgement, IncidentId, Life};
use plexum_incidents::incidents::{AcknowledgeError, Open};
use plexum_incidents::outbox::ChannelState;
use serde_json::{Value, json};

use super::records::Record;
use super::{Alarms, SAVE_S_MAX};
use crate::control::alarm_request::{Acknowledge, AlarmRequest};
use crate::control::request::{Answer, Ask};
use crate::problem::{Code, Problem};
use crate::volume::status::JSON_VERSION;

impl Alarms {
    /// Answers, now or in a task of its own.
    pub(in crate::service) fn answer(self: &Rc<Self>, ask: Ask, request: AlarmRequest) {
        let alarms = Rc::clone(self);
        match request {
            AlarmRequest::List => ask.answer(Ok(self.list())),
            AlarmRequest::Show { id } => ask.answer(self.show(&id)),
            AlarmRequest::Acknowledge { id, by } => {
                let _task = self.handle.spawn(async move {
                    let answer = alarms.acknowledge(&id, by).await;
                    ask.answer(answer);
                });
            }
            AlarmRequest::Test { channel } => {
                let _task = self.handle.spawn(async move {
                    let answer = alarms.test(&channel).await;
                    ask.answer(answer);
                });
            }
        }
    }

    /// All incidents: those that are open, the worst first, then the others, the newest first.
    fn list(&self) -> Value {
        let alarm = self.alarm.borrow();
        let records = self.records.borrow();
        let open = alarm.open();
        let is_open = |record: &&Record| open.iter().any(|one| one.life.id == record.id);
        let mut incidents: Vec<Value> = open
            .iter()
            .map(|open| of_open(open, records.get(open.life.id)))
            .collect();
        let others = records.all().filter(|record| !is_open(record));
        incidents.extend(others.map(of_record));
        let channels: Vec<Value> = alarm.channels().iter().map(of_channel).collect();
        let heartbeat = self.config.heartbeat.as_ref().map(|heartbeat| {
            let beat = self.beat.borrow();
            let error = beat.as_ref().and_then(|beat| beat.as_ref().err());
            json!({"every_s": heartbeat.every_s, "last_s": alarm.heartbeat_last(), "error": error})
        });
        json!({
            "version": JSON_VERSION, "kind": "incidents", "incidents": incidents, "channels": channels,
            "waiting_messages": alarm.waiting_count(), "heartbeat": heartbeat,
            "not_kept": *self.not_kept.borrow(), "configuration": self.misconfigured,
            "judged_s": alarm.judged_at(),
        })
    }

    fn show(&self, id: &str) -> Answer {
        let number = parse_id(id)?;
        let alarm = self.alarm.borrow();
        let records = self.records.borrow();
        let record = records.get(number);
        let open = alarm.open();
        let open = open.iter().find(|open| open.life.id == number);
        let told = match (open, record) {
            (Some(open), record) => of_open(open, record),
            (None, Some(record)) => of_record(record),
            (None, None) => return Err(no_such(id)),
        };
        let mut told = told;
        told["version"] = JSON_VERSION.into();
        told["kind"] = "incident".into();
        told["messages"] = record.map_or_else(|| json!([]), messages);
        Ok(told)
    }

    async fn acknowledge(&self, id: &str, by: Acknowledge) -> Answer {
        let number = parse_id(id)?;
        let now = self.now();
        let result = self
            .alarm
            .borrow_mut()
            .acknowledge(number, &by.who, &by.why, now);
        result.map_err(|error| match error {
            AcknowledgeError::NoReason(_) => Problem::new(Code::Usage, error.to_string()),
            _ => no_such(id),
        })?;
        let known = self.known(number);
        if let Some(known) = known {
            self.records.borrow_mut().note_acknowledged(number, known);
        }
        self.has_news.set(true);
        let clock = self.handle.clock();
        let limit = clock.sleep(Duration::from_secs(SAVE_S_MAX));
        let kept = match select(pin!(self.save()), pin!(limit)).await {
            Either::Left((kept, _)) => kept,
            Either::Right(_) => Err("the folder of what is kept does not answer".to_owned()),
        };
        match kept {
            Ok(()) => self.show(id),
            Err(reason) => {
                let text = format!(
                    "incident {id} is acknowledged until the daemon ends: that cannot be kept: {reason}"
                );
                Err(Problem::new(Code::IoError, text))
            }
        }
    }

    fn known(&self, number: IncidentId) -> Option<Acknowledgement> {
        let alarm = self.alarm.borrow();
        let open = alarm.open();
        let open = open.iter().find(|open| open.life.id == number);
        open.and_then(|open| open.life.acknowledged.clone())
    }

    async fn test(self: Rc<Self>, channel: &str) -> Answer {
        let id = self.alarm.borrow_mut().test(channel, self.now());
        let id = id.map_err(|error| Problem::new(Code::Usage, error.to_string()))?;
        self.tests.borrow_mut().insert(id.clone(), None);
        self.go_on();
        let is_answered = || self.tests.borrow().get(&id).is_none_or(Option::is_some);
        self.ended.until(is_answered).await;
        let result = self.tests.borrow_mut().remove(&id).flatten();
        match result.unwrap_or_else(|| Err("it was not sent".to_owned())) {
            Ok(answer) => Ok(json!({
                "version": JSON_VERSION, "kind": "alert_test", "channel": channel, "message": id,
                "answer": answer,
            })),
            Err(error) => {
                let text = format!("the test did not arrive at channel \"{channel}\": {error}");
                Err(Problem::new(Code::NotDelivered, text))
            }
        }
    }
}

fn parse_id(id: &str) -> Result<IncidentId, Problem> {
    let number = u64::from_str_radix(id, 16)
        .ok()
        .filter(|_| !id.starts_with('+'));
    number.map(IncidentId).ok_or_else(|| no_such(id))
}

fn no_such(id: &str) -> Problem {
    let shown: String = id.chars().take(40).collect();
    let problem = Problem::new(Code::NoSuchIncident, format!("no incident {shown} is open"));
    problem.hint("to see all:   plexum incident")
}

fn of_open(open: &Open<'_>, record: Option<&Record>) -> Value {
    let Open { finding, life } = open;
    let state = match life.is_acknowledged(finding.severity) {
        true => "acknowledged",
        false => "open",
    };
    json!({
        "id": life.id.to_string(), "state": state, "code": finding.code, "object": finding.object,
        "name": finding.name, "severity": finding.severity, "worst": life.worst,
        "opened_s": life.opened, "closed_s": null, "acknowledged": life.acknowledged,
        "returns": life.returns, "headline": finding.lines.headline, "lines": finding.lines,
        "message_count": messages_of(life, record),
    })
}

fn messages_of(life: &Life, record: Option<&Record>) -> usize {
    record.map_or(life.messages as usize, |record| record.messages.len())
}

/// Of an incident that is over: its end was told, or is told when it stays so.
fn of_record(record: &Record) -> Value {
    let state = match record.closed {
        Some(_) => "closed",
        None => "ending",
    };
    let headline = record.messages.last().map(|told| told.first_line.clone());
    json!({
        "id": record.id.to_string(), "state": state, "code": record.code, "object": record.object,
        "name": record.name, "severity": record.severity, "worst": record.worst,
        "opened_s": record.opened, "closed_s": record.closed, "acknowledged": record.acknowledged,
        "headline": headline, "message_count": record.messages.len(),
    })
}

fn messages(record: &Record) -> Value {
    let each = record.messages.iter().map(|told| {
        let deliveries = told.deliveries.iter().map(|one| {
            json!({"channel": one.channel, "at_s": one.at, "has_arrived": one.has_arrived,
                "attempts": one.attempts, "answer": one.answer})
        });
        json!({"id": told.id, "kind": told.kind, "decided_s": told.decided,
            "first_line": told.first_line, "body": told.body,
            "deliveries": deliveries.collect::<Vec<_>>()})
    });
    each.collect()
}

fn of_channel(state: &ChannelState) -> Value {
    json!({
        "name": state.name, "failing_since_s": state.failing_since,
        "failed_attempts": state.failed_attempts, "given_up_messages": state.given_up,
        "arrived_s": state.arrived, "answer": state.answer,
    })
}
