//! Names and numbers of layouts, and geometries that cannot be.

use super::*;

#[test]
fn numbers_and_names_lead_back_to_their_layout() {
    let mut all = every_parity_organisation();
    all.extend([Organisation::Linear, Organisation::Raid1]);
    all.extend(Raid0Layout::ALL.map(|(l, _)| Organisation::Raid0(l)));
    all.extend(
        (2..=8)
            .flat_map(every_raid10_layout)
            .map(Organisation::Raid10),
    );
    for organisation in all {
        assert_eq!(
            Organisation::from_md(organisation.md_level(), organisation.md_layout()),
            Ok(organisation)
        );
        let level: Level = organisation.level().to_string().parse().unwrap();
        let name = organisation.layout_name();
        assert_eq!(
            Organisation::from_words(level, name.as_deref()),
            Ok(organisation),
            "{organisation}"
        );
    }
}

#[test]
fn short_words_and_defaults_are_those_of_mdadm() {
    let word = |level: &str, layout: Option<&str>| {
        Organisation::from_words(level.parse().unwrap(), layout)
            .unwrap()
            .to_string()
    };
    assert_eq!(word("raid5", None), "raid5 left-symmetric");
    assert_eq!(word("5", Some("la")), "raid5 left-asymmetric");
    assert_eq!(word("5", Some("ddf-N-restart")), "raid5 left-asymmetric");
    assert_eq!(
        word("RAID6", Some("DDF-n-CONTINUE")),
        "raid6 ddf-N-continue"
    );
    assert_eq!(word("6", Some("ls-6")), "raid6 left-symmetric-6");
    assert_eq!(word("raid10", None), "raid10 n2");
    assert_eq!(word("10", Some("o3")), "raid10 o3");
    assert_eq!(word("stripe", None), "raid0 original");
    assert_eq!(word("mirror", None), "raid1");
    assert_eq!(word("concat", None), "linear");
    assert_eq!(
        Organisation::from_md(10, 0x0002_0102 | 2 << 17),
        Err(GeometryError::UnknownLayout {
            level: 10,
            layout: 0x0006_0102
        })
    );
}

#[test]
fn a_refusal_of_a_layout_tells_those_that_there_are() {
    let told = |level: Level| {
        let refused = Organisation::from_words(level, Some("xx"));
        refused.unwrap_err().to_string()
    };
    for level in Level::ALL {
        let text = told(level);
        let rest = text.split_once("\"xx\"").unwrap().1;
        let names = rest.strip_prefix(": it has ").unwrap_or_default();
        for name in names.split(", ").filter(|name| !name.is_empty()) {
            Organisation::from_words(level, Some(name)).unwrap();
        }
    }
    assert!(told(Level::Raid6).ends_with("parity-first-6"));
    assert!(told(Level::Raid1).ends_with("leave the layout out"));
    assert!(told(Level::Raid10).contains("n2, f2 or o2"));
}

#[test]
fn words_and_numbers_that_mean_nothing_are_refused() {
    for (level, layout) in [
        (5, 6),
        (6, 6),
        (6, 7),
        (6, 11),
        (6, 21),
        (0, 3),
        (10, 0x0100),
        (10, 2),
        (10, 0x0100_0102),
    ] {
        assert_eq!(
            Organisation::from_md(level, layout),
            Err(GeometryError::UnknownLayout { level, layout }),
            "{level} {layout:#x}"
        );
    }
    for level in [-5, -4, 2, 3, 7, 11] {
        assert_eq!(
            Organisation::from_md(level, 0),
            Err(GeometryError::UnknownLevel(level))
        );
    }
    assert_eq!(
        Organisation::from_md(0, 0),
        Err(GeometryError::Raid0LayoutUnknown)
    );
    for (level, word) in [
        (Level::Raid10, "n"),
        (Level::Raid10, "n0"),
        (Level::Raid10, "x2"),
        (Level::Raid10, "n2n2"),
        (Level::Raid10, "é2"),
        (Level::Raid10, "n300"),
        (Level::Raid1, "n2"),
        (Level::Raid0, "dangerous"),
        (Level::Raid5, "left"),
        (Level::Raid6, ""),
    ] {
        assert!(
            Organisation::from_words(level, Some(word)).is_err(),
            "{level} {word}"
        );
    }
    assert!("raid7".parse::<Level>().is_err() && "".parse::<Level>().is_err());
}

#[test]
fn impossible_geometries_are_refused_with_the_reason() {
    let raid5 = Organisation::Raid5(Raid5Layout::LeftSymmetric);
    let raid6 = Organisation::Raid6(Raid6Layout::LeftSymmetric);
    let bad = |organisation, n, change: &dyn Fn(&mut GeometrySpec)| {
        let mut s = spec(organisation, n, 64 * STRIP);
        change(&mut s);
        Geometry::new(&s).unwrap_err()
    };
    use GeometryError as E;
    let keep = &|_: &mut GeometrySpec| ();
    assert!(matches!(bad(raid5, 1, keep), E::MemberCount { min: 2, .. }));
    assert!(matches!(
        bad(raid5, 256, keep),
        E::MemberCount { max: 255, .. }
    ));
    assert!(matches!(bad(raid6, 3, keep), E::MemberCount { min: 4, .. }));
    assert!(matches!(
        bad(Organisation::Raid1, 0, keep),
        E::MemberCount { .. }
    ));
    assert!(matches!(
        bad(Organisation::Linear, 1921, keep),
        E::MemberCount { .. }
    ));
    for strip in [0, 512, 2048, 12288, 3 << 40] {
        let error = bad(raid5, 4, &|s| s.strip_bytes = strip);
        assert_eq!(error, E::StripNotPowerOfTwo { strip_bytes: strip });
    }
    assert!(matches!(
        bad(Organisation::Raid0(Raid0Layout::Original), 2, &|s| s
            .strip_bytes =
            0),
        E::StripUnaligned { .. }
    ));
    assert!(matches!(
        bad(Organisation::Linear, 2, &|s| s.strip_bytes = 1000),
        E::StripUnaligned { .. }
    ));
    assert_eq!(bad(raid5, 4, &|s| s.strip_bytes = u64::MAX), E::TooLarge);
    assert_eq!(bad(raid5, 4, &|s| s.strip_bytes = 1 << 63), E::TooLarge);
    assert_eq!(bad(raid5, 4, &|s| s.component_bytes = 1 << 62), E::TooLarge);
    assert_eq!(bad(raid5, 4, &|s| s.component_bytes = !511), E::TooLarge);
    assert_eq!(
        bad(raid5, 4, &|s| s.component_bytes = 1000),
        E::SizeUnaligned(1000)
    );
    assert!(matches!(
        bad(raid5, 4, &|s| s.component_bytes = 2048),
        E::MembersTooSmall { .. }
    ));
    assert!(matches!(
        bad(Organisation::Raid10(Raid10Layout::far(2)), 4, &|s| s
            .component_bytes =
            STRIP),
        E::MembersTooSmall { .. }
    ));
    assert!(matches!(
        bad(Organisation::Raid10(Raid10Layout::near(3)), 2, keep),
        E::Copies {
            copies: 3,
            member_count: 2
        }
    ));
    assert!(matches!(
        bad(Organisation::Raid10(Raid10Layout::near(1)), 2, keep),
        E::Copies { copies: 1, .. }
    ));
    assert!(matches!(
        bad(Organisation::Linear, 2, &|s| s.member_sizes_bytes =
            vec![512; 3]),
        E::SizeCount {
            found: 3,
            expected: 2
        }
    ));
    let huge = i64::MAX as u64 / 512 * 512;
    assert_eq!(
        bad(Organisation::Linear, 2, &|s| s.member_sizes_bytes =
            vec![huge; 2]),
        E::TooLarge
    );
    assert_eq!(
        bad(Organisation::Raid0(Raid0Layout::Original), 2, &|s| s
            .member_sizes_bytes =
            vec![huge; 2]),
        E::TooLarge
    );
    assert_eq!(
        bad(Organisation::Raid10(Raid10Layout::near(2)), 1920, &|s| s
            .component_bytes =
            huge),
        E::TooLarge
    );
}
