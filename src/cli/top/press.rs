//! Key handling of `abide top`: a key changes the model, or returns a task for the main loop.

use super::act::Act;
use super::detail::Detail;
use super::help::Help;
use super::keys::Key;
use super::model::{At, Model, Over, Waits};
use crate::cli::asking::open_requests::OpenRequest;
use crate::cli::live::tree;
use crate::cli::output::text::short;
use crate::kernel::ids::RunId;
use crate::kernel::time::Timestamp;

/// Number of lines for Page Up and Page Down in the lists.
const PAGE: isize = 10;

/// What the main loop has to do after a key.
pub(super) enum Next {
    /// Draw the screen.
    Draw,
    /// Clear the screen and draw it.
    Redraw,
    /// Quit the program.
    Quit,
    /// Attach to this run, and return.
    Attach(RunId),
    /// Execute this action.
    Do(Act),
}

/// Handles a key.
pub(super) fn press(model: &mut Model, key: Key, now: Timestamp) -> Next {
    if key == Key::Interrupt {
        return Next::Quit;
    }
    if key == Key::Redraw {
        return Next::Redraw;
    }
    model.message = None;
    match std::mem::take(&mut model.over) {
        Over::Nothing => in_lists(model, key),
        Over::Help(mut help) => {
            if !matches!(key, Key::Escape | Key::Char('q' | '?')) {
                help.press(key);
                model.over = Over::Help(help);
            }
            Next::Draw
        }
        Over::Detail(detail) => in_detail(model, detail, key, now),
        Over::Steer(run, text) => in_steer(model, run, text, key),
        Over::Cancel(run) => match key {
            Key::Char('y') => {
                model.message = Some(format!("cancelling {}", short(run)));
                Next::Do(Act::Cancel(run))
            }
            Key::Pasted(_) => {
                model.over = Over::Cancel(run);
                Next::Draw
            }
            _ => Next::Draw,
        },
    }
}

fn in_lists(model: &mut Model, key: Key) -> Next {
    match key {
        Key::Char('q') => return Next::Quit,
        Key::Up | Key::Char('k') => model.go(-1),
        Key::Down | Key::Char('j') => model.go(1),
        Key::PageUp => model.go(-PAGE),
        Key::PageDown => model.go(PAGE),
        Key::Home | Key::Char('g') => model.go(isize::MIN),
        Key::End | Key::Char('G') => model.go(isize::MAX),
        Key::Tab => model.go_over(),
        Key::Char('?') => model.over = Over::Help(Help::default()),
        Key::Enter => match model.selected() {
            Some(At::Run(run)) => return Next::Attach(run),
            _ => open(model),
        },
        // Keys that decide open nothing: a key that is held down would decide on every request.
        Key::Char(' ') => open(model),
        Key::Char('a') => {
            if let Some(run) = model.selected_run() {
                return Next::Attach(run);
            }
        }
        Key::Char('s') => {
            if let Some(run) = open_run(model) {
                model.over = Over::Steer(run, String::new());
            }
        }
        Key::Char('c') => {
            if let Some(run) = open_run(model) {
                model.over = Over::Cancel(run);
            }
        }
        _ => {}
    }
    Next::Draw
}

/// Opens the selected request.
fn open(model: &mut Model) {
    match model.selected_waiting() {
        Some(Waits::For(asked)) => {
            model.over = Over::Detail(Box::new(Detail::of(OpenRequest::clone(asked))));
        }
        Some(Waits::Review(run)) => {
            let text = format!(
                "check whether it has happened: abide review {}",
                short(run.run_id)
            );
            model.message = Some(text);
        }
        None => {
            model.message = Some("no request is selected; Tab switches to the requests".to_owned())
        }
    }
}

/// The selected run, if it has not ended.
fn open_run(model: &mut Model) -> Option<RunId> {
    let run = model.selected_run()?;
    let has_ended = model.run(run).is_some_and(|run| tree::is_ended(&run.state));
    if has_ended {
        model.message = Some(format!("{} has ended", short(run)));
        return None;
    }
    Some(run)
}

fn in_detail(model: &mut Model, mut detail: Box<Detail>, key: Key, now: Timestamp) -> Next {
    let is_approval = matches!(detail.asked, OpenRequest::Approval(_));
    match key {
        Key::Escape => return Next::Draw,
        Key::Up => detail.scroll(-1),
        Key::Down => detail.scroll(1),
        Key::PageUp => detail.scroll(-detail.page()),
        Key::PageDown => detail.scroll(detail.page()),
        Key::Home => detail.scroll(isize::MIN),
        Key::Char(key) if is_approval => match key {
            'k' => detail.scroll(-1),
            'j' => detail.scroll(1),
            ' ' => detail.scroll(detail.page()),
            'q' => return Next::Draw,
            'y' if detail.is_calm(now) && detail.is_read() => return answered(*detail, "yes"),
            'y' => {
                let text = match detail.is_read() {
                    false => "not decided yet: press Space to see the rest first",
                    true => "not decided yet: read it, and press y again in a moment",
                };
                model.message = Some(text.to_owned());
                detail.pressed_early(now);
            }
            'n' => return answered(*detail, "no"),
            _ => {}
        },
        Key::Char(key) => detail.typed.push(key),
        Key::Pasted(key) if !is_approval => detail.typed.push(key),
        Key::Backspace => drop(detail.typed.pop()),
        Key::Erase => detail.typed.clear(),
        Key::Enter if !is_approval && !detail.typed.trim().is_empty() => {
            let said = detail.typed.trim().to_owned();
            return answered(*detail, &said);
        }
        _ => {}
    }
    model.over = Over::Detail(detail);
    Next::Draw
}

fn answered(detail: Detail, said: &str) -> Next {
    Next::Do(Act::Answer(Box::new(detail.asked), said.to_owned()))
}

fn in_steer(model: &mut Model, run: RunId, mut text: String, key: Key) -> Next {
    match key {
        Key::Escape => return Next::Draw,
        Key::Enter if text.trim().is_empty() => return Next::Draw,
        Key::Enter => return Next::Do(Act::Steer(run, text)),
        Key::Char(key) | Key::Pasted(key) => text.push(key),
        Key::Backspace => drop(text.pop()),
        Key::Erase => text.clear(),
        _ => {}
    }
    model.over = Over::Steer(run, text);
    Next::Draw
}
