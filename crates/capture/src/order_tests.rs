use super::*;
use proptest::prelude::*;

/// What a session did at the original: how long it waited before each command, and how long each took.
type History = Vec<Vec<(u8, u8)>>;

/// A command: its session, `after`, `seq`, and when it began and ended by the original's clock.
#[derive(Clone, Copy, Debug)]
struct Ran {
    session: usize,
    after: u64,
    seq: u64,
    began: u64,
    ended: u64,
}

/// Runs a history as a capture numbers it: `after` is the count of ends when a command begins, `seq` that count when it ends.
fn original(history: &History) -> Vec<Ran> {
    let mut moments = Vec::new();
    for (session, commands) in history.iter().enumerate() {
        let mut now = 0;
        for (number, (wait, time)) in commands.iter().enumerate() {
            let began = now + u64::from(*wait);
            now = began + 1 + u64::from(*time);
            moments.extend([(began, 1, session, number), (now, 0, session, number)]);
        }
    }
    // Ends come before begins of the same moment, in the order of sessions.
    moments.sort_unstable();
    let (mut ends, mut open, mut all) = (0, BTreeMap::new(), Vec::new());
    for (now, is_begin, session, number) in moments {
        if is_begin == 1 {
            open.insert((session, number), (now, ends));
        } else if let Some((began, after)) = open.remove(&(session, number)) {
            ends += 1;
            all.push(Ran { session, after, seq: ends, began, ended: now });
        }
    }
    all
}

/// The turn of a command, if its session writes. Each fifth one releases locks.
fn turn(ran: &Ran, writers: u8) -> Option<Turn> {
    let is_write = writers >> (ran.session % 8) & 1 == 1;
    is_write.then(|| if ran.seq.is_multiple_of(5) { Turn::of_release(ran.after) } else { Turn::of_write(ran.seq) })
}

/// Replays: commands take other times than at the original. Returns when each began and ended, in the order of `ran`.
fn replayed(ran: &[Ran], times: &[u8], writers: u8) -> Option<Vec<(u64, u64)>> {
    let mut seqs = Seqs::default();
    ran.iter().for_each(|ran| assert!(seqs.insert(ran.seq)));
    let turns = Turns::new(ran.iter().filter_map(|ran| turn(ran, writers)).collect());
    let mut order = Order::new(seqs, turns);
    let sessions = ran.iter().map(|ran| ran.session).max().map_or(0, |max| max + 1);
    let mut next: Vec<Vec<usize>> = vec![Vec::new(); sessions];
    (0..ran.len()).rev().for_each(|at| next[ran[at].session].push(at));
    let mut running: BTreeMap<(u64, usize), ()> = BTreeMap::new();
    let mut busy = vec![false; sessions];
    let (mut now, mut done) = (0, vec![(0, 0); ran.len()]);
    loop {
        for session in 0..sessions {
            let Some(&at) = next[session].last().filter(|_| !busy[session]) else { continue };
            if order.has_seen(ran[at].after) && turn(&ran[at], writers).is_none_or(|turn| order.is_turn(turn)) {
                next[session].pop();
                busy[session] = true;
                let time = 1 + u64::from(times.get(at % times.len().max(1)).copied().unwrap_or(0));
                done[at] = (now, now + time);
                running.insert((now + time, at), ());
            }
        }
        let Some(((ended, at), ())) = running.pop_first() else { break };
        now = ended;
        busy[ran[at].session] = false;
        order.ended(ran[at].seq, turn(&ran[at], writers));
    }
    next.iter().all(Vec::is_empty).then_some(done)
}

fn history() -> impl Strategy<Value = History> {
    prop::collection::vec(prop::collection::vec((0..20_u8, 0..40_u8), 0..12), 1..6)
}

proptest! {
    #[test]
    fn what_was_ordered_is_ordered_and_nothing_waits_for_ever(
        history in history(), times in prop::collection::vec(any::<u8>(), 1..40), writers in any::<u8>(),
    ) {
        let ran = original(&history);
        let done = replayed(&ran, &times, writers);
        prop_assert!(done.is_some(), "something waits for ever");
        let done = done.unwrap_or_default();
        for (one, was) in ran.iter().enumerate() {
            for (other, then) in ran.iter().enumerate() {
                // Ends are numbered before begins of the same moment.
                if was.ended <= then.began {
                    prop_assert!(done[one].1 <= done[other].0, "{was:?} was before {then:?}");
                }
                if let (Some(earlier), Some(later)) = (turn(was, writers), turn(then, writers)) {
                    prop_assert!(earlier >= later || done[one].1 <= done[other].0, "it is the turn of {was:?}, then of {then:?}");
                }
            }
        }
    }

    #[test]
    fn races_are_pairs_without_an_order(history in history(), writers in any::<u8>()) {
        let ran = original(&history);
        let is_write = |ran: &Ran| writers >> (ran.session % 8) & 1 == 1;
        let mut races = crate::Races::default();
        ran.iter().filter(|ran| is_write(ran)).for_each(|ran| races.add(ran.after, ran.seq));
        races.sort();
        for one in &ran {
            let beside = |other: &&Ran| is_write(other) && other.seq != one.seq && other.seq > one.after && other.after < one.seq;
            let wanted = ran.iter().filter(beside).count() as u64;
            prop_assert_eq!(races.beside(one.after, one.seq, is_write(one)), wanted);
        }
    }

    #[test]
    fn a_set_is_a_set(numbers in prop::collection::vec(0..300_u64, 0..200), gone in prop::collection::vec(0..300_u64, 0..200)) {
        let (mut set, mut model) = (Seqs::default(), std::collections::BTreeSet::new());
        for number in numbers {
            prop_assert_eq!(set.insert(number), model.insert(number));
        }
        for number in gone {
            prop_assert_eq!(set.remove(number), model.remove(&number));
            prop_assert_eq!((set.first(), set.len(), set.is_empty()), (model.first().copied(), model.len() as u64, model.is_empty()));
        }
    }
}

/// Comparisons are strict: else a command would wait for itself, or two for each other.
#[test]
fn a_command_does_not_wait_for_itself() {
    let mut seqs = Seqs::default();
    seqs.insert(5);
    let order = Order::new(seqs, Turns::new(vec![Turn::of_write(5)]));
    assert!(order.has_seen(4) && !order.has_seen(5) && order.is_turn(Turn::of_write(5)) && !order.is_turn(Turn::of_write(6)));
}

/// A's COMMIT releases what B waits for. B's end is numbered first, as its answer came over another connection.
#[test]
fn a_release_comes_before_who_may_have_waited_for_it() {
    let (update_b, commit_a) = (Turn::of_write(7), Turn::of_release(6));
    let mut seqs = Seqs::default();
    [7, 8].iter().for_each(|seq| assert!(seqs.insert(*seq)));
    let mut order = Order::new(seqs, Turns::new(vec![update_b, commit_a]));
    assert!(!order.is_turn(update_b) && order.is_turn(commit_a));
    order.ended(8, Some(commit_a));
    assert!(order.is_turn(update_b));
    // Two may release at a time.
    let mut both = Order::new(Seqs::default(), Turns::new(vec![commit_a, commit_a, update_b]));
    both.ended(8, Some(commit_a));
    assert!(both.is_turn(commit_a) && !both.is_turn(update_b));
    both.ended(9, Some(commit_a));
    assert!(both.is_turn(update_b));
}
