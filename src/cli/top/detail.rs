//! Full view of an open request in `abide top`: it must be scrolled to its end before an approval
//! can be given; other requests have an input line.

use anstyle::Style;
use uuid::Uuid;

use crate::cli::asking::approval_text;
use crate::cli::asking::open_requests::OpenRequest;
use crate::cli::output::text;
use crate::kernel::time::Timestamp;

/// Milliseconds that an approval must be on the screen without an early `y` before a `y` counts.
const CALM_MS: u64 = 500;

/// The request that is shown, and the state of scrolling.
pub(super) struct RequestDetail {
    /// The request.
    pub(super) asked: OpenRequest,
    /// Index of the first visible line.
    top: usize,
    /// True once the last line was visible.
    is_read: bool,
    /// Time since which it is on the screen without an early `y`.
    calm_since: Option<Timestamp>,
    /// The typed answer to a question, or the typed value.
    pub(super) typed: String,
    /// The lines of the last layout.
    lines: Vec<(Style, String)>,
    /// Number of visible lines.
    height: usize,
}

impl RequestDetail {
    /// A view that starts at the first line.
    pub(super) fn of(asked: OpenRequest) -> RequestDetail {
        RequestDetail {
            asked,
            top: 0,
            is_read: false,
            calm_since: None,
            typed: String::new(),
            lines: Vec::new(),
            height: 1,
        }
    }

    pub(super) fn id(&self) -> Uuid {
        self.asked.id()
    }

    /// Takes over the current state of the request. `true`: a file has changed and so has what an
    /// approval covers, so it must be read again.
    pub(super) fn refresh(&mut self, now: &OpenRequest) -> bool {
        let (OpenRequest::Approval(before), OpenRequest::Approval(after)) = (&self.asked, now)
        else {
            return false;
        };
        if before.change == after.change {
            return false;
        }
        let typed = std::mem::take(&mut self.typed);
        *self = RequestDetail {
            typed,
            ..RequestDetail::of(now.clone())
        };
        true
    }

    /// Lays out the lines for this size. The layout is drawn before the next key is handled, so a
    /// last line in it counts as read.
    pub(super) fn lay_out(&mut self, columns: usize, height: usize, now: Timestamp) {
        self.lines = match &self.asked {
            OpenRequest::Approval(approval) => approval_text::lines(approval, now, Some(columns)),
            other => other
                .text(now)
                .lines()
                .flat_map(|line| text::wrap(&text::clean(line), columns))
                .map(|line| (Style::new(), line))
                .collect(),
        };
        self.height = height.max(1);
        self.top = self.top.min(self.last_top());
        self.is_read |= self.top + self.height >= self.lines.len();
        self.calm_since.get_or_insert(now);
    }

    fn last_top(&self) -> usize {
        self.lines.len().saturating_sub(self.height)
    }

    /// The visible lines.
    pub(super) fn shown(&self) -> &[(Style, String)] {
        let end = (self.top + self.height).min(self.lines.len());
        &self.lines[self.top..end]
    }

    /// Number of lines after the visible ones.
    pub(super) fn more(&self) -> usize {
        self.lines.len().saturating_sub(self.top + self.height)
    }

    /// True once the last line was visible.
    pub(super) fn is_read(&self) -> bool {
        self.is_read
    }

    /// True if the user had time to read it. A key that is held down, or text that arrives at once,
    /// is no sign of that.
    pub(super) fn is_calm(&self, now: Timestamp) -> bool {
        self.calm_since
            .is_some_and(|since| now.since(since) >= CALM_MS)
    }

    /// Restarts the time after an early `y`.
    pub(super) fn pressed_early(&mut self, now: Timestamp) {
        self.calm_since = Some(now);
    }

    /// Scrolls by this number of lines.
    pub(super) fn scroll(&mut self, by: isize) {
        self.top = self.top.saturating_add_signed(by).min(self.last_top());
    }

    /// Number of lines to scroll for a page; one line of the previous page stays visible.
    pub(super) fn page(&self) -> isize {
        isize::try_from(self.height.saturating_sub(1).max(1)).unwrap_or(1)
    }
}
