//! Chromium without a screen, told what to do through two pipes: DevTools' protocol, an object a message, a zero after
//! each.

use std::collections::VecDeque;
use std::fs::{File, OpenOptions};
use std::io::{BufRead, BufReader, Write};
use std::process::{Child, Stdio};

use serde_json::{Value, json};

use super::Place;

/// A browser with one page. It ends with the test.
pub struct Browser {
    child: Child,
    orders: File,
    answers: BufReader<File>,
    number: u64,
    session: String,
    /// What was told without being asked.
    told: VecDeque<Value>,
}

impl Browser {
    /// Starts it.
    pub fn start(place: &Place) -> Self {
        for pipe in ["orders", "answers"] {
            let made = place.tool("mkfifo", pipe);
            assert_eq!(made.exit, 0, "{}", made.err);
        }
        let folder = place.folder.display();
        // Without the last of these it asks for hosts of its maker at each start.
        let line = format!(
            "exec chromium --headless --no-sandbox --disable-gpu --disable-quic --no-first-run --disable-component-update \
             --disable-sync --user-data-dir={folder}/profile --remote-debugging-pipe \
             --disable-background-networking about:blank 3<orders 4>answers"
        );
        let child = place
            .command("sh")
            .args(["-c", &line])
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .expect("a shell");
        // In the order in which the shell opens them: each waits for the other end.
        let orders = OpenOptions::new().write(true).open(place.file("orders"));
        let answers = File::open(place.file("answers"));
        let mut browser = Self {
            child,
            orders: orders.expect("a pipe"),
            answers: BufReader::new(answers.expect("a pipe")),
            number: 0,
            session: String::new(),
            told: VecDeque::new(),
        };
        let page = browser.call("Target.createTarget", json!({"url": "about:blank"}));
        let page = json!({"targetId": page["targetId"], "flatten": true});
        let session = browser.call("Target.attachToTarget", page);
        browser.session = session["sessionId"].as_str().expect("a session").to_owned();
        for part in ["Page", "Network", "Runtime", "Log"] {
            browser.call(&format!("{part}.enable"), json!({}));
        }
        browser
    }

    /// One order; what comes of it.
    pub fn call(&mut self, method: &str, parameters: Value) -> Value {
        self.number += 1;
        let mut order = json!({"id": self.number, "method": method, "params": parameters});
        if !self.session.is_empty() {
            order["sessionId"] = self.session.clone().into();
        }
        self.orders
            .write_all(format!("{order}\0").as_bytes())
            .expect("it hears");
        loop {
            let message = self.next();
            if message["id"] == self.number {
                assert!(message["error"].is_null(), "{method}: {message}");
                return message["result"].clone();
            }
            self.told.push_back(message);
        }
    }

    fn next(&mut self) -> Value {
        let mut bytes = Vec::new();
        self.answers.read_until(0, &mut bytes).expect("a pipe");
        assert_eq!(bytes.pop(), Some(0), "the browser has ended");
        serde_json::from_slice(&bytes).expect("an object")
    }

    /// Opens a page; returns when it is loaded.
    pub fn open(&mut self, url: &str) {
        self.loading(|browser| drop(browser.call("Page.navigate", json!({"url": url}))));
    }

    /// Does something that leads to a page; returns when that one is loaded.
    pub fn loading(&mut self, act: impl FnOnce(&mut Self)) {
        self.told.clear();
        act(self);
        while !self
            .told
            .iter()
            .any(|one| one["method"] == "Page.loadEventFired")
        {
            let message = self.next();
            self.told.push_back(message);
        }
    }

    /// What an expression of the page is, or comes to.
    pub fn ask(&mut self, expression: &str) -> Value {
        let wish = json!({"expression": expression, "awaitPromise": true, "returnByValue": true});
        let answer = self.call("Runtime.evaluate", wish);
        assert!(
            answer["exceptionDetails"].is_null(),
            "{expression}: {answer}"
        );
        answer["result"]["value"].clone()
    }

    /// Waits until an expression is true: it is looked at whenever the page changes, until the test gives up.
    pub fn wait_until(&mut self, expression: &str) {
        self.ask(&format!(
            "new Promise((done, vain) => {{ setTimeout(() => vain(new Error('waited in vain')), 120000); const look = () => {{ if ({expression}) done(true); }}; \
             new MutationObserver(look).observe(document, {{subtree: true, childList: true, characterData: true, \
             attributes: true}}); look(); }})"
        ));
    }

    /// Presses a key: `Tab`, `Enter`, `Escape`, or types a letter.
    pub fn press(&mut self, key: &str) {
        let (code, text) = match key {
            "Tab" => (9, ""),
            "Enter" => (13, "\r"),
            "Escape" => (27, ""),
            letter => (0, letter),
        };
        let event = json!({"type": "keyDown", "key": key, "code": key, "windowsVirtualKeyCode": code, "text": text});
        self.call("Input.dispatchKeyEvent", event);
        let event =
            json!({"type": "keyUp", "key": key, "code": key, "windowsVirtualKeyCode": code});
        self.call("Input.dispatchKeyEvent", event);
    }

    /// Types a text.
    pub fn type_text(&mut self, text: &str) {
        self.call("Input.insertText", json!({"text": text}));
    }

    /// Addresses that were asked for since the page was opened.
    pub fn requests(&self) -> Vec<String> {
        let sent = self
            .told
            .iter()
            .filter(|one| one["method"] == "Network.requestWillBeSent");
        let sent = sent.filter_map(|one| one["params"]["request"]["url"].as_str());
        sent.map(str::to_owned).collect()
    }

    /// What went wrong in the page since it was opened: errors of scripts, and what the browser has refused.
    pub fn complaints(&self) -> Vec<Value> {
        let is_one = |one: &&Value| {
            one["method"] == "Runtime.exceptionThrown"
                || (one["method"] == "Log.entryAdded" && one["params"]["entry"]["level"] == "error")
        };
        self.told.iter().filter(is_one).cloned().collect()
    }
}

impl Drop for Browser {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
