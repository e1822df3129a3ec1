//! What a satellite holds of slabs or of marks, by their number.
//!
//! A list and not a map: each write looks three times, and numbers are dense. Eight bytes for each up to the highest
//! asked for.

/// Where a slab or a mark is, as the satellite sees it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Hold {
    #[default]
    Home,
    Asked,
    Held,
    /// Goes back as soon as it is not used.
    CalledBack,
}

#[derive(Clone, Copy, Debug, Default)]
struct Loan {
    hold: Hold,
    was_used: bool,
    under_way: u32,
}

/// All slabs, or all marks.
#[derive(Debug, Default)]
pub(super) struct Loans {
    all: Vec<Loan>,
    held: usize,
}

impl Loans {
    /// How many are held.
    pub fn held_count(&self) -> usize {
        self.held
    }

    #[inline]
    pub fn hold(&self, index: usize) -> Hold {
        self.all.get(index).map_or(Hold::Home, |loan| loan.hold)
    }

    pub fn set_hold(&mut self, index: usize, hold: Hold) {
        if index >= self.all.len() {
            self.all.resize(index + 1, Loan::default());
        }
        let loan = &mut self.all[index];
        self.held -= usize::from(loan.hold == Hold::Held);
        self.held += usize::from(hold == Hold::Held);
        loan.hold = hold;
    }

    /// A write that uses it begins.
    #[inline]
    pub fn begin(&mut self, index: usize) {
        if index >= self.all.len() {
            self.all.resize(index + 1, Loan::default());
        }
        let loan = &mut self.all[index];
        loan.under_way += 1;
        loan.was_used = true;
    }

    /// The write has ended.
    #[inline]
    pub fn end(&mut self, index: usize) {
        self.all[index].under_way -= 1;
    }

    /// Whether it was called back and can go: it is at home from then on.
    #[inline]
    pub fn leave(&mut self, index: usize) -> bool {
        let is_free = self.all.get(index);
        let is_free =
            is_free.is_some_and(|loan| loan.hold == Hold::CalledBack && loan.under_way == 0);
        if is_free {
            self.set_hold(index, Hold::Home);
        }
        is_free
    }

    /// Takes away those that are held and that nobody has used since the last call.
    pub fn take_idle(&mut self) -> Vec<usize> {
        let mut idle = Vec::new();
        for (index, loan) in self.all.iter_mut().enumerate() {
            let was_used = std::mem::take(&mut loan.was_used);
            if loan.hold == Hold::Held && loan.under_way == 0 && !was_used {
                idle.push(index);
            }
        }
        for index in &idle {
            self.set_hold(*index, Hold::Home);
        }
        idle
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_used_is_not_idle_and_what_was_used_only_the_second_time() {
        let mut loans = Loans::default();
        for index in [3, 5, 9] {
            loans.set_hold(index, Hold::Held);
        }
        loans.set_hold(7, Hold::Asked);
        loans.begin(5);
        loans.begin(9);
        loans.end(9);
        assert_eq!(loans.held_count(), 3);
        assert_eq!(loans.take_idle(), [3]);
        assert_eq!(loans.take_idle(), [9]);
        assert_eq!((loans.hold(5), loans.hold(9)), (Hold::Held, Hold::Home));
        assert_eq!(loans.held_count(), 1);
    }

    #[test]
    fn what_is_called_back_goes_when_its_last_write_has_ended() {
        let mut loans = Loans::default();
        loans.set_hold(2, Hold::Held);
        loans.begin(2);
        assert!(!loans.leave(2), "it is not called back");
        loans.set_hold(2, Hold::CalledBack);
        assert!(!loans.leave(2), "it is used");
        loans.end(2);
        assert!(loans.leave(2));
        assert_eq!(loans.hold(2), Hold::Home);
        assert!(!loans.leave(2), "it has gone");
        assert!(!loans.leave(99), "it was never here");
    }
}
