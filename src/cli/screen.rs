//! The live part of the terminal: lines that are redrawn in place, on standard error. Where
//! no terminal is there, nothing is drawn and the callers print plain lines instead.

use indicatif::{MultiProgress, ProgressBar, ProgressDrawTarget, ProgressStyle};

use super::print;

/// Lines that are redrawn in place.
pub(crate) struct Screen {
    all: MultiProgress,
    lines: Vec<ProgressBar>,
    frame: usize,
}

impl Screen {
    /// A screen on standard error; `None` where nobody would see it.
    pub(crate) fn new() -> Option<Screen> {
        print::notes_are_watched().then(|| Screen {
            all: MultiProgress::with_draw_target(ProgressDrawTarget::stderr()),
            lines: Vec::new(),
            frame: 0,
        })
    }

    /// Shows `lines` in place of those before. `make` gets the frame, to move spinners on.
    pub(crate) fn draw(&mut self, make: impl FnOnce(usize) -> Vec<String>) {
        self.frame += 1;
        let lines = make(self.frame);
        while self.lines.len() > lines.len() {
            if let Some(line) = self.lines.pop() {
                self.all.remove(&line);
            }
        }
        for (place, text) in lines.into_iter().enumerate() {
            let text = coloured(text);
            match self.lines.get(place) {
                Some(line) => line.set_message(text),
                None => {
                    let line = self.all.add(ProgressBar::new_spinner());
                    line.set_style(message_only());
                    line.set_message(text);
                    line.tick();
                    self.lines.push(line);
                }
            }
        }
    }

    /// Does something with the live part out of the way.
    pub(crate) fn aside<T>(&self, work: impl FnOnce() -> T) -> T {
        self.all.suspend(work)
    }

    /// Prints a line above the live part; it stays.
    pub(crate) fn keep(&self, text: &str) {
        // A terminal that takes no more text is no reason to stop the work.
        let _ = self.all.println(coloured(text.to_owned()));
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        let _ = self.all.clear();
    }
}

fn message_only() -> ProgressStyle {
    // The template is a constant with one known key; the spinner's own style is as good.
    ProgressStyle::with_template("{wide_msg}").unwrap_or_else(|_| ProgressStyle::default_spinner())
}

/// Indicatif prints what it is given, so the rule for colours is kept here.
fn coloured(text: String) -> String {
    match anstream::AutoStream::choice(&std::io::stderr()) {
        anstream::ColorChoice::Never => anstream::adapter::strip_str(&text).to_string(),
        _ => text,
    }
}
