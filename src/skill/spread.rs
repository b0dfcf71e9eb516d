//! Spreads work on many things over the processors: of a folder of thousands each look is some,
//! and somebody waits for it. Called by `scan` and `entries`.

use std::sync::{Mutex, OnceLock, PoisonError};
use std::thread;

/// With more threads than these a disk is no faster.
const MOST: usize = 8;

/// Does `work` on all of `items`, of which at least `least` are worth a thread. It is done when
/// this returns, also where the system gives no thread.
pub(super) fn spread<T: Send>(items: &mut [T], least: usize, work: impl Fn(&mut [T]) + Sync) {
    let helpers = (processors().min(MOST) - 1).min(items.len() / least);
    let left = Mutex::new(items.chunks_mut(least));
    let take = || {
        loop {
            // The lock is not held while there is work.
            let next = left.lock().unwrap_or_else(PoisonError::into_inner).next();
            match next {
                Some(part) => work(part),
                None => return,
            }
        }
    };
    thread::scope(|scope| {
        for _ in 0..helpers {
            if thread::Builder::new().spawn_scoped(scope, take).is_err() {
                break;
            }
        }
        take();
    });
}

/// How many there are, asked once: the answer takes reading several files.
fn processors() -> usize {
    static PROCESSORS: OnceLock<usize> = OnceLock::new();
    *PROCESSORS.get_or_init(|| thread::available_parallelism().map_or(1, usize::from))
}

#[cfg(test)]
mod tests {
    use super::spread;

    #[test]
    fn everything_is_worked_on_once() {
        for count in [0, 1, 6, 7, 8, 50, 1_000] {
            let mut items = vec![0; count];
            spread(&mut items, 7, |part| {
                part.iter_mut().for_each(|item| *item += 1);
            });
            assert_eq!(items, vec![1; count]);
        }
    }
}
