//! Messages and the page tell times by the clock of this machine, with its distance to UTC.

use super::common::Place;
use super::common::served::{done, wait_until};
use super::daemon::Daemon;

#[test]
fn a_message_and_the_page_tell_the_local_time_and_how_far_it_is_from_utc() {
    let mut place = Place::in_memory("times");
    place.environment.push(("TZ", "<+0530>-05:30".into()));
    let folder = place.file("config/plexum");
    std::fs::create_dir_all(&folder).unwrap();
    let text =
        "[page]\nlisten = \"127.0.0.1:0\"\nwithout-token = \"view\"\n[alarm]\nhold = \"0s\"\n";
    std::fs::write(folder.join("plexum.toml"), text).unwrap();
    done(
        &place,
        "create nas --level 1 --member-size 16M a b --assume-clean -y",
    );
    let daemon = Daemon::start(&place, "--json");
    let told: serde_json::Value = serde_json::from_str(&daemon.said).unwrap();
    let page = format!("http://{}/", told["page"].as_str().unwrap());
    done(&place, "serve a b");
    done(&place, "fail nas a");
    let mut id = String::new();
    wait_until(&place, "an incident is open", || {
        let told = place.plexum("incident --json").objects();
        let found = told.iter().find_map(|one| one["id"].as_str());
        id = found.unwrap_or_default().to_owned();
        !id.is_empty()
    });
    let body = |place: &Place| {
        let told = place.plexum(&format!("incident {id} --json")).objects();
        told[0]["messages"][0]["body"]
            .as_str()
            .unwrap_or_default()
            .to_owned()
    };
    wait_until(&place, "its message is made", || !body(&place).is_empty());
    assert!(body(&place).contains(" +05:30"), "{}", body(&place));
    let text = place.tool("curl", &format!("-sS {page}")).out;
    assert!(text.contains(" +05:30, judged"), "{text}");
}
