use super::*;

struct Bench {
    oracle: Oracle,
}

impl Bench {
    fn new() -> Self {
        Self {
            oracle: Oracle::new(7, 64),
        }
    }
    fn begin(&mut self) -> WriteToken {
        self.oracle.begin_write(5..6, WriteKind::Data)
    }
    fn done(&mut self) -> WriteToken {
        let token = self.begin();
        self.oracle.end_write(&token, WriteEnd::Done);
        token
    }
    fn flush(&mut self) {
        let token = self.oracle.begin_flush();
        self.oracle.end_flush(&token);
    }
    fn data(&self, token: &WriteToken) -> Vec<u8> {
        let mut data = vec![0; SECTOR_BYTES];
        self.oracle.fill(token, &mut data);
        data
    }
    fn sees(&mut self, token: &WriteToken) -> bool {
        let data = self.data(token);
        let read = self.oracle.begin_read(5..6);
        self.oracle.end_read(&read, &data).is_ok()
    }
    fn sees_zero(&mut self) -> bool {
        let read = self.oracle.begin_read(5..6);
        self.oracle.end_read(&read, &[0; SECTOR_BYTES]).is_ok()
    }
}

#[test]
fn a_fresh_volume_reads_zero_and_nothing_else() {
    let mut bench = Bench::new();
    assert!(bench.sees_zero());
    let other = Oracle::new(8, 64).begin_write(5..6, WriteKind::Data);
    assert!(!bench.sees(&other));
}

#[test]
fn an_answered_write_is_seen_and_the_old_value_no_more() {
    let mut bench = Bench::new();
    let one = bench.done();
    assert!(!bench.sees_zero());
    let two = bench.done();
    assert!(!bench.sees(&one));
    assert!(bench.sees(&two));
}

#[test]
fn while_a_write_is_in_flight_both_values_may_be_seen_in_any_order() {
    let mut bench = Bench::new();
    let one = bench.done();
    let two = bench.begin();
    assert!(bench.sees(&two) && bench.sees(&one) && bench.sees(&two));
    bench.oracle.end_write(&two, WriteEnd::Done);
    assert!(!bench.sees(&one));
}

#[test]
fn a_read_that_began_before_the_answer_may_return_the_old_value() {
    let mut bench = Bench::new();
    let one = bench.done();
    let read = bench.oracle.begin_read(5..6);
    let two = bench.begin();
    bench.oracle.end_write(&two, WriteEnd::Durable);
    bench.flush();
    let old = bench.data(&one);
    assert!(bench.oracle.end_read(&read, &old).is_ok());
    assert!(!bench.sees(&one));
}

#[test]
fn overlapping_writes_may_land_in_either_order_but_the_winner_stays() {
    let mut bench = Bench::new();
    let (one, two) = (bench.begin(), bench.begin());
    bench.oracle.end_write(&two, WriteEnd::Done);
    bench.oracle.end_write(&one, WriteEnd::Done);
    assert!(!bench.sees_zero());
    assert!(bench.sees(&two));
    assert!(
        !bench.sees(&one),
        "copies that disagree on the winner show here"
    );
}

#[test]
fn after_a_power_cut_only_the_durable_value_and_later_ones_are_allowed() {
    let mut bench = Bench::new();
    let one = bench.done();
    let two = bench.done();
    bench.flush();
    let three = bench.done();
    let four = bench.begin();
    bench.oracle.crash(CrashKind::PowerCut);
    assert!(!bench.sees_zero() && !bench.sees(&one));
    let allowed = bench.oracle.allowed(5);
    let expected: Vec<_> = [&two, &three, &four]
        .map(|t| Value::Written(t.sequence))
        .to_vec();
    assert_eq!(allowed, expected);
}

#[test]
fn what_a_read_after_the_crash_returned_is_the_only_value_left_even_after_another_crash() {
    let mut bench = Bench::new();
    let one = bench.done();
    bench.flush();
    let two = bench.done();
    bench.oracle.crash(CrashKind::PowerCut);
    assert!(bench.sees(&one));
    bench.oracle.crash(CrashKind::PowerCut);
    assert!(!bench.sees(&two));
    assert!(bench.sees(&one));
}

#[test]
fn a_fua_write_is_durable_when_it_is_answered() {
    let mut bench = Bench::new();
    let one = bench.done();
    let two = bench.begin();
    bench.oracle.end_write(&two, WriteEnd::Durable);
    bench.oracle.crash(CrashKind::PowerCut);
    assert!(!bench.sees(&one));
    assert!(bench.sees(&two));
}

#[test]
fn a_flush_does_not_cover_a_write_that_was_answered_after_it_began() {
    let mut bench = Bench::new();
    let one = bench.done();
    bench.flush();
    let two = bench.begin();
    let flush = bench.oracle.begin_flush();
    bench.oracle.end_write(&two, WriteEnd::Done);
    bench.oracle.end_flush(&flush);
    bench.oracle.crash(CrashKind::PowerCut);
    assert!(bench.sees(&one));
}

#[test]
fn a_kill_loses_no_answered_write() {
    let mut bench = Bench::new();
    let one = bench.done();
    bench.flush();
    let two = bench.done();
    bench.oracle.crash(CrashKind::Kill);
    assert!(!bench.sees(&one));
    assert!(bench.sees(&two));
}

#[test]
fn a_failed_write_may_show_or_not_until_a_later_one_is_answered() {
    let mut bench = Bench::new();
    let one = bench.done();
    let two = bench.begin();
    bench.oracle.end_write(&two, WriteEnd::Failed);
    assert!(bench.sees(&one) && bench.sees(&two) && bench.sees(&one));
    let three = bench.done();
    assert!(!bench.sees(&one) && !bench.sees(&two));
    assert!(bench.sees(&three));
}

#[test]
fn a_trim_gives_zeroes_or_the_old_value_but_always_the_same() {
    for is_zero in [true, false] {
        let mut bench = Bench::new();
        let one = bench.done();
        let trim = bench.oracle.begin_write(5..6, WriteKind::Trim);
        bench.oracle.end_write(&trim, WriteEnd::Done);
        if is_zero {
            assert!(bench.sees_zero() && !bench.sees(&one));
        } else {
            assert!(bench.sees(&one) && !bench.sees_zero());
        }
    }
}

#[test]
fn a_sector_of_another_address_is_named() {
    let mut bench = Bench::new();
    let other = bench.oracle.begin_write(9..10, WriteKind::Data);
    let data = bench.data(&other);
    let read = bench.oracle.begin_read(5..6);
    let violation = bench.oracle.end_read(&read, &data).unwrap_err();
    assert_eq!(
        violation.to_string(),
        "sector 5: read write 1 of sector 9, allowed [zero]"
    );
}

#[test]
fn sectors_close_when_only_one_value_is_left() {
    let mut bench = Bench::new();
    bench.done();
    assert_eq!(bench.oracle.open_count(), 1);
    bench.flush();
    assert_eq!(bench.oracle.open_count(), 0);
}

#[test]
fn zeroes_written_again_do_not_settle_what_an_earlier_crash_left_open() {
    let mut bench = Bench::new();
    let one = bench.done();
    bench.oracle.crash(CrashKind::PowerCut); // zero or `one`
    let zeroes = bench.oracle.begin_write(5..6, WriteKind::Zeroes);
    bench.oracle.end_write(&zeroes, WriteEnd::Done);
    assert!(bench.sees_zero());
    bench.oracle.crash(CrashKind::PowerCut);
    assert!(bench.sees(&one), "the zeroes were never flushed");
}

#[test]
fn a_trim_that_was_not_flushed_may_be_taken_back_by_a_crash() {
    let mut bench = Bench::new();
    let one = bench.done();
    bench.oracle.crash(CrashKind::PowerCut); // zero or `one`
    let trim = bench.oracle.begin_write(5..6, WriteKind::Trim);
    bench.oracle.end_write(&trim, WriteEnd::Done);
    assert!(bench.sees_zero());
    bench.oracle.crash(CrashKind::PowerCut);
    assert!(bench.sees(&one));
}

#[test]
fn two_reads_at_once_that_see_different_winners_are_a_violation() {
    let mut bench = Bench::new();
    let (one, two) = (bench.begin(), bench.begin());
    bench.oracle.end_write(&two, WriteEnd::Done);
    bench.oracle.end_write(&one, WriteEnd::Done);
    let slow = bench.oracle.begin_read(5..6);
    assert!(bench.sees(&two));
    let data = bench.data(&one);
    assert!(bench.oracle.end_read(&slow, &data).is_err());
}
