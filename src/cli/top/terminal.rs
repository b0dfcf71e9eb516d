//! Terminal control of `abide top`: the alternate screen in raw mode, drawn by crossterm's
//! commands, and restored at every exit, also after a panic.

use std::io::{self, IsTerminal, Write};
use std::sync::{Mutex, PoisonError};

use crossterm::cursor::{Hide, MoveTo, Show};
use crossterm::queue;
use crossterm::style::{
    Attribute, Color as Ink, Colors, Print, ResetColor, SetAttribute, SetColors,
};
use crossterm::terminal::{
    BeginSynchronizedUpdate, Clear, ClearType as Cleared, EndSynchronizedUpdate,
    EnterAlternateScreen, LeaveAlternateScreen,
};
use ratatui::backend::{Backend, ClearType, WindowSize};
use ratatui::buffer::Cell;
use ratatui::layout::{Position, Size};
use ratatui::style::{Color, Modifier};
use rustix::termios::{
    InputModes, LocalModes, OptionalActions, SpecialCodeIndex, Termios, tcgetattr, tcgetwinsize,
    tcsetattr,
};

use crate::cli::asking::person;
use crate::cli::common::failure::Failure;

/// Assumed size of a terminal that does not report its own.
const USUAL: Size = Size {
    width: 80,
    height: 24,
};

/// Bracketed paste mode on and off: the terminal marks pasted text, so that it is not taken for
/// keys.
const PASTES_ARE_MARKED: &str = "\u{1b}[?2004h";
const PASTES_ARE_NOT_MARKED: &str = "\u{1b}[?2004l";

/// The terminal's modes before it was taken over; `None` while it is not.
static BEFORE: Mutex<Option<Termios>> = Mutex::new(None);

/// Fails, with alternatives as a hint, if there is no terminal that can show a full screen.
pub(super) fn check() -> Result<(), Failure> {
    let is_dumb = std::env::var_os("TERM").is_some_and(|term| term == "dumb");
    if io::stdout().is_terminal() && person::is_at_the_terminal() && !is_dumb {
        return Ok(());
    }
    Err(Failure::usage(
        "abide top draws a full screen, and standard input and output are not a terminal that can \
         show one",
    )
    .hint("a list: abide ps; for programs: abide ps --json, abide events --json"))
}

/// The terminal, taken over until this is dropped.
pub(super) struct TerminalGuard(());

impl TerminalGuard {
    /// Takes the terminal over.
    pub(super) fn over() -> Result<TerminalGuard, Failure> {
        hook_panics();
        let taken = TerminalGuard(());
        taken.enter()?;
        Ok(taken)
    }

    /// Once this returns, the terminal is in raw mode and shows the alternate screen.
    pub(super) fn enter(&self) -> Result<(), Failure> {
        let failed = |error: io::Error| Failure::local("the terminal cannot be set up", error);
        let before = tcgetattr(io::stdin()).map_err(|error| failed(error.into()))?;
        let mut raw = before.clone();
        raw.local_modes
            .remove(LocalModes::ECHO | LocalModes::ICANON | LocalModes::ISIG | LocalModes::IEXTEN);
        // Ctrl-S would stop the output, and block this program.
        raw.input_modes.remove(InputModes::IXON | InputModes::ICRNL);
        raw.special_codes[SpecialCodeIndex::VMIN] = 1;
        raw.special_codes[SpecialCodeIndex::VTIME] = 0;
        *BEFORE.lock().unwrap_or_else(PoisonError::into_inner) = Some(before);
        tcsetattr(io::stdin(), OptionalActions::Now, &raw).map_err(|error| failed(error.into()))?;
        let mut out = io::stdout().lock();
        queue!(
            out,
            EnterAlternateScreen,
            Print(PASTES_ARE_MARKED),
            Hide,
            Clear(Cleared::All)
        )
        .and_then(|()| out.flush())
        .map_err(failed)
    }

    /// Once this returns, the terminal has its previous modes and screen.
    pub(super) fn leave(&self) {
        restore();
    }
}

impl Drop for TerminalGuard {
    fn drop(&mut self) {
        restore();
    }
}

/// Restores the terminal, if it is taken over.
fn restore() {
    let before = BEFORE.lock().unwrap_or_else(PoisonError::into_inner).take();
    let Some(before) = before else {
        return;
    };
    let mut out = io::stdout().lock();
    // A terminal that is gone cannot be restored, and need not be.
    let _ = queue!(
        out,
        ResetColor,
        SetAttribute(Attribute::Reset),
        Show,
        Print(PASTES_ARE_NOT_MARKED),
        LeaveAlternateScreen
    )
    .and_then(|()| out.flush());
    let _ = tcsetattr(io::stdin(), OptionalActions::Now, &before);
}

/// Restores the terminal before a panic is printed, so that the text stays on the screen.
fn hook_panics() {
    let usual = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |panic| {
        restore();
        usual(panic);
    }));
}

/// Draws cells on standard output. ratatui's own backend for crossterm includes a second way of
/// reading keys, which is not used here.
pub(super) struct Crossterm {
    has_colours: bool,
}

impl Crossterm {
    /// A backend with colours if standard output may have them.
    pub(super) fn new() -> Crossterm {
        let choice = anstream::AutoStream::choice(&io::stdout());
        Crossterm {
            has_colours: choice != anstream::ColorChoice::Never,
        }
    }
}

impl Backend for Crossterm {
    type Error = io::Error;

    fn draw<'a, I>(&mut self, content: I) -> io::Result<()>
    where
        I: Iterator<Item = (u16, u16, &'a Cell)>,
    {
        let mut out = io::stdout().lock();
        queue!(out, BeginSynchronizedUpdate)?;
        let mut style = None;
        for (x, y, cell) in content {
            let new = (cell.fg, cell.bg, cell.modifier);
            queue!(out, MoveTo(x, y))?;
            if style != Some(new) {
                style = Some(new);
                queue!(out, SetAttribute(Attribute::Reset))?;
                for (modifier, attribute) in ATTRIBUTES {
                    if cell.modifier.contains(modifier) {
                        queue!(out, SetAttribute(attribute))?;
                    }
                }
                if self.has_colours {
                    queue!(out, SetColors(Colors::new(ink(cell.fg), ink(cell.bg))))?;
                }
            }
            queue!(out, Print(cell.symbol()))?;
        }
        queue!(out, SetAttribute(Attribute::Reset), EndSynchronizedUpdate)
    }

    fn hide_cursor(&mut self) -> io::Result<()> {
        queue!(io::stdout(), Hide)
    }

    fn show_cursor(&mut self) -> io::Result<()> {
        queue!(io::stdout(), Show)
    }

    fn get_cursor_position(&mut self) -> io::Result<Position> {
        // Needed only for a picture that is drawn below a prompt.
        Ok(Position::ORIGIN)
    }

    fn set_cursor_position<P: Into<Position>>(&mut self, position: P) -> io::Result<()> {
        let at = position.into();
        queue!(io::stdout(), MoveTo(at.x, at.y))
    }

    fn clear(&mut self) -> io::Result<()> {
        queue!(io::stdout(), Clear(Cleared::All))
    }

    fn clear_region(&mut self, region: ClearType) -> io::Result<()> {
        let region = match region {
            ClearType::All => Cleared::All,
            ClearType::AfterCursor => Cleared::FromCursorDown,
            ClearType::BeforeCursor => Cleared::FromCursorUp,
            ClearType::CurrentLine => Cleared::CurrentLine,
            ClearType::UntilNewLine => Cleared::UntilNewLine,
        };
        queue!(io::stdout(), Clear(region))
    }

    fn size(&self) -> io::Result<Size> {
        Ok(tcgetwinsize(io::stdout())
            .ok()
            .filter(|size| size.ws_col > 0 && size.ws_row > 0)
            .map_or(USUAL, |size| Size::new(size.ws_col, size.ws_row)))
    }

    fn window_size(&mut self) -> io::Result<WindowSize> {
        Ok(WindowSize {
            columns_rows: self.size()?,
            pixels: Size::ZERO,
        })
    }

    fn flush(&mut self) -> io::Result<()> {
        io::stdout().flush()
    }
}

const ATTRIBUTES: [(Modifier, Attribute); 4] = [
    (Modifier::BOLD, Attribute::Bold),
    (Modifier::DIM, Attribute::Dim),
    (Modifier::UNDERLINED, Attribute::Underlined),
    (Modifier::REVERSED, Attribute::Reverse),
];

/// Converts the colours that are used here.
fn ink(colour: Color) -> Ink {
    match colour {
        Color::Red => Ink::DarkRed,
        Color::Green => Ink::DarkGreen,
        Color::Yellow => Ink::DarkYellow,
        Color::Cyan => Ink::DarkCyan,
        _ => Ink::Reset,
    }
}
