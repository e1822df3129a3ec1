//! One format becomes another with the program: in place, and onto new members.

use crate::common::{Place, ok, uri};
use crate::freebsd::{fill, lay_out};
use plexum_testkit::freebsd_cases;

#[test]
fn a_mirror_becomes_a_linux_array_and_comes_back_in_place() {
    let place = Place::new("convert-in-place");
    ok(
        &place,
        "create gm0 --level 1 --format gmirror --member-size 2M a.img b.img",
    );
    let before = place.snapshot();
    let refused = place.plexum("convert a.img b.img --to md-1.0");
    assert_eq!(refused.exit, 4, "{}", refused.err);
    assert!(
        refused.err.contains("7680 bytes smaller"),
        "{}",
        refused.err
    );
    assert!(place.snapshot() == before, "nothing was written");
    ok(&place, "gmirror resize --in . -s 4000 gm0");
    ok(&place, "serve --background --write a.img b.img");
    fill(&place, "gm0", 2_048_000, 6);
    ok(&place, "stop gm0");
    let before = place.snapshot();
    let plan = ok(&place, "convert --dry-run a.img b.img --to md-1.0");
    assert!(plan.contains("gmirror becomes raid1, md-1.0"), "{plan}");
    assert!(
        plan.contains("erase 512 bytes at byte 2096640 of a.img"),
        "{plan}"
    );
    assert!(place.snapshot() == before, "only a plan");
    ok(&place, "convert a.img b.img --to md-1.0");
    assert!(ok(&place, "examine a.img").contains("md superblock 1.0"));
    ok(&place, "serve --background a.img b.img");
    fill(&place, "gm0", 512, 7);
    ok(&place, "stop gm0");
    ok(&place, "convert a.img b.img --to gmirror");
    assert!(ok(&place, "convert a.img b.img --to gmirror").contains("already"));
    let list = ok(&place, "gmirror list --in .");
    assert!(list.contains("State: COMPLETE"), "{list}");
    let data = std::fs::read(place.file("b.img")).unwrap();
    assert_eq!(
        (data[..512] == [7; 512], data[512..4096] == [6; 3584]),
        (true, true)
    );
}

#[test]
fn a_linux_array_becomes_a_vinum_volume_in_place() {
    let place = Place::new("convert-to-gvinum");
    let words = "convert a.img b.img --to gvinum";
    ok(
        &place,
        "create v --level 0 --format md-1.1 --strip 64k --member-size 8M a.img b.img",
    );
    ok(&place, "serve --background a.img b.img");
    fill(&place, "v", 300_032, 6);
    ok(&place, "stop v");
    ok(&place, words);
    assert!(ok(&place, words).contains("current already"));
    let list = ok(&place, "gvinum list --in .");
    assert!(list.contains("P v.p0                S State: up"), "{list}");
    let data = std::fs::read(place.file("a.img")).unwrap();
    assert!(data[..4096].iter().all(|byte| *byte == 0));
    assert!(
        data[2 << 20..][..512] == [6; 512],
        "the data stay where they were"
    );
    ok(
        &place,
        "create w --level 1 --format md-1.2 --member-size 8M c.img d.img",
    );
    let refused = place.plexum("convert c.img d.img --to gvinum");
    assert_eq!(refused.exit, 4, "{}", refused.err);
    let (why, way) = ("where the header of a Vinum drive goes", "--onto MEMBER");
    assert!(
        refused.err.contains(why) && refused.err.contains(way),
        "{}",
        refused.err
    );
}

#[test]
fn a_vinum_volume_is_copied_onto_a_linux_array_and_back() {
    let place = Place::new("convert-onto");
    ok(
        &place,
        "create v --level 5 --format gvinum --member-size 3M d0.img d1.img d2.img",
    );
    ok(&place, "serve --background --write d0.img d1.img d2.img");
    fill(&place, "v", 1 << 20, 9);
    ok(&place, "stop v");
    let small = place.plexum(
        "convert d0.img d1.img d2.img --to md-1.2 --level 1 --member-size 5M --onto x.img y.img",
    );
    assert_eq!(small.exit, 4, "{}", small.err);
    assert!(small.err.contains("the old one has"), "{}", small.err);
    assert!(!place.file("x.img").exists());
    let words =
        "convert d0.img d1.img d2.img --to md-1.2 --level 1 --member-size 16M --onto x.img y.img";
    ok(&place, &format!("{words} --dry-run"));
    assert!(!place.file("x.img").exists());
    ok(&place, words);
    assert!(!place.file("plexum-convert-v.journal").exists());
    ok(
        &place,
        "convert x.img y.img --to gvinum --member-size 20M --onto e0.img e1.img",
    );
    ok(&place, "serve --background e0.img e1.img");
    let run = place.tool("nbdcopy", &format!("{} content", uri(&place, "v")));
    assert_eq!(run.exit, 0, "{}", run.err);
    ok(&place, "stop v");
    assert!(std::fs::read(place.file("content")).unwrap()[..1 << 20] == [9; 1 << 20]);
}

#[test]
fn volumes_of_all_formats_are_copied_into_a_pool_and_back() {
    let place = Place::new("convert-pool");
    ok(&place, "pool create tank raidz1 --member-size 96M p q r");
    let sources = [
        (
            "md",
            "create md --level 5 --member-size 9M a0 a1 a2",
            "a0 a1 a2",
        ),
        (
            "gm",
            "create gm --level 1 --format gmirror --member-size 9M b0 b1",
            "b0 b1",
        ),
        (
            "gv",
            "create gv --level 5 --format gvinum --member-size 9M c0 c1 c2",
            "c0 c1 c2",
        ),
    ];
    for (at, (name, create, members)) in sources.into_iter().enumerate() {
        let byte = 7 + at as u8;
        ok(&place, create);
        ok(&place, &format!("serve --background --write {members}"));
        fill(&place, name, 1 << 20, byte);
        ok(&place, &format!("stop {name}"));
        let words = format!("convert {members} --to zfs --name tank/{name} --onto p q r");
        let before = place.snapshot();
        let plan = ok(&place, &format!("{words} --dry-run"));
        assert!(
            plan.contains(&format!("create tank/{name}: volume of")),
            "{plan}"
        );
        assert!(place.snapshot() == before, "only a plan");
        ok(&place, &words);
        assert!(
            !place
                .file(&format!("plexum-convert-{name}.journal"))
                .exists()
        );
        assert!(ok(&place, "pool check p q r").contains("tank"));
        let back = format!("x{at} y{at}");
        let level = place.plexum(&format!(
            "convert p q r --volume tank/{name} --to md-1.2 --onto {back}"
        ));
        assert_eq!(level.exit, 2, "{}", level.err);
        assert!(level.err.contains("--level"), "{}", level.err);
        ok(
            &place,
            &format!(
                "convert p q r --volume tank/{name} --to md-1.2 --level 1 --member-size 24M --onto {back}"
            ),
        );
        ok(&place, &format!("serve --background {back}"));
        let run = place.tool("nbdcopy", &format!("{} content{at}", uri(&place, name)));
        assert_eq!(run.exit, 0, "{}", run.err);
        ok(&place, &format!("stop {name}"));
        let content = std::fs::read(place.file(&format!("content{at}"))).unwrap();
        assert!(content[..1 << 20] == vec![byte; 1 << 20]);
    }
}

#[test]
fn a_copy_into_or_out_of_a_pool_says_what_it_lacks() {
    let place = Place::new("convert-pool-refused");
    ok(&place, "create v --level 1 --member-size 9M a b");
    ok(&place, "pool create tank mirror --member-size 96M p q");
    let refused = |words: &str, exit: i32, text: &str| {
        let before = place.snapshot();
        let run = place.plexum(words);
        assert_eq!(run.exit, exit, "{words}: {}", run.err);
        assert!(run.err.contains(text), "{words}: {}", run.err);
        assert!(place.snapshot() == before, "{words}: nothing was written");
    };
    refused("convert a b --to zfs --onto p q", 2, "--name tank/vol");
    refused("convert a b --to zfs --name other/v --onto p q", 4, "other");
    refused("convert a b --to zfs --name tank/v --onto p", 4, "q");
    refused(
        "convert p q --volume tank/none --to md-1.2 --level 1 --onto x y",
        4,
        "none",
    );
    ok(&place, "pool create-volume tank/v 1M p q");
    refused("convert a b --to zfs --name tank/v --onto p q", 4, "tank/v");
    ok(&place, "serve --background --write --dataset tank/v p q");
    refused("convert a b --to zfs --name tank/w --onto p q", 6, "in use");
    ok(&place, "stop v");
}

#[test]
fn headers_of_before_2009_are_converted_on_request() {
    let place = Place::new("convert-headers");
    let cases = freebsd_cases("gvinum");
    let legacy = cases.iter().find(|case| {
        let drives = case["drives"].as_array().unwrap();
        case["id"].as_str().unwrap().contains("legacy") && !drives.is_empty()
    });
    let legacy = legacy.expect("a golden image has headers of before 2009");
    let files = lay_out(&place, legacy, "drives").join(" ");
    assert!(ok(&place, &format!("examine {files}")).contains("legacy"));
    let config = ok(&place, &format!("config {files}"));
    let before = place.snapshot();
    ok(&place, &format!("convert --dry-run {files} --to gvinum"));
    assert!(place.snapshot() == before);
    ok(&place, &format!("convert {files} --to gvinum"));
    let after = ok(&place, &format!("examine {files}"));
    assert!(
        !after.contains("legacy") && after.contains("current"),
        "{after}"
    );
    assert_eq!(ok(&place, &format!("config {files}")), config);
    assert!(ok(&place, &format!("convert {files} --to gvinum")).contains("current already"));
}
