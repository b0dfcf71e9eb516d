//! The frames that wait to be written on a link. The hub puts them in, the link takes them out.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::Notify;

use crate::kernel::node::RefusalReason;
use crate::wire::node_link::ToNode;

/// Maximum number of bytes that wait to be written on a link. Calls are refused above it.
const BYTES_LIMIT: usize = 8 * 1024 * 1024;
/// Maximum number of frames that wait. A peer that reads so little is closed.
const FRAMES_LIMIT: usize = 10_000;

/// The frames of one link. Cheap to clone.
#[derive(Clone, Default)]
pub(super) struct Outbox {
    inner: Arc<OutboxInner>,
}

#[derive(Default)]
struct OutboxInner {
    queue: Mutex<FrameQueue>,
    wake: Notify,
}

#[derive(Default)]
struct FrameQueue {
    frames: VecDeque<String>,
    bytes: usize,
    last: Option<LastFrame>,
}

/// How a link ends by the gateway's decision.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum LastFrame {
    /// The node is told that it must not come again by itself.
    Refused(RefusalReason, String),
    /// The node reads too slowly.
    TooSlow,
}

/// What a link writes next.
pub(super) enum NextFrame {
    /// A frame; more may follow at once.
    Text(String),
    /// The last thing that happens on this link.
    Last(LastFrame),
}

impl Outbox {
    /// Adds a frame. It is dropped if the link is about to end.
    pub(super) fn push(&self, frame: &ToNode) {
        // These types contain only strings, numbers, lists and maps with text keys.
        let Ok(text) = serde_json::to_string(frame) else {
            return;
        };
        let mut queue = self.lock();
        if queue.last.is_some() {
            return;
        }
        if queue.frames.len() >= FRAMES_LIMIT {
            queue.last = Some(LastFrame::TooSlow);
            queue.frames.clear();
        } else {
            queue.bytes += text.len();
            queue.frames.push_back(text);
        }
        drop(queue);
        self.inner.wake.notify_one();
    }

    /// True if a frame of this size finds room.
    pub(super) fn has_room(&self, bytes: usize) -> bool {
        self.lock().bytes + bytes <= BYTES_LIMIT
    }

    /// Ends the link: nothing of what waits is written any more.
    pub(super) fn refuse(&self, reason: RefusalReason, message: &str) {
        let mut queue = self.lock();
        queue.frames.clear();
        queue
            .last
            .get_or_insert(LastFrame::Refused(reason, message.to_owned()));
        drop(queue);
        self.inner.wake.notify_one();
    }

    /// Takes the next frame, if there is one.
    pub(super) fn pop(&self) -> Option<NextFrame> {
        let mut queue = self.lock();
        if let Some(text) = queue.frames.pop_front() {
            queue.bytes -= text.len();
            return Some(NextFrame::Text(text));
        }
        queue.bytes = 0;
        queue.last.take().map(NextFrame::Last)
    }

    /// Waits until there may be something to write.
    pub(super) async fn filled(&self) {
        self.inner.wake.notified().await;
    }

    fn lock(&self) -> MutexGuard<'_, FrameQueue> {
        // Each change leaves the queue consistent, also after a panic.
        self.inner
            .queue
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kernel::ids::CallId;

    #[test]
    fn a_peer_that_does_not_read_costs_bounded_memory_and_is_closed() {
        let outbox = Outbox::default();
        let id = CallId(uuid::Uuid::nil());
        for _ in 0..FRAMES_LIMIT + 10 {
            outbox.push(&ToNode::Release { id });
        }
        let next = outbox.pop();
        assert!(matches!(next, Some(NextFrame::Last(LastFrame::TooSlow))));
        assert!(outbox.pop().is_none());
        assert!(outbox.has_room(BYTES_LIMIT) && !outbox.has_room(BYTES_LIMIT + 1));
    }

    #[test]
    fn a_refusal_goes_before_all_that_waits() {
        let outbox = Outbox::default();
        let id = CallId(uuid::Uuid::nil());
        outbox.push(&ToNode::Cancel { id });
        outbox.refuse(RefusalReason::Removed, "gone");
        outbox.push(&ToNode::Cancel { id });
        let Some(NextFrame::Last(LastFrame::Refused(reason, message))) = outbox.pop() else {
            panic!("not refused");
        };
        assert_eq!((reason, message.as_str()), (RefusalReason::Removed, "gone"));
    }
}
