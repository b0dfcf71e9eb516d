//! Something that waits for a person, shown whole over the lists of `abide top`: scrolled to its
//! end before an approval can be given, and with a line for what is answered.

use anstyle::Style;
use uuid::Uuid;

use crate::cli::asked::Asked;
use crate::cli::{covered, text};
use crate::kernel::time::Timestamp;

/// A yes counts when an approval has been on the screen for so long without one.
const CALM_MS: u64 = 500;

/// What is shown, and how far.
pub(super) struct Detail {
    /// What it is.
    pub(super) asked: Asked,
    /// The first line that is shown.
    top: usize,
    /// Its end was shown.
    is_read: bool,
    /// Since then it is on the screen, and no yes came that was too early.
    calm_since: Option<Timestamp>,
    /// What was typed as the answer to a question or as a value.
    pub(super) typed: String,
    /// The lines as they were laid out last.
    lines: Vec<(Style, String)>,
    /// How many of them are shown at once.
    height: usize,
}

impl Detail {
    /// From its beginning.
    pub(super) fn of(asked: Asked) -> Detail {
        Detail {
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

    /// Takes over what is asked now. Where a file has changed since, so has what an approval
    /// covers, and it is to be read again: `true`.
    pub(super) fn refresh(&mut self, now: &Asked) -> bool {
        let (Asked::Approval(before), Asked::Approval(after)) = (&self.asked, now) else {
            return false;
        };
        if before.change == after.change {
            return false;
        }
        let typed = std::mem::take(&mut self.typed);
        *self = Detail {
            typed,
            ..Detail::of(now.clone())
        };
        true
    }

    /// Lays it out for a place of this size. What is laid out is drawn before the next key is
    /// taken, so an end that stands in it was shown.
    pub(super) fn lay_out(&mut self, columns: usize, height: usize, now: Timestamp) {
        self.lines = match &self.asked {
            Asked::Approval(approval) => covered::lines(approval, now, Some(columns)),
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

    /// The lines that are to be seen.
    pub(super) fn shown(&self) -> &[(Style, String)] {
        let end = (self.top + self.height).min(self.lines.len());
        &self.lines[self.top..end]
    }

    /// How many lines come after those.
    pub(super) fn more(&self) -> usize {
        self.lines.len().saturating_sub(self.top + self.height)
    }

    /// Was its end shown?
    pub(super) fn is_read(&self) -> bool {
        self.is_read
    }

    /// Could a person have read it? A key that is held down, or text that comes at once, says
    /// nothing about it.
    pub(super) fn is_calm(&self, now: Timestamp) -> bool {
        self.calm_since
            .is_some_and(|since| now.since(since) >= CALM_MS)
    }

    /// A yes came too early: the time begins anew.
    pub(super) fn pressed_early(&mut self, now: Timestamp) {
        self.calm_since = Some(now);
    }

    /// Scrolls by so many lines.
    pub(super) fn scroll(&mut self, by: isize) {
        self.top = self.top.saturating_add_signed(by).min(self.last_top());
    }

    /// The lines of a page; one of the page before stays.
    pub(super) fn page(&self) -> isize {
        isize::try_from(self.height.saturating_sub(1).max(1)).unwrap_or(1)
    }
}
