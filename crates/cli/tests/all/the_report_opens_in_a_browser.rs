//! The report of a small real run beside a small simulated one, opened in Chromium without a screen: charts drawn,
//! nothing clipped, no script error, no request to anybody.

use crate::common::{Place, Run};
use serde_json::Value;

const EXPERIMENT: &str = r#"
name = "a mirror, stripes, and what this machine has"
repetitions = 2
[setup]
on = ["", "mnt", "/dev/nowhere"]
disks = "sata-7200-750"
members = 4
level = ["0", "10"]
strip_bytes = ["64K", "256K"]
[work]
kind = "random-read"
block_bytes = "16K"
processes = 4
requests = 60
range_bytes = "16M"
"#;

/// Who looks at a page.
#[derive(Clone, Copy)]
struct Reader {
    width: u32,
    prefers_dark: &'static str,
}

const TELEPHONE: Reader = Reader {
    width: 360,
    prefers_dark: "no",
};

/// A page that shows another one at some width and says what it sees.
fn looking_at(page: &str, reader: Reader) -> String {
    r#"<!DOCTYPE html><body><iframe id="page" src="PAGE" width="WIDTH" height="700"></iframe><script>
onload = () => {
  const view = document.getElementById("page").contentWindow, page = view.document;
  const box = (one) => one.getBoundingClientRect(), all = (what) => [...page.querySelectorAll(what)];
  const charts = all("svg");
  const seen = {
    title: page.title,
    charts: charts.length,
    drawn: charts.filter((one) => box(one).width > 200 && box(one).height > 60).length,
    bars: all("svg rect").filter((one) => box(one).width > 20 && box(one).height > 5).length,
    points: all("svg circle").length,
    clipped: all("svg text").filter((one) => box(one).left < box(one.closest("svg")).left - 1
      || box(one).right > box(one.closest("svg")).right + 1).map((one) => one.textContent),
    letters: Math.min(...all("svg text").map((one) => box(one).height)),
    width: page.documentElement.scrollWidth,
    rows: all("tr").length,
    right: Math.max(...all("svg, table").map((one) => box(one).right)),
    columns: new Set(charts.map((one) => Math.round(box(one).left))).size,
    heading: page.querySelector("h1")?.textContent,
    labels: all("svg text").map((one) => one.textContent).join(" "),
    colours: ["body", "svg", "svg text", "td"].map((what) => page.querySelector(what)).filter((one) => one)
      .map((one) => [view.getComputedStyle(one).color, view.getComputedStyle(one).fill].join(" ")),
    paper: ["body", "svg"].map((what) => page.querySelector(what)).filter((one) => one)
      .map((one) => view.getComputedStyle(one).backgroundColor),
    skipped: all("li").filter((one) => one.textContent.includes("skipped")).length,
    scripts: page.scripts.length,
    requests: view.performance.getEntriesByType("resource").map((one) => one.name),
  };
  document.body.textContent = JSON.stringify(seen);
};
</script></body>"#
        .replace("PAGE", page)
        .replace("WIDTH", &reader.width.to_string())
}

/// Opens a page; what it says when it has been drawn.
fn browse(place: &Place, page: &str, reader: Reader) -> (Value, Run) {
    let looking = looking_at(page, reader);
    std::fs::write(place.file("looking.html"), looking).unwrap();
    let scheme = match reader.prefers_dark {
        "yes" => 0,
        _ => 1,
    };
    let folder = place.folder.display();
    let run = place.tool(
        "chromium",
        &format!(
            "--headless --no-sandbox --disable-gpu --no-first-run --disable-background-networking \
             --allow-file-access-from-files --user-data-dir={folder}/profile --enable-logging=stderr \
             --blink-settings=preferredColorScheme={scheme} --window-size=1600,900 \
             --proxy-server=127.0.0.1:9 --dump-dom file://{folder}/looking.html"
        ),
    );
    assert_eq!(run.exit, 0, "{}", run.err);
    let start = run.out.find('{');
    let end = run.out.rfind('}');
    let (Some(start), Some(end)) = (start, end) else {
        panic!("the page says nothing: {}\n{}", run.out, run.err);
    };
    let text = run.out[start..=end]
        .replace("&lt;", "<")
        .replace("&amp;", "&");
    (serde_json::from_str(&text).unwrap(), run)
}

#[test]
fn a_report_of_real_and_simulated_runs_is_drawn_without_script_or_network() {
    let place = Place::new("lab-browser");
    std::fs::create_dir(place.file("mnt")).unwrap();
    std::fs::write(place.file("e.toml"), EXPERIMENT).unwrap();
    let made = place.plexum("lab run e.toml --out report");
    assert_eq!(made.exit, 0, "{}", made.err);
    assert_eq!(std::fs::read_dir(place.file("mnt")).unwrap().count(), 0);

    let (seen, run) = browse(&place, "report/report.html", TELEPHONE);
    let number = |key: &str| {
        seen[key]
            .as_u64()
            .unwrap_or_else(|| panic!("{key}: {seen}"))
    };
    // Bars of two figures, one figure over strips, how long reads took, the disks of the best one.
    assert_eq!((number("charts"), number("drawn")), (5, 5), "{seen}");
    assert!(
        number("bars") >= 2,
        "the best of each chart is long: {seen}"
    );
    assert_eq!(number("points"), 4, "two levels, two strips: {seen}");
    assert_eq!(seen["clipped"], Value::Array(Vec::new()), "{seen}");
    assert!(
        seen["letters"].as_f64().unwrap() >= 9.0,
        "too small to read: {seen}"
    );
    assert!(number("width") <= 360, "wider than a telephone: {seen}");
    assert!(number("rows") >= 5 * 2, "{seen}");
    assert_eq!(number("skipped"), 1, "{seen}");
    assert_eq!(number("scripts"), 0, "{seen}");
    assert_eq!(seen["requests"], Value::Array(Vec::new()), "{seen}");
    assert!(!run.err.contains("CONSOLE"), "{}", run.err);

    // The published tables as a page.
    let made = place.plexum("lab reproduce random-read --out tables.html");
    assert_eq!(made.exit, 0, "{}", made.err);
    let (seen, _) = browse(&place, "tables.html", TELEPHONE);
    assert_eq!(
        (&seen["charts"], &seen["drawn"]),
        (&1.into(), &1.into()),
        "{seen}"
    );
    assert_eq!(seen["clipped"], Value::Array(Vec::new()), "{seen}");
    assert!(
        seen["bars"].as_u64() >= Some(2 * 4),
        "published and ours of four cells: {seen}"
    );
    assert_eq!(seen["requests"], Value::Array(Vec::new()), "{seen}");

    // The same look sees what it has to see.
    let bad = "<!DOCTYPE html><title>bad</title><img src=\"http://127.0.0.1:9/x.png\"><script>nothing()</script>\
        <svg width=\"90\" height=\"20\"><text x=\"-50\" y=\"9\">clipped</text></svg>";
    std::fs::write(place.file("bad.html"), bad).unwrap();
    let (seen, run) = browse(&place, "bad.html", TELEPHONE);
    assert_eq!(seen["requests"].as_array().unwrap().len(), 1, "{seen}");
    assert_eq!(seen["clipped"][0], "clipped", "{seen}");
    assert_eq!(seen["drawn"], 0, "{seen}");
    assert!(run.err.contains("CONSOLE"), "{}", run.err);
}

#[test]
fn a_report_has_its_name_uses_the_width_and_is_dark_for_whoever_prefers_that() {
    let place = Place::new("lab-browser-dark");
    let long = "[\"nas-12t, nas-12t, nas-12t, sata-7200-750, nas-12t, nas-12t, nas-12t\", \
        \"nas-12t, nas-12t, nas-12t, scsi-1989, nas-12t, nas-12t, nas-12t\"]";
    let experiment = EXPERIMENT
        .replace("on = [\"\", \"mnt\", \"/dev/nowhere\"]\n", "")
        .replace("\"sata-7200-750\"", long)
        .replace("members = 4", "members = 7")
        .replace("[\"0\", \"10\"]", "\"0\"")
        .replace("range_bytes = \"16M\"\n", "");
    std::fs::write(place.file("e.toml"), experiment).unwrap();
    let made = place.plexum("lab run e.toml --out report");
    assert_eq!(made.exit, 0, "{}", made.err);
    let desk = |prefers_dark: &'static str| {
        let reader = Reader {
            width: 1500,
            prefers_dark,
        };
        browse(&place, "report/report.html", reader).0
    };
    let light = desk("no");
    let name = "a mirror, stripes, and what this machine has";
    assert_eq!(
        (&light["title"], &light["heading"]),
        (&name.into(), &name.into())
    );
    let right = light["right"].as_f64().unwrap();
    assert!(right > 1500.0 * 0.9, "half the page is empty: {light}");
    assert!(
        light["columns"].as_u64() >= Some(2),
        "charts beside each other: {light}"
    );
    assert_eq!(light["clipped"], Value::Array(Vec::new()), "{light}");
    let labels = light["labels"].as_str().unwrap();
    assert!(
        labels.contains("sata-7200-750") && labels.contains("scsi-1989"),
        "{labels}"
    );
    let dark = desk("yes");
    let brightness = |text: &str| {
        let numbers = text
            .split(|c: char| !c.is_ascii_digit())
            .filter_map(|n| n.parse::<u32>().ok());
        numbers.take(3).sum::<u32>() / 3
    };
    let all = |seen: &Value, key: &str| -> Vec<u32> {
        let texts = seen[key].as_array().unwrap().iter();
        texts
            .map(|text| brightness(text.as_str().unwrap()))
            .collect()
    };
    assert!(
        all(&light, "paper").iter().all(|value| *value > 240),
        "{light}"
    );
    assert!(
        all(&light, "colours").iter().all(|value| *value < 60),
        "{light}"
    );
    assert!(
        all(&dark, "paper").iter().all(|value| *value < 60),
        "{dark}"
    );
    assert!(
        all(&dark, "colours").iter().all(|value| *value > 200),
        "{dark}"
    );
}
