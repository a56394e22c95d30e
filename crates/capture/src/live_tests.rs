use super::*;
use proptest::prelude::*;
use std::collections::BTreeMap;

/// What a session did at the original: how long it waited before each statement, how long each took, its locks, and whether it was the
/// victim of a deadlock.
type History = Vec<Vec<(u8, u8, (Locks, bool))>>;

/// A statement: when it began and ended by the original's clock, and when it started and ended on the shadow.
#[derive(Clone, Copy, Debug)]
struct Shadowed {
    locks: Locks,
    ended: u64,
    began: u64,
    place: Place,
    on_shadow: Option<(u64, Option<u64>)>,
}

/// What happens next, in the order of a moment: ends of the shadow, ends of the original, begins of the original.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Moment {
    ShadowEnds(usize),
    Ends(usize, usize),
    Begins(usize, usize),
}

/// Runs a history at the original and on a shadow that runs at the same time, by a rule. None: something waits for ever.
fn shadowed(history: &History, times: &[u8], may_start: impl Fn(&LiveOrder, &Place) -> bool) -> Option<Vec<Shadowed>> {
    let (mut order, mut all, mut begun) = (LiveOrder::default(), Vec::<Shadowed>::new(), BTreeMap::new());
    let mut queues: Vec<Vec<usize>> = vec![Vec::new(); history.len()];
    let mut busy = vec![None; history.len()];
    let mut moments: BTreeSet<(u64, Moment)> = BTreeSet::new();
    for (session, statements) in history.iter().enumerate() {
        let mut now = 0;
        for (number, (wait, time, _)) in statements.iter().enumerate() {
            let began = now + u64::from(*wait);
            now = began + 1 + u64::from(*time);
            moments.extend([(began, Moment::Begins(session, number)), (now, Moment::Ends(session, number))]);
        }
    }
    while let Some((now, moment)) = moments.pop_first() {
        match moment {
            Moment::Begins(session, number) => {
                begun.insert((session, number), (now, order.begin(history[session][number].2.0)));
            }
            Moment::Ends(session, number) => {
                let (began, one) = begun.remove(&(session, number))?;
                let is_victim = history[session][number].2.1;
                let locks = if is_victim { Locks::Releases } else { one.locks };
                let place = if is_victim { order.end_victim(one) } else { order.end(one) };
                all.push(Shadowed { locks, began, ended: now, place, on_shadow: None });
                queues[session].push(all.len() - 1);
            }
            Moment::ShadowEnds(at) => {
                let (started, _) = all[at].on_shadow?;
                all[at].on_shadow = Some((started, Some(now)));
                order.done(&all[at].place);
                busy.iter_mut().filter(|busy| **busy == Some(at)).for_each(|busy| *busy = None);
            }
        }
        for session in 0..history.len() {
            let Some(&at) = queues[session].first().filter(|_| busy[session].is_none()) else { continue };
            if may_start(&order, &all[at].place) {
                queues[session].remove(0);
                busy[session] = Some(at);
                all[at].on_shadow = Some((now, None));
                // Zero: the shadow is as fast as can be, and runs beside the original.
                let time = u64::from(times.get(at % times.len().max(1)).copied().unwrap_or(0));
                moments.insert((now + 1 + time, Moment::ShadowEnds(at)));
            }
        }
    }
    queues.iter().all(Vec::is_empty).then_some(all)
}

/// A pair that was ordered at the original and is not on the shadow.
fn out_of_order(all: &[Shadowed]) -> Option<(Shadowed, Shadowed)> {
    let times = |one: &Shadowed| one.on_shadow.and_then(|(started, ended)| Some((started, ended?)));
    for was in all {
        for then in all {
            let is_ordered = was.ended <= then.began;
            let are_writes = was.locks == Locks::Takes && then.locks == Locks::Takes && was.place.seq < then.place.seq;
            let (Some((_, ended)), Some((started, _))) = (times(was), times(then)) else { return Some((*was, *then)) };
            if (is_ordered || are_writes) && ended > started {
                return Some((*was, *then));
            }
        }
    }
    None
}

fn history() -> impl Strategy<Value = History> {
    let others = [Locks::None, Locks::Takes, Locks::Releases].map(|locks| (locks, false));
    let locks = prop_oneof![3 => prop::sample::select(others.to_vec()), 1 => Just((Locks::Takes, true))];
    prop::collection::vec(prop::collection::vec((0..20_u8, 0..40_u8, locks), 0..12), 1..6)
}

proptest! {
    #[test]
    fn what_was_ordered_is_ordered_and_nothing_waits_for_ever(
        history in history(), times in prop::collection::vec(any::<u8>(), 1..40),
    ) {
        let all = shadowed(&history, &times, LiveOrder::may_start);
        prop_assert!(all.is_some(), "something waits for ever");
        prop_assert!(out_of_order(&all.unwrap_or_default()).is_none());
    }

    #[test]
    fn races_are_writes_without_an_order(history in history()) {
        let all = shadowed(&history, &[0], LiveOrder::may_start).unwrap_or_default();
        for one in &all {
            let beside = |other: &Shadowed| {
                other.locks != Locks::None && other.place.seq != one.place.seq && other.place.seq > one.place.after && other.began < one.ended
            };
            // A begin at the moment of an end comes behind it.
            prop_assert_eq!(one.place.is_raced, all.iter().any(beside), "{:?}", one);
        }
    }
}

/// Sabotage: with `<=` in place of `<`, the statement that ended last before another one began is not waited for.
#[test]
fn a_rule_that_compares_otherwise_is_noticed() {
    let none = (Locks::None, false);
    let history = vec![vec![(0, 4, none), (2, 1, none)], vec![(6, 1, none)]];
    let sabotaged = |order: &LiveOrder, place: &Place| order.open.first().is_none_or(|first| first >= place.after);
    let run = |rule: &dyn Fn(&LiveOrder, &Place) -> bool| shadowed(&history, &[90, 0, 0], rule);
    assert!(out_of_order(&run(&LiveOrder::may_start).unwrap()).is_none());
    assert!(out_of_order(&run(&sabotaged).unwrap()).is_some());
    // The other way round, a statement waits for itself.
    let itself = |order: &LiveOrder, place: &Place| order.open.first().is_none_or(|first| first > place.seq);
    assert!(run(&itself).is_none());
}

/// A's COMMIT releases what B waits for. B's end is numbered first, and B runs on the shadow already when the COMMIT is known.
#[test]
fn a_release_passes_who_waits_for_it() {
    let mut order = LiveOrder::default();
    let (commit, update) = (order.begin(Locks::Releases), order.begin(Locks::Takes));
    let update = order.end(update);
    assert!(order.may_start(&update), "nothing else is known");
    let commit = order.end(commit);
    assert!(order.may_start(&commit) && !order.may_start(&update));
    assert!(commit.is_raced && update.is_raced);
    order.done(&commit);
    assert!(order.may_start(&update));
    order.done(&update);
    assert_eq!((order.waiting(), order.writing), (0, 0));
}

/// B waits for A's locks, and gets them when A's transaction is rolled back to end a deadlock. B's end is numbered first.
#[test]
fn a_victim_passes_who_waits_for_its_locks() {
    let mut order = LiveOrder::default();
    let (victim, update) = (order.begin(Locks::Takes), order.begin(Locks::Takes));
    let update = order.end(update);
    let victim = order.end_victim(victim);
    assert!(order.may_start(&victim) && !order.may_start(&update));
    order.done(&victim);
    assert!(order.may_start(&update));
    order.done(&update);
    // A plain read may be one too.
    let read = order.begin(Locks::None);
    let read = order.end_victim(read);
    assert_eq!((order.may_start(&read), order.writing), (true, 0));
}

/// Many sessions wait, and each end lets one start: the work for an end does not grow with their number.
#[test]
fn the_work_of_an_end_does_not_grow_with_those_that_wait() {
    let looks = |sessions: u64| {
        let (mut order, mut waiting) = (LiveOrder::default(), Waiting::default());
        let first = order.begin(Locks::Takes);
        let first = order.end(first);
        // Half of them overlapped and wait for their turns, half of them wait for what they had seen.
        let begun: Vec<Begun> = (0..sessions / 2).map(|_| order.begin(Locks::Takes)).collect();
        let mut places: Vec<Place> = begun.into_iter().map(|begun| order.end(begun)).collect();
        for _ in sessions / 2..sessions {
            let begun = order.begin(Locks::None);
            places.push(order.end(begun));
        }
        places.iter().for_each(|place| waiting.insert(&order, place, *place));
        assert!(waiting.pop(&order).is_none());
        waiting.looks = 0;
        let (mut running, mut started) = (vec![first], 0);
        while let Some(place) = running.pop() {
            order.done(&place);
            while let Some(next) = waiting.pop(&order) {
                assert!(order.may_start(&next));
                running.push(next);
                started += 1;
            }
        }
        assert_eq!((started, order.waiting()), (sessions, 0));
        waiting.looks / sessions
    };
    assert_eq!((looks(100), looks(10_000)), (looks(1_000), looks(1_000)));
    assert!(looks(10_000) <= 4, "{} entries for an end", looks(10_000));
}

/// Whoever waits is let go by the end that it waited for, and not before, in any history.
#[test]
fn nobody_waits_whose_place_may_start() {
    let (mut order, mut waiting) = (LiveOrder::default(), Waiting::default());
    let (read, write) = (order.begin(Locks::None), order.begin(Locks::Takes));
    let [write, read] = [write, read].map(|begun| order.end(begun));
    let behind = order.begin(Locks::Takes);
    let behind = order.end(behind);
    [write, behind].iter().for_each(|place| waiting.insert(&order, place, place.seq()));
    assert_eq!((waiting.pop(&order), waiting.pop(&order)), (Some(write.seq()), None));
    order.done(&write);
    assert_eq!(waiting.pop(&order), None, "it has seen the read's end");
    // Whoever asks again is there once.
    waiting.insert(&order, &behind, 99);
    order.done(&read);
    assert_eq!((waiting.pop(&order), waiting.pop(&order)), (Some(99), None));
    waiting.insert(&order, &behind, 99);
    waiting.remove(&behind);
    assert_eq!(waiting.pop(&order), None);
}

/// On the shadow, an INSERT waits for a gap lock of a transaction, whose next statement began after the INSERT had ended.
#[test]
fn others_pass_who_waits_for_them() {
    let mut order = LiveOrder::default();
    let insert = order.begin(Locks::Takes);
    let insert = order.end(insert);
    let [update, commit] = [Locks::Takes, Locks::Releases].map(|locks| {
        let begun = order.begin(locks);
        order.end(begun)
    });
    let mut waiting = Waiting::default();
    waiting.insert(&order, &update, "update");
    assert!(order.may_start(&insert) && waiting.pop(&order).is_none() && !order.has_passed());
    order.pass(&insert);
    assert_eq!((waiting.pop(&order), order.has_passed()), (Some("update"), true));
    assert!(!order.may_start(&commit), "the order of the others holds");
    order.done(&update);
    order.done_passed();
    assert!(order.may_start(&commit) && !order.has_passed());
    order.done(&commit);
    assert_eq!(order.waiting(), 0);
}
