//! Budgets that users and connections share, so that one of them cannot keep the others out.
//!
//! A user may have more as long as what it has then is at most three times what is still free then
//! ([`SHARE`]). So a user alone gets three quarters of a budget, two get three sevenths each, and there is
//! always something left for one who comes new, however many there are. Within the share of a user the
//! connections are treated in the same way, except that a connection with nothing yet gets its first part
//! wherever its user does. A user that has nothing yet gets one request in wherever it fits, so that no limit
//! is too small for anything.

use std::collections::HashMap;
use std::sync::Arc;

use masthead_core::Status;
use parking_lot::Mutex;

use crate::authn::User;
use crate::flights::Connection;

/// How many times of what is left free one user may have of a budget, and one connection of its user's
/// share.
const SHARE: usize = 3;

/// Something that there is only so much of.
#[derive(Debug)]
pub(crate) struct Budget {
    limit: usize,
    /// What is counted, as the answer to a client that gets none names it.
    what: &'static str,
    /// The flag that sets the limit.
    flag: &'static str,
    used: Mutex<Used>,
}

#[derive(Debug, Default)]
struct Used {
    total: usize,
    users: HashMap<String, usize>,
    /// By the address of the connection, which the shares hold.
    connections: HashMap<usize, usize>,
}

/// A part of a budget. Dropping it gives the part back.
#[derive(Debug)]
pub(crate) struct Share {
    budget: Arc<Budget>,
    user: Arc<User>,
    connection: Arc<Connection>,
    amount: usize,
}

impl Budget {
    pub(crate) fn new(limit: usize, what: &'static str, flag: &'static str) -> Arc<Self> {
        Arc::new(Self { limit, what, flag, used: Mutex::default() })
    }

    /// How much is taken.
    pub(crate) fn used(&self) -> usize {
        self.used.lock().total
    }

    /// Takes a part for an answer or a body of this user on this connection.
    pub(crate) fn take(
        self: &Arc<Self>,
        user: &Arc<User>,
        connection: &Arc<Connection>,
        amount: usize,
    ) -> Result<Share, Status> {
        let mut share = Share {
            budget: self.clone(),
            user: user.clone(),
            connection: connection.clone(),
            amount: 0,
        };
        share.grow(amount)?;
        Ok(share)
    }

    fn refusal(&self, used: usize, of_user: usize, amount: usize) -> Status {
        let Self { limit, what, flag, .. } = self;
        let message = format!(
            "no more {what} for this user now: {used} of {limit} ({flag}) are in use, {of_user} of them \
             by this user, and this request needs {amount}; ask for less at a time (limit=500) or try \
             again later"
        );
        Status::too_many_requests(message, 1)
    }
}

/// What a user gets who is the only one.
fn lone_share(limit: usize) -> usize {
    (limit - limit / (SHARE + 1)).max(1)
}

impl Share {
    /// Takes more. What was taken before stays taken, also if there is no more.
    pub(crate) fn grow(&mut self, amount: usize) -> Result<(), Status> {
        let budget = &self.budget;
        let used = &mut *budget.used.lock();
        let place = Arc::as_ptr(&self.connection) as usize;
        let of_user = used.users.get(&self.user.name).copied().unwrap_or(0);
        let of_connection = used.connections.get(&place).copied().unwrap_or(0);
        // What is larger than the share of a lone user goes as the only one of its user, and counts as such
        // a share: the rest is not its either.
        let amount = if of_user == 0 { amount.min(lone_share(budget.limit)) } else { amount };
        let free = budget.limit.saturating_sub(used.total.saturating_add(amount));
        let fits = used.total.saturating_add(amount) <= budget.limit;
        let user_after = of_user.saturating_add(amount);
        let user_left = free.saturating_mul(SHARE).saturating_sub(user_after);
        let connection_after = of_connection.saturating_add(amount);
        let fair = free.saturating_mul(SHARE) >= user_after
            && (of_connection == 0 || user_left.saturating_mul(SHARE) >= connection_after);
        let alone = of_user == 0 && (fits || used.total == 0);
        if !(fits && fair || alone) {
            return Err(budget.refusal(used.total, of_user, amount));
        }
        used.total += amount;
        match used.users.get_mut(&self.user.name) {
            Some(of_user) => *of_user += amount,
            None => drop(used.users.insert(self.user.name.clone(), amount)),
        }
        *used.connections.entry(place).or_default() += amount;
        self.amount += amount;
        Ok(())
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        let used = &mut *self.budget.used.lock();
        used.total -= self.amount;
        let place = Arc::as_ptr(&self.connection) as usize;
        if let Some(of_user) = used.users.get_mut(&self.user.name) {
            *of_user -= self.amount;
            if *of_user == 0 {
                used.users.remove(&self.user.name);
            }
        }
        if let Some(of_connection) = used.connections.get_mut(&place) {
            *of_connection -= self.amount;
            if *of_connection == 0 {
                used.connections.remove(&place);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::flights::Clock;

    fn user(name: &str) -> Arc<User> {
        Arc::new(User { name: name.to_owned(), groups: Vec::new() })
    }

    fn connection() -> Arc<Connection> {
        Connection::new(Clock::start())
    }

    /// Takes parts of one each on new connections until there is no more.
    fn take_all(budget: &Arc<Budget>, name: &str) -> Vec<Share> {
        (0..).map_while(|_| budget.take(&user(name), &connection(), 1).ok()).collect()
    }

    #[test]
    fn a_user_alone_gets_three_quarters_and_the_rest_is_for_others() {
        let budget = Budget::new(400, "reads", "max-reads");
        let first = take_all(&budget, "first");
        assert_eq!(first.len(), 300);
        let refused = budget.take(&user("first"), &connection(), 1).unwrap_err();
        assert_eq!(refused.code(), 429);
        assert!(refused.message().contains("max-reads"), "{}", refused.message());
        let second = take_all(&budget, "second");
        assert_eq!(second.len(), 75, "three quarters of what was left");
        assert!(budget.take(&user("third"), &connection(), 1).is_ok());
        drop(first);
        assert_eq!(budget.used(), 75);
        drop(second);
        assert_eq!(budget.used(), 0);
        let used = budget.used.lock();
        assert!(used.users.is_empty() && used.connections.is_empty(), "nothing is left behind");
    }

    #[test]
    fn one_connection_leaves_something_to_the_others_of_its_user() {
        let budget = Budget::new(1300, "reads", "max-reads");
        let one = connection();
        let held: Vec<_> = (0..).map_while(|_| budget.take(&user("first"), &one, 1).ok()).collect();
        assert_eq!(held.len(), 900);
        assert!(budget.take(&user("first"), &connection(), 1).is_ok());
    }

    #[test]
    fn what_is_larger_than_a_share_goes_as_the_only_one_of_its_user() {
        let budget = Budget::new(100, "bytes", "max-bytes");
        let large = budget.take(&user("first"), &connection(), 1000).unwrap();
        assert!(budget.take(&user("first"), &connection(), 1).is_err());
        assert_eq!(budget.used(), 75, "a quarter is left for others");
        assert!(budget.take(&user("second"), &connection(), 25).is_ok());
        assert!(budget.take(&user("second"), &connection(), 26).is_err());
        drop(large);
        assert_eq!(budget.used(), 0);
    }

    #[test]
    fn a_share_that_cannot_grow_keeps_what_it_has() {
        let budget = Budget::new(100, "bytes", "max-bytes");
        let mut share = budget.take(&user("first"), &connection(), 40).unwrap();
        assert!(share.grow(25).is_ok());
        assert!(share.grow(30).is_err());
        assert_eq!(budget.used(), 65);
    }

    /// However many users take all they can get, the next one gets something.
    #[test]
    fn the_last_share_is_never_taken_by_those_who_have_one() {
        let budget = Budget::new(100_000, "bytes", "max-bytes");
        let mut held = Vec::new();
        for number in 0..7 {
            let taken = take_all(&budget, &format!("user {number}"));
            assert!(!taken.is_empty(), "user {number}");
            held.extend(taken);
        }
    }
}
