//! Key handling of `abide top`: a key changes the model, or returns a task for the main loop.

use super::act::TopAction;
use super::detail::RequestDetail;
use super::help::Help;
use super::keys::PressedKey;
use super::model::{At, TopModel, TopOverlay, Waits};
use crate::cli::asking::open_requests::OpenRequest;
use crate::cli::live::tree;
use crate::cli::output::text::short;
use crate::kernel::ids::RunId;
use crate::kernel::time::Timestamp;

/// Number of lines for Page Up and Page Down in the lists.
const PAGE: isize = 10;

/// What the main loop has to do after a key.
pub(super) enum KeyOutcome {
    /// Draw the screen.
    Draw,
    /// Clear the screen and draw it.
    Redraw,
    /// Quit the program.
    Quit,
    /// Attach to this run, and return.
    Attach(RunId),
    /// Execute this action.
    Do(TopAction),
}

/// Handles a key.
pub(super) fn press(model: &mut TopModel, key: PressedKey, now: Timestamp) -> KeyOutcome {
    if key == PressedKey::Interrupt {
        return KeyOutcome::Quit;
    }
    if key == PressedKey::Redraw {
        return KeyOutcome::Redraw;
    }
    model.message = None;
    match std::mem::take(&mut model.over) {
        TopOverlay::Nothing => in_lists(model, key),
        TopOverlay::Help(mut help) => {
            if !matches!(key, PressedKey::Escape | PressedKey::Char('q' | '?')) {
                help.press(key);
                model.over = TopOverlay::Help(help);
            }
            KeyOutcome::Draw
        }
        TopOverlay::Detail(detail) => in_detail(model, detail, key, now),
        TopOverlay::Steer(run, text) => in_steer(model, run, text, key),
        TopOverlay::Cancel(run) => match key {
            PressedKey::Char('y') => {
                model.message = Some(format!("cancelling {}", short(run)));
                KeyOutcome::Do(TopAction::Cancel(run))
            }
            PressedKey::Pasted(_) => {
                model.over = TopOverlay::Cancel(run);
                KeyOutcome::Draw
            }
            _ => KeyOutcome::Draw,
        },
    }
}

fn in_lists(model: &mut TopModel, key: PressedKey) -> KeyOutcome {
    match key {
        PressedKey::Char('q') => return KeyOutcome::Quit,
        PressedKey::Up | PressedKey::Char('k') => model.go(-1),
        PressedKey::Down | PressedKey::Char('j') => model.go(1),
        PressedKey::PageUp => model.go(-PAGE),
        PressedKey::PageDown => model.go(PAGE),
        PressedKey::Home | PressedKey::Char('g') => model.go(isize::MIN),
        PressedKey::End | PressedKey::Char('G') => model.go(isize::MAX),
        PressedKey::Tab => model.go_over(),
        PressedKey::Char('?') => model.over = TopOverlay::Help(Help::default()),
        PressedKey::Enter => match model.selected() {
            Some(At::Run(run)) => return KeyOutcome::Attach(run),
            _ => open(model),
        },
        // Keys that decide open nothing: a key that is held down would decide on every request.
        PressedKey::Char(' ') => open(model),
        PressedKey::Char('a') => {
            if let Some(run) = model.selected_run() {
                return KeyOutcome::Attach(run);
            }
        }
        PressedKey::Char('s') => {
            if let Some(run) = open_run(model) {
                model.over = TopOverlay::Steer(run, String::new());
            }
        }
        PressedKey::Char('c') => {
            if let Some(run) = open_run(model) {
                model.over = TopOverlay::Cancel(run);
            }
        }
        _ => {}
    }
    KeyOutcome::Draw
}

/// Opens the selected request.
fn open(model: &mut TopModel) {
    match model.selected_waiting() {
        Some(Waits::For(asked)) => {
            model.over = TopOverlay::Detail(Box::new(RequestDetail::of(OpenRequest::clone(asked))));
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
fn open_run(model: &mut TopModel) -> Option<RunId> {
    let run = model.selected_run()?;
    let has_ended = model.run(run).is_some_and(|run| tree::is_ended(&run.state));
    if has_ended {
        model.message = Some(format!("{} has ended", short(run)));
        return None;
    }
    Some(run)
}

fn in_detail(
    model: &mut TopModel,
    mut detail: Box<RequestDetail>,
    key: PressedKey,
    now: Timestamp,
) -> KeyOutcome {
    let is_approval = matches!(detail.asked, OpenRequest::Approval(_));
    match key {
        PressedKey::Escape => return KeyOutcome::Draw,
        PressedKey::Up => detail.scroll(-1),
        PressedKey::Down => detail.scroll(1),
        PressedKey::PageUp => detail.scroll(-detail.page()),
        PressedKey::PageDown => detail.scroll(detail.page()),
        PressedKey::Home => detail.scroll(isize::MIN),
        PressedKey::Char(key) if is_approval => match key {
            'k' => detail.scroll(-1),
            'j' => detail.scroll(1),
            ' ' => detail.scroll(detail.page()),
            'q' => return KeyOutcome::Draw,
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
        PressedKey::Char(key) => detail.typed.push(key),
        PressedKey::Pasted(key) if !is_approval => detail.typed.push(key),
        PressedKey::Backspace => drop(detail.typed.pop()),
        PressedKey::Erase => detail.typed.clear(),
        PressedKey::Enter if !is_approval && !detail.typed.trim().is_empty() => {
            let said = detail.typed.trim().to_owned();
            return answered(*detail, &said);
        }
        _ => {}
    }
    model.over = TopOverlay::Detail(detail);
    KeyOutcome::Draw
}

fn answered(detail: RequestDetail, said: &str) -> KeyOutcome {
    KeyOutcome::Do(TopAction::Answer(Box::new(detail.asked), said.to_owned()))
}

fn in_steer(model: &mut TopModel, run: RunId, mut text: String, key: PressedKey) -> KeyOutcome {
    match key {
        PressedKey::Escape => return KeyOutcome::Draw,
        PressedKey::Enter if text.trim().is_empty() => return KeyOutcome::Draw,
        PressedKey::Enter => return KeyOutcome::Do(TopAction::Steer(run, text)),
        PressedKey::Char(key) | PressedKey::Pasted(key) => text.push(key),
        PressedKey::Backspace => drop(text.pop()),
        PressedKey::Erase => text.clear(),
        _ => {}
    }
    model.over = TopOverlay::Steer(run, text);
    KeyOutcome::Draw
}
