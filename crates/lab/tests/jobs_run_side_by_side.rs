//! Jobs at the same time, on one volume over unlike disks and on volumes of their own.
#![allow(clippy::unwrap_used)]

use plexum_lab::array::Mode;
use plexum_lab::setup::Setup;
use plexum_lab::setup::beside::{VolumeBeside, check_jobs};
use plexum_lab::work::{Measurement, Work, measure};
use plexum_lab::workload::jobs::Job;
use plexum_lab::worth::Worth;

fn volume(name: &str, disks: &[usize], job: &str) -> VolumeBeside {
    VolumeBeside {
        name: name.to_owned(),
        disks: disks.to_vec(),
        jobs: vec![job.to_owned()],
        level: Some("1".to_owned()),
        ..VolumeBeside::default()
    }
}

fn mixed_disks() -> Setup {
    Setup {
        disks: ["nas-12t", "nas-12t", "ssd-sata"]
            .map(str::to_owned)
            .to_vec(),
        has_bitmap: false,
        strip_bytes: 64 << 10,
        ..Setup::default()
    }
}

fn beside() -> Setup {
    Setup {
        volumes: vec![
            volume("hdd", &[0, 1], "archive"),
            volume("ssd", &[2, 3], "database"),
        ],
        ..mixed_disks()
    }
}

fn work() -> Work {
    let database = Job {
        name: "database".to_owned(),
        kind: "random-write".to_owned(),
        range_bytes: 20 << 30,
        is_sync: true,
        ..Job::default()
    };
    let archive = Job {
        name: "archive".to_owned(),
        kind: "sequential-read".to_owned(),
        block_bytes: 1 << 20,
        processes: 1,
        range_bytes: 40 << 30,
        ..Job::default()
    };
    Work {
        kind: "jobs".to_owned(),
        jobs: vec![database, archive],
        seconds: 2,
        ..Work::default()
    }
}

fn figure(seen: &Measurement, name: &str) -> f64 {
    let found = seen.figures.iter().find(|figure| figure.name == name);
    found.expect("it is there").value
}

#[test]
fn jobs_on_volumes_of_their_own_do_not_disturb_each_other_and_on_one_volume_they_do() {
    let (apart, one) = (
        measure(&beside(), &work(), 1).unwrap(),
        measure(&mixed_disks(), &work(), 1).unwrap(),
    );
    let names: Vec<&str> = apart.figures.iter().map(|one| one.name.as_str()).collect();
    assert_eq!(names, ["together", "database requests", "archive requests"]);
    for name in names {
        let (apart, one) = (figure(&apart, name), figure(&one, name));
        assert!(apart > 1.5 * one, "{name}: {apart} {one}");
    }
    let mean = (figure(&apart, "database requests") * figure(&apart, "archive requests")).sqrt();
    assert!((figure(&apart, "together") / mean - 1.0).abs() < 1e-9);
    // The same jobs alone, on the same volumes: nothing is in their way.
    for (job, volume) in work().jobs.iter().zip([1, 0]) {
        let setup = beside();
        let alone = setup.alone(&setup.volumes[volume]);
        let work = Work {
            jobs: vec![job.clone()],
            ..work()
        };
        let name = format!("{} requests", job.name);
        let alone = figure(&measure(&alone, &work, 1).unwrap(), &name);
        let seen = figure(&apart, &name);
        assert!((seen / alone - 1.0).abs() < 0.05, "{name}: {seen} {alone}");
    }
}

#[test]
fn every_volume_tells_what_it_did_holds_and_survives() {
    let seen = measure(&beside(), &work(), 1).unwrap();
    let [hdd, ssd] = seen.volumes.as_slice() else {
        panic!("{:?}", seen.volumes)
    };
    assert_eq!(
        (hdd.name.as_str(), hdd.what.as_str()),
        ("hdd", "RAID-1 of 2")
    );
    assert_eq!(
        (&hdd.jobs[..], &ssd.jobs[..]),
        (&["archive".to_owned()][..], &["database".to_owned()][..])
    );
    assert!((hdd.requests_per_s - figure(&seen, "archive requests")).abs() < 0.1);
    assert!((hdd.kib_per_s / hdd.requests_per_s - 1024.0).abs() < 1.0);
    let worth = |name: &str| Worth::of_volume(&beside(), name).unwrap();
    assert!(worth("hdd").usable_gb() > 20.0 * worth("ssd").usable_gb());
    assert_eq!((worth("hdd").losses, worth("ssd").losses), (1, 1));
    assert!(
        hdd.busy_percent > 30.0 && ssd.busy_percent > 10.0,
        "{hdd:?} {ssd:?}"
    );
    let wrong = seen.inside.checks.iter().find(|check| !check.is_right);
    assert_eq!(wrong, None);
    let one = measure(&mixed_disks(), &work(), 1).unwrap();
    assert_eq!(one.volumes.len(), 1);
    assert_eq!(
        (one.volumes[0].name.as_str(), one.volumes[0].jobs.len()),
        ("all", 2)
    );
}

#[test]
fn jobs_that_cannot_be_are_refused_by_name() {
    type Change = dyn Fn(&mut Work);
    let cases: [(&Change, &str); 8] = [
        (&|one| one.jobs.clear(), "[[work.jobs]]"),
        (&|one| one.jobs[0].name.clear(), "not \"\""),
        (
            &|one| one.jobs[0].name = "archive".to_owned(),
            "not \"archive\"",
        ),
        (
            &|one| one.jobs[0].kind = "bonnie".to_owned(),
            "\"bonnie\" of database",
        ),
        (&|one| one.jobs[0].depth = 0, "database: processes"),
        (&|one| one.range_bytes = 1 << 30, "range_bytes of its own"),
        (
            &|one| one.kind = "random-read".to_owned(),
            "not for random-read",
        ),
        (&|one| one.jobs[0].range_bytes = 1 << 40, "volume ssd has"),
    ];
    for (change, told) in cases {
        let mut work = work();
        change(&mut work);
        let error = measure(&beside(), &work, 1).unwrap_err().to_string();
        assert!(error.contains(told), "{told}: {error}");
    }
    let other = Work::default();
    let error = measure(&beside(), &other, 1).unwrap_err().to_string();
    assert!(error.contains("jobs or fio"), "{error}");
}

#[test]
fn jobs_of_fio_run_on_the_volumes_that_carry_them() {
    let file = tempfile::NamedTempFile::new().unwrap();
    let text = "[global]\nbs=4k\nsize=1m\nioengine=libaio\n[archive]\nrw=read\n[database]\nrw=randwrite\n\
                [later]\nstonewall\nrw=randread\n";
    std::fs::write(file.path(), text).unwrap();
    let work = Work {
        kind: "fio".to_owned(),
        file: file.path().display().to_string(),
        ..Work::default()
    };
    let mut setup = beside();
    setup.volumes[1].jobs.push("later".to_owned());
    let seen = measure(&setup, &work, 1).unwrap();
    let names: Vec<&str> = seen.figures.iter().map(|one| one.name.as_str()).collect();
    let expected = [
        "archive+database read",
        "archive+database write",
        "later read",
    ];
    assert_eq!(names, expected);
    let moved = |disks: std::ops::Range<usize>| {
        let rows = seen.members[disks].iter();
        rows.map(|row| row.read_kib_per_s + row.written_kib_per_s)
            .sum::<f64>()
    };
    assert!(moved(0..2) > 0.0 && moved(2..4) > 0.0, "{:?}", seen.members);
    assert_eq!(seen.reads.count + seen.writes.count, 3 * 256);
    assert_eq!(seen.volumes[1].jobs, ["database", "later"]);
    setup.volumes[1].jobs.pop();
    let error = measure(&setup, &work, 1).unwrap_err().to_string();
    assert!(error.contains("none carries the job later"), "{error}");
}

#[test]
fn each_volume_is_an_arrangement_of_its_own_disks() {
    let setup = Setup {
        slow: vec![(3, 2.0)],
        ..beside()
    };
    let ssd = setup.alone(&setup.volumes[1]);
    assert_eq!(ssd.disks, ["ssd-sata", "ssd-sata"]);
    assert_eq!((ssd.members, ssd.level.as_str()), (2, "1"));
    assert_eq!(ssd.slow, [(1, 2.0)]);
    assert_eq!(
        setup.label(),
        "hdd: RAID-1 of 2 load no bitmap (disks 0 1; archive) + \
         ssd: RAID-1 of 2 load no bitmap (disks 2 3; database)"
    );
    assert_eq!(setup.level_words(), "1 + 1");
    let running = setup.start(1, 0, Mode::Timing).unwrap();
    assert_eq!(running.disks.len(), 4);
    let sizes: Vec<u64> = running
        .beside
        .iter()
        .map(|one| one.target.size_bytes() >> 30)
        .collect();
    assert!(sizes[0] > 20 * sizes[1], "{sizes:?}");
    let members = running.beside[1].volume.as_ref().unwrap().status().members;
    let names: Vec<_> = members.into_iter().filter_map(|one| one.name).collect();
    assert_eq!(names, ["disk2", "disk3"]);
}

#[test]
fn what_does_not_fit_together_is_refused_by_name() {
    let refused = |change: &dyn Fn(&mut Setup)| {
        let mut setup = beside();
        change(&mut setup);
        let error = setup.start(1, 0, Mode::Timing).err();
        error.expect("it is refused").to_string()
    };
    type Change = dyn Fn(&mut Setup);
    let cases: [(&Change, &str); 9] = [
        (&|one| one.volumes[1].disks = vec![1, 2], "disk 1 is in two"),
        (
            &|one| one.volumes[1].disks = vec![4],
            "has disk 4; there are 4",
        ),
        (&|one| one.volumes[1].disks.clear(), "ssd has no disks"),
        (&|one| one.volumes[1].name = "hdd".to_owned(), "not \"hdd\""),
        (&|one| one.volumes[1].name.clear(), "not \"\""),
        (&|one| one.volumes[1].jobs.clear(), "ssd carries no job"),
        (
            &|one| one.volumes[1].jobs = vec!["archive".to_owned()],
            "job archive is on two",
        ),
        (&|one| one.inner_volumes = 2, "volumes over volumes"),
        (&|one| one.volumes[1].level = Some("6".to_owned()), "ssd: "),
    ];
    for (change, told) in cases {
        let error = refused(change);
        assert!(error.contains(told), "{told}: {error}");
    }
    let jobs = |names: &[&str]| {
        let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
        check_jobs(&beside().volumes, &names)
    };
    assert!(jobs(&["database", "archive"]).is_ok());
    let error = jobs(&["archive", "database", "mail"])
        .unwrap_err()
        .to_string();
    assert!(error.contains("none carries the job mail"), "{error}");
    let error = jobs(&["archive"]).unwrap_err().to_string();
    assert!(
        error.contains("no job database; it has: archive"),
        "{error}"
    );
}
