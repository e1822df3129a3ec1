// A dry run of every command: words that the real thing refuses, and words that it would carry out. Read by the test
// that runs them, and by the one that holds the commands against the declaration of the command line, so that none is
// forgotten.

/// A command with its dry runs; words are separated by blanks. `Z` stands for the members of a ZFS pool.
pub struct Case {
    /// The command, with its subcommand.
    pub command: &'static str,
    /// What the real thing refuses.
    pub refused: &'static [&'static str],
    /// What it would do.
    pub done: &'static [&'static str],
}

const fn case(
    command: &'static str,
    refused: &'static [&'static str],
    done: &'static [&'static str],
) -> Case {
    Case {
        command,
        refused,
        done,
    }
}

/// The processes below attachments, which nobody starts by hand.
#[allow(dead_code)] // read by one of the two
pub const INTERNAL: [&str; 5] =
    ["attach-nbd-process", "attach-process", "tree-process", "udev-claim", "volume-names"];

/// All of them.
pub const CASES: &[Case] = &[
    case("demo", &["demo --level 0", "demo --members 1"], &["demo"]),
    case(
        "create",
        &[
            "create x --level 1 used.img new.img",
            "create x --level 1 --force -y a.img new.img",
            "create x --level 1 new.img new.img",
            "create x --level 1 new.img nowhere.img",
            "create x --level 1 --format gmirror used.img new.img",
            "create x --level 1 --format gmirror --member-size 2M nowhere/p.img nowhere/q.img",
            "create x --level 1 --force -y looped.img new.img",
            "create x --level 1 --assume-clean --try used.img nothere",
        ],
        &[
            "create x --level 1 --member-size 24M new.img p.img",
            "create x --level 1 --force used.img new.img",
            "create x --level 1 --assume-clean --try used.img new.img",
            "create x --level 1 --format gmirror --member-size 2M p.img q.img",
        ],
    ),
    case("examine", &["examine nothere"], &["examine used.img"]),
    case("scan", &["scan nothere"], &["scan ."]),
    case("explain", &["explain nothere"], &["explain stale_member"]),
    case(
        "serve",
        &[
            "serve nothere",
            "serve new.img",
            "serve used.img",
            "serve a.img b.img",
            "serve --name nas used.img used2.img",
            "serve --socket new.img used.img used2.img",
            "serve --listen 127.0.0.1:1 --tls wrong used.img used2.img",
            "serve --balance bogus used.img used2.img",
            "serve --scan nothere",
            "serve --dataset z01_single_a12/nothere Z",
            "serve --write --dataset z01_single_a12/vol Z",
        ],
        &[
            "serve used.img used2.img",
            "serve --background used.img used2.img",
            "serve --write gm/a gm/b",
            "serve --write --dataset zp/old zp.img",
            "serve --listen 127.0.0.1:0 used.img used2.img",
        ],
    ),
    case("status", &["status nothere"], &["status nas"]),
    case("stop", &["stop nothere", "stop under"], &["stop nas", "stop --force under"]),
    case(
        "attach",
        &["attach nothere", "attach under", "attach nas nowhere/", "attach nas --by fuse --timeout 5", "attach --dataset nopool/x mnt Z"],
        &["attach nas", "attach nas --by fuse", "attach --dataset z01_single_a12 mnt Z"],
    ),
    case("detach", &["detach nothere"], &["detach under"]),
    case(
        "fail",
        &["fail nas nothere", "fail lame m.img", "fail flat f.img"],
        &["fail nas a.img", "fail nas 1"],
    ),
    case(
        "add",
        &[
            "add nas used.img",
            "add nas a.img",
            "add nas nothere",
            "add nas tiny.img",
            "add flat new.img",
            "add nas --force -y looped.img",
        ],
        &["add nas new.img", "add nas --force used.img"],
    ),
    case(
        "remove",
        &["remove nas a.img", "remove nas nothere", "remove flat f.img"],
        &["remove nas s.img", "remove lame n.img"],
    ),
    case(
        "re-add",
        &["re-add nas a.img", "re-add nas new.img", "re-add nas used.img"],
        &["re-add lame n.img"],
    ),
    case(
        "replace",
        &[
            "replace nas a.img used.img",
            "replace nas nothere new.img",
            "replace nas a.img nothere",
            "replace nas a.img tiny.img",
            "replace flat f.img new.img",
            "replace nas a.img looped.img --force -y",
        ],
        &["replace nas a.img new.img", "replace nas 0 new.img --wait"],
    ),
    case(
        "scrub",
        &["scrub nothere", "scrub flat"],
        &["scrub nas", "scrub nas --repair --wait"],
    ),
    case(
        "set",
        &[
            "set nas balance=bogus",
            "set flat balance=load",
            "set nas nothing=1",
            "set nas rebuild-min=2M rebuild-max=1M",
            "set nas bitmap-region=5",
            "set lame bitmap=none",
            "set nas log=write-back",
            "set nas consistency=ppl",
            "set flat bitmap=internal",
        ],
        &["set nas balance=round-robin", "set nas rebuild=pause bitmap=none"],
    ),
    case("stats", &["stats nothere"], &["stats nas --reset"]),
    case("top", &["top", "top nothere"], &["top --once"]),
    case("events", &["events nothere"], &["events nas"]),
    case("debug", &["debug requests nothere"], &["debug requests nas"]),
    case("sim", &["sim --trace"], &["sim --seed 1"]),
    case("bench", &["bench nothere"], &["bench parity --chart chart.svg"]),
    case("completions", &["completions nothere"], &["completions bash"]),
    case("man", &["man --out used.img"], &["man", "man --out pages"]),
    case(
        "lab work",
        &[
            "lab work nothere",
            "lab work random-write --on new.img",
            "lab work random-write --on new.img --destroy used.img",
            "lab work random-write --on a.img --destroy a.img",
            "lab work random-write --on looped.img --destroy looped.img",
            "lab work random-write --on new.img --destroy new.img --range 1T",
            "lab work random-write --on mnt --destroy mnt",
        ],
        &[
            "lab work random-write --on new.img --destroy new.img --requests 2",
            "lab work random-write --on mnt --range 4M --requests 2",
        ],
    ),
    case("lab reproduce", &["lab reproduce nothere"], &[]),
    case("lab balance", &["lab balance nothere"], &[]),
    case(
        "lab run",
        &["lab run nothere.toml", "lab run wrong.toml", "lab run small.toml --out used.img"],
        &["lab run small.toml"],
    ),
    case("lab report", &["lab report nothere", "lab report done --fio nothere"], &["lab report done"]),
    case(
        "lab calibrate",
        &["lab calibrate nothere", "lab calibrate big.img --out used.img"],
        &["lab calibrate big.img --out big.toml"],
    ),
    case("lab predict", &["lab predict nothere --disk sata-7200-750"], &[]),
    case("lab presets", &["lab presets nothere"], &["lab presets"]),
    case("grow", &["grow nothere", "grow nas --members 9", "grow nas"], &["grow nas --members 3"]),
    case(
        "daemon",
        &["daemon --degraded bogus", "daemon --metrics-listen 0.0.0.0:0"],
        &["daemon", "daemon --metrics-listen 127.0.0.1:0 --scrub-every 30d --scrub-within 01:00-06:00"],
    ),
    case("forget", &["forget nas"], &[]),
    case("history", &["history nothere"], &["history"]),
    case("undo", &["undo 77"], &[]),
    case("disks", &["disks nothere"], &["disks nas"]),
    case("locate", &["locate nothere 0", "locate nas 7", "locate nas 0"], &["locate --all-off"]),
    case("metrics", &["metrics nothere"], &["metrics"]),
    case("doctor", &["doctor nothere"], &["doctor used.img"]),
    case("incident", &["incident 1"], &[]),
    case("ack", &["ack 1 --why known"], &[]),
    case("alert test", &["alert test journal"], &[]),
    case("pool list", &["pool list nothere"], &["pool list Z"]),
    case("pool ls", &["pool ls z01_single_a12:/nothere Z"], &["pool ls z01_single_a12:/dir Z"]),
    case(
        "pool cat",
        &["pool cat z01_single_a12:/nothere Z"],
        &["pool cat z01_single_a12:/tiny.txt Z"],
    ),
    case(
        "pool cp",
        &[
            "pool cp z01_single_a12:/nothere out Z",
            "pool cp z01_single_a12:/dir out Z",
            "pool cp z01_single_a12:/tiny.txt used.img Z",
        ],
        &["pool cp z01_single_a12:/tiny.txt out Z", "pool cp -r z01_single_a12:/ out Z"],
    ),
    case("pool check", &["pool check nothere"], &["pool check Z"]),
    case(
        "pool create",
        &[
            "pool create tank mirror used.img new.img",
            "pool create tank mirror p.img q.img",
            "pool create tank raidz2 --member-size 96M p.img q.img",
            "pool create mirror --member-size 96M p.img",
        ],
        &["pool create tank mirror --member-size 96M p.img q.img"],
    ),
    case(
        "pool create-volume",
        &["pool create-volume z01_single_a12/new 1M Z", "pool create-volume zp/old 1M zp.img", "pool create-volume zp/new 1000 zp.img"],
        &["pool create-volume zp/new 1M zp.img"],
    ),
    case("pool scrub", &["pool scrub --repair Z"], &["pool scrub Z", "pool scrub --repair zp.img"]),
    case("pool status", &["pool status nothere"], &["pool status za.img zb.img"]),
    case(
        "pool snapshot",
        &["pool snapshot zp/old@s zp.img", "pool snapshot zp/none@x zp.img", "pool snapshot zm/v@x za.img"],
        &["pool snapshot zp/old@x zp.img"],
    ),
    case(
        "pool destroy-snapshot",
        &["pool destroy-snapshot zp/old@s zp.img", "pool destroy-snapshot --force -y zp/old@x zp.img"],
        &["pool destroy-snapshot --force zp/old@s zp.img"],
    ),
    case(
        "pool destroy-volume",
        &["pool destroy-volume zp/old zp.img", "pool destroy-volume --force -y zp/old zp.img"],
        &["pool destroy-volume --force zp/free zp.img"],
    ),
    case(
        "pool rollback",
        &["pool rollback zp/old@s zp.img", "pool rollback --force -y zp/old@x zp.img"],
        &["pool rollback --force zp/old@s zp.img"],
    ),
    case(
        "pool clone",
        &["pool clone zp/old@x zp/new zp.img", "pool clone zp/old@s zp/old zp.img"],
        &["pool clone zp/old@s zp/new zp.img"],
    ),
    case(
        "pool rename",
        &["pool rename zp/none zp/new zp.img", "pool rename zp/old zp/old zp.img", "pool rename zp/old zp/old@x zp.img"],
        &["pool rename zp/old zp/new zp.img", "pool rename zp/old@s zp/old@t zp.img"],
    ),
    case(
        "pool resize",
        &["pool resize zp/old 512K zp.img", "pool resize zp/old 1000 zp.img"],
        &["pool resize zp/old 2M zp.img", "pool resize --shrink zp/old 512K zp.img"],
    ),
    case(
        "pool offline",
        &["pool offline zp.img zp.img", "pool offline nothere za.img zb.img", "pool offline za.img za.img missing"],
        &["pool offline za.img za.img zb.img"],
    ),
    case(
        "pool online",
        &["pool online nothere za.img zb.img"],
        &["pool online za.img za.img zb.img"],
    ),
    case(
        "pool replace",
        &[
            "pool replace za.img tiny.img za.img zb.img",
            "pool replace za.img used.img za.img zb.img",
            "pool replace nothere big.img za.img zb.img --force -y",
        ],
        &["pool replace za.img zc.img za.img zb.img --member-size 64M"],
    ),
    case(
        "pool attach",
        &[
            "pool attach za.img tiny.img za.img zb.img",
            "pool attach za.img used.img za.img zb.img",
            "pool attach nothere big.img za.img zb.img --force -y",
        ],
        &["pool attach za.img zc.img za.img zb.img --member-size 64M"],
    ),
    case(
        "pool detach",
        &["pool detach zp.img zp.img", "pool detach nothere za.img zb.img"],
        &["pool detach za.img za.img zb.img"],
    ),
    case(
        "pool add",
        &[
            "pool add zc.img --to za.img zb.img --member-size 64M",
            "pool add mirror tiny.img zc.img --to za.img zb.img --member-size 64M",
            "pool add mirror zc.img zd.img mirror ze.img zf.img --to za.img zb.img --member-size 64M",
        ],
        &["pool add mirror zc.img zd.img --to za.img zb.img --member-size 64M"],
    ),
    case(
        "gmirror",
        &[
            "gmirror remove nothere gm/a --in gm",
            "gmirror label gm1 nothere new.img",
            "gmirror insert gm0 nothere --in gm",
            "gmirror insert gm0 looped.img --in gm",
            "gmirror clear new.img",
            "gmirror stop nothere",
        ],
        &[
            "gmirror label gm1 new.img",
            "gmirror destroy gm0 --in gm",
            "gmirror configure -b round-robin gm0 --in gm",
            "gmirror clear gm/a",
        ],
    ),
    case(
        "gvinum",
        &[
            "gvinum rm nothere --in gv",
            "gvinum stop nothere",
            "gvinum concat nothere --in gv",
            "gvinum concat looped.img --in gv",
        ],
        &["gvinum resetconfig -f --in gv", "gvinum setstate -f down v.p0.s0 --in gv"],
    ),
    case(
        "convert",
        &[
            "convert nothere --to md-1.0",
            "convert used.img used2.img --to nothing",
            "convert a.img b.img --to md-1.0",
            "convert used.img used2.img --to md-1.0",
            "convert used.img used2.img --to md-1.2 --onto new.img gm/a",
        ],
        &[
            "convert used.img used2.img --to md-1.2",
            "convert used.img used2.img --to md-1.2 --onto p.img q.img --member-size 24M",
        ],
    ),
    case("config", &["config nothere"], &["config gv/d0 gv/d1"]),
];
