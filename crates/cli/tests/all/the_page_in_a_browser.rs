//! The daemon's page in Chromium: without script, live, on a telephone, by keyboard, dark and light.

use std::os::unix::fs::PermissionsExt;

use serde_json::{Value, json};

use super::common::browser::Browser;
use super::common::served::done;
use super::common::{Place, ok};
use super::daemon::Daemon;

const TOKEN: &str = "0123456789abcdefghij";
/// A member whose name would run, if it became an element.
const EVIL: &str = "<img/src=x/onerror=document.title=1>";

/// A daemon that serves a RAID-6 of five files and has a page; its address.
fn with_page(name: &str) -> (Place, Daemon, String) {
    let place = Place::in_memory(name);
    let token = place.file("token");
    std::fs::write(&token, TOKEN).unwrap();
    std::fs::set_permissions(&token, std::fs::Permissions::from_mode(0o600)).unwrap();
    let folder = place.file("config/plexum");
    std::fs::create_dir_all(&folder).unwrap();
    let shown = token.display();
    let text = format!(
        "[page]\nlisten = \"127.0.0.1:0\"\nwithout-token = \"view\"\n\
         [[page.token]]\nname = \"ute\"\nrole = \"administer\"\nfile = \"{shown}\"\n[alarm]\nhold = \"0s\"\n"
    );
    std::fs::write(folder.join("plexum.toml"), text).unwrap();
    std::fs::create_dir_all(place.file("<img/src=x")).unwrap();
    done(
        &place,
        &format!("create home --level 6 --member-size 16M a b c d {EVIL} --assume-clean -y"),
    );
    let daemon = Daemon::start(&place, "--json");
    let told: Value = serde_json::from_str(&daemon.said).unwrap();
    let page = told["page"].as_str().expect("where the page is");
    let page = format!("http://{page}/");
    done(&place, &format!("serve a b c d {EVIL}"));
    (place, daemon, page)
}

fn no_complaints(browser: &Browser) {
    assert_eq!(browser.complaints(), Vec::<Value>::new());
}

/// What is wider than the page, each with its text.
const OVERHANGING: &str = "JSON.stringify([...document.querySelectorAll('body *')].filter((one) => {
  const box = one.getBoundingClientRect();
  return box.width && !one.classList.contains('skip') && box.right > innerWidth + 1; }).map((one) => one.outerHTML.slice(0, 80)))";

/// The least contrast between a text and what is behind it, as WCAG counts it.
const CONTRAST: &str = "(() => {
  const numbers = (text) => text.match(/[\\d.]+/g).map(Number);
  const light = (rgb) => { const [r, g, b] = rgb.map((one) => { const part = one / 255;
    return part <= 0.04045 ? part / 12.92 : ((part + 0.055) / 1.055) ** 2.4; }); return 0.2126 * r + 0.7152 * g + 0.0722 * b; };
  const behind = (one) => { for (let at = one; at; at = at.parentElement) {
    const rgb = numbers(getComputedStyle(at).backgroundColor); if (rgb.length === 3 || rgb[3] > 0) return rgb.slice(0, 3); }
    return [255, 255, 255]; };
  let least = 99;
  for (const one of document.querySelectorAll('body *')) {
    if (![...one.childNodes].some((node) => node.nodeType === 3 && node.data.trim())) continue;
    const [x, y] = [light(numbers(getComputedStyle(one).color).slice(0, 3)), light(behind(one))];
    least = Math.min(least, (Math.max(x, y) + 0.05) / (Math.min(x, y) + 0.05));
  }
  return least; })()";

#[test]
fn without_script_the_page_says_the_verdict_and_everything_under_it() {
    let (place, _daemon, page) = with_page("page-plain");
    ok(&place, "fail home b");
    let mut browser = Browser::start(&place);
    let off = json!({"value": true});
    browser.call("Emulation.setScriptExecutionDisabled", off);
    browser.open(&page);
    let text = browser.ask("document.body.innerText");
    let text = text.as_str().unwrap();
    for words in [
        "WARNING home: 1 of 5 members not in sync; 1 more can fail without loss of data",
        "Losses survived: 1 of 2.",
        "plexum re-add home",
        "b failed: as asked",
        EVIL,
        "This is what was seen when the page was loaded.",
    ] {
        assert!(text.contains(words), "{words}: {text}");
    }
    let buttons =
        "[...document.querySelectorAll('button')].filter((one) => one.checkVisibility()).length";
    assert_eq!(
        browser.ask(buttons),
        0,
        "what only the script can do is not offered"
    );
    no_complaints(&browser);
}

#[test]
fn with_script_the_page_is_live_and_asks_nobody_else() {
    let (place, daemon, page) = with_page("page-live");
    let mut browser = Browser::start(&place);
    browser.open(&page);
    browser.wait_until("document.getElementById('link').textContent.includes('Live.')");
    let heading = "document.querySelector('h1').innerText";
    assert_eq!(browser.ask(heading), "WELL home is whole");
    ok(&place, "fail home b");
    browser.wait_until("document.querySelector('h1').innerText.includes('1 more can fail')");
    ok(&place, "fail home c");
    browser.wait_until(
        "document.querySelector('h1').innerText === 'CRITICAL ONE MORE FAILURE LOSES home'",
    );
    browser.wait_until("document.title.includes('ONE MORE FAILURE LOSES home')");
    browser.wait_until(
        "document.getElementById('incidents').innerText.includes('Open incidents (1)')",
    );
    // What the stream brings is as harmless as what was there at first.
    assert_eq!(browser.ask("document.querySelectorAll('img').length"), 0);
    let requests = browser.requests();
    assert!(requests.len() >= 4, "{requests:?}");
    for request in requests {
        assert!(
            request.starts_with(&page) || request == "data:,",
            "{request}"
        );
    }
    no_complaints(&browser);
    daemon.kill();
    browser.wait_until("document.getElementById('link').textContent.includes('Not live since')");
    browser.wait_until("document.documentElement.classList.contains('stale')");
}

#[test]
fn on_a_telephone_nothing_hangs_over_and_dark_and_light_can_be_read() {
    let (place, _daemon, page) = with_page("page-narrow");
    ok(&place, "fail home b");
    let mut browser = Browser::start(&place);
    let telephone = json!({"width": 360, "height": 740, "deviceScaleFactor": 2, "mobile": true});
    browser.call("Emulation.setDeviceMetricsOverride", telephone);
    let mut papers = Vec::new();
    for scheme in ["light", "dark"] {
        let media = json!({"features": [{"name": "prefers-color-scheme", "value": scheme}]});
        browser.call("Emulation.setEmulatedMedia", media);
        browser.open(&page);
        browser.wait_until("document.getElementById('link').textContent.includes('Live.')");
        assert_eq!(browser.ask("document.documentElement.scrollWidth"), 360);
        assert_eq!(browser.ask(OVERHANGING), "[]");
        let contrast = browser.ask(CONTRAST).as_f64().unwrap();
        assert!(contrast >= 4.5, "{scheme}: {contrast}");
        papers.push(browser.ask("getComputedStyle(document.body).backgroundColor"));
        no_complaints(&browser);
    }
    assert_eq!(papers, ["rgb(255, 255, 255)", "rgb(22, 24, 26)"]);
}

/// Goes on with the tabulator key until the element in focus has this name.
fn tab_to(browser: &mut Browser, name: &str) {
    let focused = "document.activeElement.ariaLabel || document.activeElement.innerText || ''";
    for _ in 0..80 {
        if browser.ask(focused) == name {
            return;
        }
        browser.press("Tab");
    }
    panic!("the keyboard does not reach {name}");
}

fn dialog_says(browser: &mut Browser, words: &str) {
    browser.wait_until(&format!(
        "document.getElementById('dialog').open && document.getElementById('dialog').innerText.includes({words:?})"
    ));
}

#[test]
fn by_keyboard_alone_a_token_is_shown_and_a_member_failed_with_its_name_typed() {
    let (place, _daemon, page) = with_page("page-keys");
    let member = place.file("c").display().to_string();
    let button = format!("fail {member} of home");
    let mut browser = Browser::start(&place);
    browser.open(&page);
    browser.wait_until("document.getElementById('link').textContent.includes('Live.')");
    let offered = "[...document.querySelectorAll('[data-wish]')].filter((one) => one.checkVisibility()).length";
    assert_eq!(
        browser.ask(offered),
        0,
        "who may only look is offered nothing"
    );

    tab_to(&mut browser, "show a token");
    browser.press("Enter");
    dialog_says(&mut browser, "Show a token");
    browser.type_text("nobody-knows-this-one");
    browser.press("Enter");
    browser.wait_until(
        "document.getElementById('link').textContent.includes('nobody knows this token')",
    );
    tab_to(&mut browser, "show a token");
    browser.press("Enter");
    dialog_says(&mut browser, "Show a token");
    browser.type_text(TOKEN);
    browser.press("Enter");
    browser.wait_until("document.documentElement.classList.contains('may-administer')");

    tab_to(&mut browser, &button);
    browser.press("Enter");
    dialog_says(&mut browser, "losses that home survives: 2 now, 1 then");
    browser.press("Escape");
    browser.wait_until("!document.getElementById('dialog').open");

    tab_to(&mut browser, &button);
    browser.press("Enter");
    dialog_says(&mut browser, "To make sure, type the name of the file (c)");
    browser.type_text("d");
    browser.press("Enter");
    dialog_says(
        &mut browser,
        "nothing was done: the name of the file was not typed",
    );
    browser.press("Enter");
    browser.wait_until("!document.getElementById('dialog').open");
    assert_eq!(place.plexum("status home").exit, 0, "nothing was done");

    tab_to(&mut browser, &button);
    browser.press("Enter");
    dialog_says(&mut browser, "To make sure, type the name of the file (c)");
    browser.type_text("c");
    browser.press("Enter");
    dialog_says(&mut browser, "Done");
    browser.wait_until("document.querySelector('h1').innerText.includes('1 more can fail')");
    assert_eq!(place.plexum("status home").exit, 1, "it is degraded");
}
