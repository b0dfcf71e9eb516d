//! `abide ps --watch`: redraws the list in place as runs change.

use std::io::{IsTerminal, stdout};
use std::time::Duration;

use super::{Ps, RunList};
use crate::cli::asking::open_requests;
use crate::cli::asking::open_requests::OpenRequest;
use crate::cli::asking::person::Person;
use crate::cli::common::Common;
use crate::cli::common::failure::Failure;
use crate::cli::link;
use crate::cli::link::DaemonLink;
use crate::cli::link::watch::EventWatch;
use crate::cli::live::follow::CtrlC;
use crate::cli::output::print;
use crate::cli::output::screen::Screen;
use crate::cli::output::text::{COLUMNS, fold};
use crate::clock::Clock;
use crate::wire::events::SubscribeEvents;

/// Interval at which changes are read.
const FRAME: Duration = Duration::from_millis(250);
/// Minimum number of lines below the rows.
const FOOT: usize = 2;
/// Number of frames after which ages are redrawn even without changes.
const AGES: u32 = 4;

impl Ps {
    pub(super) async fn watch(&self, common: &Common) -> Result<u8, Failure> {
        let screen = Screen::new().filter(|_| stdout().is_terminal() && !common.json);
        let Some(mut screen) = screen else {
            return Err(Failure::usage("ps --watch needs a terminal")
                .hint("for one line per change: abide events; for the current list: abide ps"));
        };
        let mut interrupt = CtrlC::new()?;
        let link = DaemonLink::open(&common.place).await?;
        let filter = self.filter(&link).await?;
        let request = SubscribeEvents {
            kinds: ["run.*", "tool.*", "question.*", "approval.*"]
                .map(str::to_owned)
                .into(),
            ..SubscribeEvents::default()
        };
        let mut watch = EventWatch::open(link, &common.place, request, print::note).await?;
        let mut listing = self.list(&watch.link, filter.clone()).await?;
        let mut asked = self.asked(&watch.link).await?;
        let mut person = Person::if_there();
        let mut frames = tokio::time::interval(FRAME);
        let mut has_changed = false;
        let mut frame = 0;
        self.draw(&mut screen, &listing, &asked)?;
        loop {
            tokio::select! {
                seen = watch.seen() => {
                    has_changed = true;
                    if seen?.is_none() {
                        let back = watch.come_back(|text| screen.keep(text));
                        tokio::select! {
                            back = back => back?,
                            () = interrupt.pressed() => break,
                        }
                    }
                }
                _ = frames.tick() => {
                    frame += 1;
                    if has_changed {
                        has_changed = false;
                        match self.list(&watch.link, filter.clone()).await {
                            Ok(new) => {
                                listing = new;
                                // If this fails, the previous requests stay a little longer.
                                if let Ok(new) = self.asked(&watch.link).await {
                                    asked = new;
                                }
                            }
                            // The subscription has ended as well, and reconnects.
                            Err(lost) if link::is_broken(&lost) || lost.kind == "unavailable" => {}
                            Err(failure) => return Err(failure),
                        }
                        self.draw(&mut screen, &listing, &asked)?;
                    } else if frame % AGES == 0 {
                        self.draw(&mut screen, &listing, &asked)?;
                    }
                }
                keys = keys(&mut person) => match keys {
                    Some(keys) if !keys.iter().any(|key| matches!(key, b'q' | b'Q')) => {}
                    Some(_) => break,
                    None => person = None,
                },
                () = interrupt.pressed() => break,
            }
        }
        drop(screen);
        // The last picture stays on the screen.
        let runs = listing.runs()?;
        let width = print::screen_width().filter(|_| !self.no_trunc);
        print::folded(&self.table(&runs, width).join("\n"))?;
        Ok(0)
    }

    /// Open requests for a user, if the list has its default columns.
    async fn asked(&self, link: &DaemonLink) -> Result<Vec<OpenRequest>, Failure> {
        match self.format {
            Some(_) => Ok(Vec::new()),
            None => open_requests::open(link, None).await,
        }
    }

    fn draw(
        &self,
        screen: &mut Screen,
        listing: &RunList,
        asked: &[OpenRequest],
    ) -> Result<(), Failure> {
        let runs = listing.runs()?;
        let (columns, rows) = Screen::room();
        let now = Clock::system().now();
        let parted = |text: &str| -> Vec<String> {
            fold(text, columns, 0)
                .split('\n')
                .map(str::to_owned)
                .collect()
        };
        let mut lines = Vec::new();
        for one in asked {
            let head = print::styled(print::HEAD, one.in_short(now, Some(columns.max(COLUMNS))));
            lines.extend(parted(&head));
        }
        // The head and the summary stay visible, and half of the screen is for runs.
        lines.truncate(rows / 2);
        let width = Some(columns).filter(|_| !self.no_trunc);
        let mut table = self.table(&runs, width).into_iter();
        lines.extend(table.next().map(|head| parted(&head)).unwrap_or_default());
        let mut shown = 0;
        for row in table {
            let row = parted(&row);
            if shown > 0 && lines.len() + row.len() + FOOT > rows {
                break;
            }
            lines.extend(row);
            shown += 1;
        }
        let sum = self.sum(shown, listing.total);
        lines.extend(parted(&print::styled(print::DIM, sum)));
        lines.push(print::styled(print::DIM, "q or Ctrl-C quits"));
        screen.draw(lines);
        Ok(())
    }
}

/// The next keys, as bytes.
async fn keys(person: &mut Option<Person>) -> Option<Vec<u8>> {
    match person {
        Some(person) => person.bytes().await,
        None => std::future::pending().await,
    }
}
