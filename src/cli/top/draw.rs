//! Draws the screen of `abide top` from its model, at any size.

use ratatui::Frame;
use ratatui::layout::{Constraint, Layout, Margin, Rect};
use ratatui::style::{Color, Modifier, Style};
use ratatui::text::{Line, Span};
use ratatui::widgets::{Block, Clear, Paragraph};
use unicode_width::UnicodeWidthStr;

use super::detail::RequestDetail;
use super::model::{At, TopModel, TopOverlay, Waits};
use super::rows;
use crate::cli::asking::open_requests::OpenRequest;
use crate::cli::output::text::{line, short, span, wrap};
use crate::kernel::time::Timestamp;
use crate::wire::gateway::{ModelProvider, Status};

/// Minimum columns and rows; a smaller screen shows only a note.
const LEAST: (u16, u16) = (24, 8);
/// Below this width less important parts are left out.
const NARROW: u16 = 60;
/// From this width on the selected run is shown beside the list.
const WIDE: u16 = 120;
/// From this height on, text above and below the lists may take several lines.
const HIGH: u16 = 12;

pub(super) const BOLD: Style = Style::new().add_modifier(Modifier::BOLD);
pub(super) const DIM: Style = Style::new().add_modifier(Modifier::DIM);
pub(super) const GOOD: Style = Style::new().fg(Color::Green);
pub(super) const BAD: Style = Style::new().fg(Color::Red);
pub(super) const BUSY: Style = Style::new().fg(Color::Cyan);
pub(super) const ASKS: Style = Style::new().fg(Color::Yellow);

/// Draws the screen. The overlay is laid out for this size, too.
pub(super) fn draw(frame: &mut Frame<'_>, model: &mut TopModel, now: Timestamp) {
    let area = frame.area();
    if area.width < LEAST.0 || area.height < LEAST.1 {
        let text = format!("too small; needs {} x {}", LEAST.0, LEAST.1);
        frame.render_widget(Paragraph::new(line(&text, area.width.into())), area);
        return;
    }
    let lines = |most: usize| if area.height < HIGH { 1 } else { most };
    let width = usize::from(area.width);
    let status = model.status.as_ref();
    let top = [
        flow(head_line(model), width, lines(2)),
        flow(
            status.map_or_else(Vec::new, |status| lanes_line(status, area.width)),
            width,
            lines(2),
        ),
        flow(
            status.map_or_else(Vec::new, |status| models_line(status, now, width)),
            width,
            lines(2),
        ),
    ]
    .concat();
    let message = message(model, width, lines(3));
    let [above, below] = [top.len(), message.len()].map(|lines| lines as u16);
    let waiting = waiting_height(model, area.height - above - below - 1);
    let [head, asked, runs, said, keys] = Layout::vertical([
        Constraint::Length(above),
        Constraint::Length(waiting),
        Constraint::Min(2),
        Constraint::Length(below),
        Constraint::Length(1),
    ])
    .areas(area);
    frame.render_widget(Paragraph::new(top), head);
    if waiting > 0 {
        asked_list(frame, asked, model, now);
    }
    let [list, beside] = match area.width >= WIDE {
        true => Layout::horizontal([Constraint::Min(40), Constraint::Percentage(40)]).areas(runs),
        false => [runs, Rect::default()],
    };
    run_list(frame, list, model, now);
    if !beside.is_empty() {
        selected_run(frame, beside, model, now);
    }
    frame.render_widget(Paragraph::new(message), said);
    let room = Rect {
        height: area.height - below - 1,
        ..area
    };
    over(frame, room, model, now);
    // Drawn last, because the keys depend on the layout of the overlay.
    one_line(frame, keys, keys_line(model, now, width));
}

/// The message, on at least one line and at most `most`; a cut is shown by `…`.
fn message(model: &TopModel, width: usize, most: usize) -> Vec<Line<'static>> {
    let said = model.message.as_deref().unwrap_or_default();
    let mut lines = wrap(said, width);
    if lines.len() > most {
        let rest = lines.split_off(most - 1).join(" ");
        lines.push(line(&rest, width));
    }
    let lines = lines.into_iter();
    lines.map(|text| Line::styled(text, ASKS)).collect()
}

/// Breaks a line between its spans, at most `most` lines; what does not fit is replaced by `…`.
fn flow(spans: Vec<Span<'static>>, width: usize, most: usize) -> Vec<Line<'static>> {
    let mut lines = vec![Line::default()];
    let count = spans.len();
    for (at, span) in spans.into_iter().enumerate() {
        let is_last = at + 1 == count;
        // On the last line there must be room for the mark of a cut.
        let mark = if lines.len() == most && !is_last {
            2
        } else {
            0
        };
        let full = lines.len();
        let Some(last) = lines.last_mut() else { break };
        if last.spans.is_empty() || last.width() + span.width() + mark <= width {
            last.push_span(span);
        } else if full < most {
            lines.push(Line::from(span));
        } else {
            last.push_span(Span::raw(" …"));
            break;
        }
    }
    lines
}

/// Height of the list of requests with its head: at most a third of the room.
fn waiting_height(model: &TopModel, room: u16) -> u16 {
    let count = u16::try_from(model.waiting.len()).unwrap_or(u16::MAX);
    match count {
        0 => 0,
        count => count.min((room / 3).max(2) - 1) + 1,
    }
}

fn one_line(frame: &mut Frame<'_>, area: Rect, line: Line<'_>) {
    frame.render_widget(Paragraph::new(line), area);
}

fn head_line(model: &TopModel) -> Vec<Span<'static>> {
    let mut spans = vec![Span::styled("abide top", BOLD)];
    let state = match (&model.status, model.lost) {
        (_, true) => Some(("  no daemon: reconnecting".to_owned(), BAD)),
        (None, false) => Some(("  loading".to_owned(), DIM)),
        (Some(status), false) if status.phase != "ready" => {
            Some((format!("  the daemon is {}", line(&status.phase, 16)), ASKS))
        }
        _ => None,
    };
    spans.extend(state.map(|(text, style)| Span::styled(text, style)));
    if let Some(status) = &model.status {
        let counts = status.counts;
        for (count, name, style) in [
            (counts.running, "running", BUSY),
            (counts.queued, "queued", Style::new()),
            (counts.paused, "paused", ASKS),
            (counts.settling, "settling", Style::new()),
        ] {
            if count > 0 {
                spans.push(Span::styled(format!("  {count} {name}"), style));
            }
        }
        if counts.pending_announces > 0 {
            let text = format!("  {} results to deliver", counts.pending_announces);
            spans.push(Span::raw(text));
        }
    }
    spans
}

/// Usage of the lanes; a narrow screen shows only those in use.
fn lanes_line(status: &Status, width: u16) -> Vec<Span<'static>> {
    let mut spans = vec![Span::styled("lanes", DIM)];
    let is_narrow = width < NARROW;
    for lane in status.lanes.iter().rev() {
        let is_all = &*lane.name == "global";
        if is_narrow && !is_all && lane.running + lane.queued == 0 {
            continue;
        }
        let name = if is_all {
            "all".to_owned()
        } else {
            line(&lane.name, 12)
        };
        let is_full = lane.running >= lane.limit && (lane.queued > 0 || lane.limit == 0);
        let style = if is_full { ASKS } else { Style::new() };
        spans.push(Span::styled(
            format!("  {name} {}/{}", lane.running, lane.limit),
            style,
        ));
    }
    spans
}

/// Health of the providers: those that take no requests first, because the line may be cut.
fn models_line(status: &Status, now: Timestamp, width: usize) -> Vec<Span<'static>> {
    let told = |provider: &ModelProvider| {
        let name = line(&provider.name, 20);
        let health = provider.health.as_ref();
        let state = health.map_or("", |health| &*health.state);
        match (&provider.problem, state) {
            (Some(problem), _) => (0, format!("{name} is not usable: {problem}"), BAD),
            (None, "paused") => {
                let until = health.and_then(|health| health.until);
                let left = until.map_or(String::new(), |until| span(until.since(now)));
                let why = health.and_then(|health| health.reason.clone());
                let why = why.unwrap_or_default();
                (1, format!("{name} paused {left}: {why}"), ASKS)
            }
            (None, "ok") => (3, format!("{name} ok"), Style::new()),
            // No request was made since the start.
            (None, "") => (4, name, DIM),
            (None, state) => (2, format!("{name} {state}"), ASKS),
        }
    };
    let mut all: Vec<_> = status.providers.iter().map(told).collect();
    all.sort_by_key(|(order, ..)| *order);
    let mut spans = vec![Span::styled("models", DIM)];
    for (_, text, style) in all {
        // Its mark of a cut included, each fits behind the name of the line.
        let text = format!("  {}", line(&text, width.saturating_sub(10)));
        spans.push(Span::styled(text, style));
    }
    spans
}

fn asked_list(frame: &mut Frame<'_>, area: Rect, model: &TopModel, now: Timestamp) {
    let width = usize::from(area.width);
    let head = format!("waits for you: {}", model.waiting.len());
    let texts = model.waiting.iter().map(|one| {
        let is_here = model.selected() == Some(At::Waiting(one.id()));
        let text = rows::waiting(one, now, width);
        (Line::styled(text, ASKS), is_here)
    });
    list(frame, area, &head, texts.collect());
}

fn run_list(frame: &mut Frame<'_>, area: Rect, model: &TopModel, now: Timestamp) {
    let more = if model.more { " or more" } else { "" };
    let head = format!("runs: {}{more}", model.runs.len());
    if model.runs.is_empty() {
        let hint = "none; start one: abide run \"TASK\"";
        let text = Line::styled(line(hint, area.width.into()), DIM);
        return list(frame, area, &head, vec![(text, false)]);
    }
    let levels: Vec<usize> = model.runs.iter().map(|(level, _)| *level).collect();
    let texts = model.runs.iter().enumerate().map(|(at, (_, run))| {
        let is_here = model.selected() == Some(At::Run(run.run_id));
        let branch = rows::branch(&levels[at..]);
        (rows::run(run, &branch, now, area.width.into()), is_here)
    });
    list(frame, area, &head, texts.collect());
}

/// Draws a head and the part of these lines that contains the selected one.
fn list(frame: &mut Frame<'_>, area: Rect, head: &str, lines: Vec<(Line<'static>, bool)>) {
    let [top, below] = Layout::vertical([Constraint::Length(1), Constraint::Min(0)]).areas(area);
    let height = usize::from(below.height);
    let here = lines.iter().position(|(_, is_here)| *is_here).unwrap_or(0);
    let first = (here + 1).saturating_sub(height);
    let after = lines.len().saturating_sub(first + height);
    let head = match (first, after) {
        (0, 0) => head.to_owned(),
        (above, below) => format!("{head} ({above} above, {below} below)"),
    };
    one_line(
        frame,
        top,
        Line::styled(line(&head, top.width.into()), BOLD),
    );
    let shown = lines.into_iter().skip(first).take(height);
    let shown: Vec<Line<'_>> = shown
        .map(|(line, is_here)| match is_here {
            true => line.patch_style(Style::new().add_modifier(Modifier::REVERSED)),
            false => line,
        })
        .collect();
    frame.render_widget(Paragraph::new(shown), below);
}

fn selected_run(frame: &mut Frame<'_>, area: Rect, model: &TopModel, now: Timestamp) {
    let Some(run) = model.selected_run().and_then(|id| model.run(id)) else {
        return;
    };
    let block = Block::bordered().title(format!(" {} ", short(run.run_id)));
    let inner = block.inner(area);
    let lines: Vec<Line<'_>> = rows::details(run, now)
        .iter()
        .flat_map(|text| wrap(text, inner.width.into()))
        .map(Line::raw)
        .collect();
    frame.render_widget(block, area);
    frame.render_widget(Paragraph::new(lines), inner);
}

/// The keys that apply now, the most important ones first. Those that do not fit are left out: the
/// help has all of them.
fn keys_line(model: &TopModel, now: Timestamp, width: usize) -> Line<'static> {
    let keys: &[&str] = match &model.over {
        TopOverlay::Nothing => match model.selected_waiting() {
            Some(Waits::For(_)) => &["? help", "q quit", "Enter show and answer", "a attach"],
            Some(Waits::Review(_)) => &["? help", "q quit", "a attach"],
            None => &[
                "? help",
                "q quit",
                "a attach",
                "s steer",
                "c cancel",
                "Tab requests",
            ],
        },
        TopOverlay::Help(help) => match help.is_whole {
            true => &["Esc closes"],
            false => &["Esc closes", "Up Down scroll", "Space next page"],
        },
        TopOverlay::Detail(detail) => match (is_approval(detail), detail.is_read()) {
            (true, true) if detail.is_calm(now) => &["y allow", "n deny", "Esc later"],
            (true, true) => &["read it, then y", "n deny", "Esc later"],
            (true, false) => &["Space next page", "n deny", "Esc later"],
            (false, _) => &["Enter answers", "Esc later", "Up Down scroll"],
        },
        TopOverlay::Steer(..) => &["Enter sends it", "Esc discards it"],
        TopOverlay::Cancel(_) => &["y cancel it", "n keep it"],
    };
    let mut text = String::new();
    for key in keys {
        let longer = match text.is_empty() {
            true => (*key).to_owned(),
            false => format!("{text} · {key}"),
        };
        if longer.width() > width {
            break;
        }
        text = longer;
    }
    Line::styled(text, DIM)
}

fn is_approval(detail: &RequestDetail) -> bool {
    matches!(detail.asked, OpenRequest::Approval(_))
}

/// Draws the overlay over the lists. The message and the keys below `area` stay visible.
fn over(frame: &mut Frame<'_>, area: Rect, model: &mut TopModel, now: Timestamp) {
    let run_name = |model: &TopModel, id| {
        let name = model.run(id).map(crate::cli::live::tree::name);
        format!("{} {}", name.unwrap_or("run"), short(id))
    };
    let title = match &model.over {
        TopOverlay::Nothing => return,
        TopOverlay::Help(_) => "keys".to_owned(),
        TopOverlay::Detail(_) => "waits for you".to_owned(),
        TopOverlay::Steer(run, _) => format!("steer {}", run_name(model, *run)),
        TopOverlay::Cancel(run) => format!("cancel {}?", run_name(model, *run)),
    };
    let title = format!(
        " {} ",
        line(&title, usize::from(area.width).saturating_sub(6))
    );
    let width = usize::from(area.width.saturating_sub(2));
    let warning = wrap(
        "Its descendants are cancelled, too. What was done so far is kept.",
        width,
    );
    let height = match &model.over {
        TopOverlay::Steer(..) => 3,
        TopOverlay::Cancel(_) => warning.len() as u16 + 2,
        _ => area.height,
    };
    let place = Rect {
        y: area.y + area.height.saturating_sub(height),
        height: height.min(area.height),
        ..area
    };
    frame.render_widget(Clear, place);
    frame.render_widget(Block::bordered().title(title), place);
    let inner = place.inner(Margin::new(1, 1));
    let height = usize::from(inner.height);
    match &mut model.over {
        TopOverlay::Nothing => {}
        TopOverlay::Help(help) => {
            let lines = help.lay_out(width, height);
            frame.render_widget(Paragraph::new(lines), inner);
        }
        TopOverlay::Detail(detail) => draw_detail(frame, inner, detail, now),
        TopOverlay::Steer(_, text) => one_line(frame, inner, typed(text, false, width)),
        TopOverlay::Cancel(_) => {
            let lines: Vec<Line<'_>> = warning.into_iter().map(Line::raw).collect();
            frame.render_widget(Paragraph::new(lines), inner);
        }
    }
}

/// Draws what a run asks for, and the answer that is being typed.
fn draw_detail(frame: &mut Frame<'_>, inner: Rect, detail: &mut RequestDetail, now: Timestamp) {
    let width = usize::from(inner.width);
    let is_line = !is_approval(detail);
    let height = inner
        .height
        .saturating_sub(u16::from(is_line || inner.height > 2));
    detail.lay_out(width, height.into(), now);
    let lines = detail.shown().iter();
    let lines: Vec<Line<'_>> = lines
        .map(|(style, text)| Line::styled(text.clone(), rows::style_of(*style)))
        .collect();
    frame.render_widget(Paragraph::new(lines), Rect { height, ..inner });
    let foot = match (is_line, detail.more()) {
        (true, _) => typed(&detail.typed, detail.asked.is_secret(), width),
        (false, 0) => Line::styled("the end", DIM),
        (false, more) => Line::styled(format!("{more} more lines: Space"), ASKS),
    };
    let place = Rect {
        y: inner.y + height,
        height: inner.height - height,
        ..inner
    };
    one_line(frame, place, foot);
}

/// The typed text; of a long line its end.
fn typed(text: &str, is_secret: bool, width: usize) -> Line<'static> {
    let shown: String = match is_secret {
        true => "*".repeat(text.chars().count()),
        false => text.to_owned(),
    };
    let mut rest = shown.as_str();
    while rest.width() + 3 > width && !rest.is_empty() {
        let first = rest.chars().next().map_or(0, char::len_utf8);
        rest = &rest[first..];
    }
    Line::from(vec![
        Span::styled("> ", BOLD),
        Span::raw(rest.to_owned()),
        Span::styled(" ", Style::new().add_modifier(Modifier::REVERSED)),
    ])
}
