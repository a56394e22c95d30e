//! Memory that is about to be used is asked for ahead of time.
//!
//! With hundreds of busy sessions each one finds its memory pushed out of the core's own caches by the others, and waits for it
//! line by line. Asked for while the one before it in line still runs, it is there in time.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};

/// Bytes that a processor fetches at a time.
#[cfg(target_arch = "x86_64")]
const LINE: usize = 64;
/// Most woken tasks that are remembered in their order.
const MAX_WOKEN: usize = 1024;
/// How far from the front a task looks for itself: others may have been woken twice.
const LOOKED_AT: usize = 4;

/// Where a value lies, and how far.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Extent {
    start: usize,
    #[cfg(target_arch = "x86_64")]
    lines: usize,
}

impl Extent {
    pub(crate) fn of<T: ?Sized>(value: &T) -> Self {
        Self {
            start: std::ptr::from_ref(value).addr(),
            #[cfg(target_arch = "x86_64")]
            lines: size_of_val(value).div_ceil(LINE),
        }
    }

    /// Asks for what lies there, and goes on.
    #[inline]
    pub(crate) fn fetch(self) {
        #[cfg(target_arch = "x86_64")]
        for line in 0..self.lines {
            use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
            let address = std::ptr::without_provenance(self.start.wrapping_add(line * LINE));
            // SAFETY: a hint: it reads and writes nothing, and takes any address, one that is no memory any more too.
            #[allow(unsafe_code)]
            unsafe {
                _mm_prefetch::<_MM_HINT_T0>(address);
            }
        }
    }
}

/// A future whose memory is there when it is polled: its own first, then what else it will touch.
pub(crate) struct Warm<F> {
    future: Pin<Box<F>>,
    extents: [Extent; 3],
    /// What wakes it, once it has been polled.
    herald: Option<(Arc<Herald>, Waker)>,
}

impl<F: Future> Warm<F> {
    /// One that will touch these.
    pub(crate) fn new(future: F, others: [Extent; 2]) -> Self {
        let (future, [one, other]) = (Box::pin(future), others);
        Self { extents: [Extent::of(&*future), one, other], future, herald: None }
    }
}

impl<F: Future> Future for Warm<F> {
    type Output = F::Output;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<F::Output> {
        begin(self.extents);
        let Self { future, extents, herald } = &mut *self;
        let (_, waker) = match herald {
            Some(known) if known.0.task.will_wake(cx.waker()) => known,
            other => {
                let made = Arc::new(Herald { task: cx.waker().clone(), extents: *extents });
                other.insert((Arc::clone(&made), Waker::from(made)))
            }
        };
        future.as_mut().poll(&mut Context::from_waker(waker))
    }
}

/// Wakes a task, and notes that it is the last in line.
struct Herald {
    task: Waker,
    extents: [Extent; 3],
}

impl Wake for Herald {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        // A thread that ends has none any more.
        let _ = WOKEN.try_with(|woken| {
            let mut woken = woken.borrow_mut();
            if woken.len() < MAX_WOKEN {
                woken.push_back(Woken { extents: self.extents, is_fetched: false });
            }
        });
        self.task.wake_by_ref();
    }
}

struct Woken {
    extents: [Extent; 3],
    is_fetched: bool,
}

impl Woken {
    fn fetch(&mut self) {
        if !std::mem::replace(&mut self.is_fetched, true) {
            self.extents.iter().for_each(|extent| extent.fetch());
        }
    }
}

thread_local! {
    /// Tasks of this thread in the order in which they were woken, which is that in which they run; more or less, and what is wrong here
    /// costs time only.
    static WOKEN: RefCell<VecDeque<Woken>> = const { RefCell::new(VecDeque::new()) };
}

/// This task runs now; the next one soon.
fn begin(extents: [Extent; 3]) {
    WOKEN.with_borrow_mut(|woken| {
        let place = woken.iter().take(LOOKED_AT).position(|woken| woken.extents[0].start == extents[0].start);
        let over = match place {
            Some(place) => place + 1,
            // What stands there is perhaps of tasks that never run.
            None => usize::from(woken.len() > LOOKED_AT),
        };
        let own = woken.drain(..over).next_back().filter(|_| place.is_some());
        own.unwrap_or(Woken { extents, is_fetched: false }).fetch();
        if let Some(next) = woken.front_mut() {
            next.fetch();
        }
    });
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::future::poll_fn;

    fn fetched() -> Vec<bool> {
        WOKEN.with_borrow(|woken| woken.iter().map(|woken| woken.is_fetched).collect())
    }

    #[test]
    fn the_next_in_line_is_fetched_while_one_runs() {
        // Each with something in it: what is empty has no place of its own.
        let pending = |number: u64| {
            let future = poll_fn(move |_| if number == u64::MAX { Poll::Ready(()) } else { Poll::Pending });
            Warm::new(future, [Extent::of(&0); 2])
        };
        let mut tasks = [pending(0), pending(1), pending(2)];
        let cx = &mut Context::from_waker(Waker::noop());
        for task in &mut tasks {
            assert!(Pin::new(task).poll(cx).is_pending());
        }
        let wake = |task: &Warm<_>| task.herald.as_ref().unwrap().1.wake_by_ref();
        tasks.iter().for_each(wake);
        assert_eq!(fetched(), [false, false, false]);
        assert!(Pin::new(&mut tasks[0]).poll(cx).is_pending());
        assert_eq!(fetched(), [true, false]);
        // One that nobody saw woken disturbs no one.
        assert!(Pin::new(&mut tasks[0]).poll(cx).is_pending());
        assert_eq!(fetched(), [true, false]);
        // One that runs out of turn.
        assert!(Pin::new(&mut tasks[2]).poll(cx).is_pending());
        assert_eq!(fetched(), [true; 0]);
        for _ in 0..2 * MAX_WOKEN {
            wake(&tasks[1]);
        }
        assert_eq!(fetched().len(), MAX_WOKEN);
        for _ in 0..2 * MAX_WOKEN {
            assert!(Pin::new(&mut tasks[0]).poll(cx).is_pending());
        }
        assert_eq!(fetched().len(), LOOKED_AT, "what is left of tasks that never run goes away");
    }
}
