//! Distributes work on many items over the processors: scans of large folders take noticeable time
//! while a caller waits. Called by `scan` and `entries`.

use std::sync::{Mutex, OnceLock, PoisonError};
use std::thread;

/// Maximum number of threads; more do not make a disk faster.
const MAX_THREADS: usize = 8;

/// Runs `work` on all of `items` in parts of `least`, the number that is worth a thread. All work
/// is done when this returns, even if the system gives no threads.
pub(super) fn spread<T: Send>(items: &mut [T], least: usize, work: impl Fn(&mut [T]) + Sync) {
    let helpers = (processors().min(MAX_THREADS) - 1).min(items.len() / least);
    let left = Mutex::new(items.chunks_mut(least));
    let take = || {
        loop {
            // The lock is not held during the work.
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

/// The number of processors, queried once: the query reads several files.
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
