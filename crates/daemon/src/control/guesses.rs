//! How often somebody may show a token that nobody knows.
//!
//! Pure: who calls it gives the time. A right token is never counted, so that a page and a program that know theirs
//! wait for nobody but for whoever guesses from the same address.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv6Addr};
use std::time::Duration;

/// One wrong token in so much time is for nothing.
const EVERY: Duration = Duration::from_secs(2);
/// So many may come at once.
const AT_ONCE: u32 = 8;
/// Of so many peers it is known; memory has an end.
const PEERS_MAX: usize = 1024;

/// Who guesses: an address, or the network of 64 bits that one household or machine has of IPv6.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Peer(IpAddr);

impl Peer {
    /// Of an address.
    pub(super) fn of(address: IpAddr) -> Self {
        match address.to_canonical() {
            IpAddr::V4(address) => Self(IpAddr::V4(address)),
            IpAddr::V6(address) => {
                let network = address.to_bits() & !u128::from(u64::MAX);
                Self(IpAddr::V6(Ipv6Addr::from_bits(network)))
            }
        }
    }
}

/// Wrong tokens, by who showed them.
#[derive(Debug, Default)]
pub(super) struct Guesses {
    /// When what somebody has shown is paid for; what is past is as good as nothing.
    paid: BTreeMap<Peer, Duration>,
}

impl Guesses {
    /// Whether a token that he shows at `now` is looked at.
    ///
    /// # Errors
    /// How long he has to wait until one is.
    pub(super) fn check(&self, peer: Peer, now: Duration) -> Result<(), Duration> {
        let paid = self.paid.get(&peer).copied().unwrap_or_default();
        let owed = paid.saturating_sub(now);
        match owed.checked_sub(EVERY * (AT_ONCE - 1)) {
            Some(wait) if !wait.is_zero() => Err(wait),
            _ => Ok(()),
        }
    }

    /// It was a wrong one.
    pub(super) fn wrong(&mut self, peer: Peer, now: Duration) {
        if self.paid.len() >= PEERS_MAX && !self.paid.contains_key(&peer) {
            self.paid.retain(|_, paid| *paid > now);
        }
        if self.paid.len() >= PEERS_MAX && !self.paid.contains_key(&peer) {
            let least = self.paid.iter().min_by_key(|(_, paid)| **paid);
            let least = least.map(|(peer, _)| *peer);
            least.map(|peer| self.paid.remove(&peer));
        }
        let paid = self.paid.entry(peer).or_default();
        *paid = (*paid).max(now) + EVERY;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn peer(text: &str) -> Peer {
        Peer::of(text.parse().unwrap())
    }

    /// Tries as often as it is let, and a second later again, for so long; how many were looked at.
    fn looked_at(guesses: &mut Guesses, peer: Peer, seconds: std::ops::Range<u64>) -> u32 {
        let mut count = 0;
        for second in seconds {
            let now = Duration::from_secs(second);
            while guesses.check(peer, now).is_ok() {
                guesses.wrong(peer, now);
                count += 1;
            }
        }
        count
    }

    #[test]
    fn who_guesses_has_a_few_tries_and_then_one_in_two_seconds_however_often_he_comes() {
        let mut guesses = Guesses::default();
        let one = peer("192.0.2.7");
        assert_eq!(looked_at(&mut guesses, one, 100..101), 8);
        let wait = guesses.check(one, Duration::from_secs(100)).unwrap_err();
        assert_eq!(wait, EVERY);
        assert_eq!(looked_at(&mut guesses, one, 101..1100), 499);
        assert_eq!(
            looked_at(&mut guesses, peer("192.0.2.8"), 1100..1101),
            8,
            "nobody else waits for him"
        );
        assert_eq!(
            looked_at(&mut guesses, one, 9000..9001),
            8,
            "what was long ago is forgotten"
        );
    }

    #[test]
    fn one_network_of_ipv6_is_one_who_guesses_and_an_address_in_both_notations_as_well() {
        let mut guesses = Guesses::default();
        looked_at(&mut guesses, peer("2001:db8::1"), 0..1);
        let now = Duration::ZERO;
        assert!(guesses.check(peer("2001:db8::2"), now).is_err());
        assert!(guesses.check(peer("2001:db8:0:1::2"), now).is_ok());
        assert_eq!(peer("::ffff:192.0.2.7"), peer("192.0.2.7"));
    }

    #[test]
    fn many_addresses_cost_no_more_memory_and_make_the_busiest_one_no_freer() {
        let mut guesses = Guesses::default();
        let busy = peer("192.0.2.7");
        looked_at(&mut guesses, busy, 0..1);
        for number in 0..10_000_u32 {
            let address = IpAddr::V4((0x0a00_0000 + number).into());
            guesses.wrong(Peer::of(address), Duration::ZERO);
        }
        assert_eq!(guesses.paid.len(), PEERS_MAX);
        assert!(guesses.check(busy, Duration::ZERO).is_err());
    }
}
