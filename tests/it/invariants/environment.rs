//! Values of runs are kept exactly while the runs are open. The application of an environment is
//! announced once, and its removal once.

use crate::harness::StoreRows;

/// Sealed values belong to open runs; each environment is applied once, and restored once after the
/// end of its run. With `finished`, none is still applied.
pub(super) fn environments_are_whole(book: &StoreRows, finished: bool) {
    for run in &book.sealed {
        assert!(
            !book.runs[run].ended,
            "sealed values kept after the end of {run}"
        );
    }
    if finished {
        assert!(book.applied.is_empty(), "carried: {:?}", book.applied);
    }
    if book.is_trimmed() {
        return;
    }
    let by_run = book.events_by_run();
    for run in book.runs.values() {
        let events = by_run.get(run.id.as_str()).map_or(&[][..], Vec::as_slice);
        let at = |kind: &str| {
            let told = events.iter().filter(|event| event.kind == kind);
            let told: Vec<i64> = told.map(|event| event.cursor).collect();
            assert!(told.len() <= 1, "{kind} twice: {run:?}");
            told.first().copied()
        };
        let (applied, restored) = (at("env.applied"), at("env.restored"));
        let is_carried = book.applied.contains(&run.id);
        assert_eq!(
            is_carried,
            applied.is_some() && restored.is_none(),
            "{run:?}"
        );
        if let Some(restored) = restored {
            assert!(applied < Some(restored) && at("run.ended") < Some(restored));
        }
    }
}
