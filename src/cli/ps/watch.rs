//! `abide ps --watch`: the list, redrawn in place as runs change.

use std::io::{IsTerminal, stdout};
use std::time::Duration;

use super::super::args::Common;
use super::super::failure::Failure;
use super::super::follow::Interrupt;
use super::super::link::{self, Link};
use super::super::print;
use super::super::screen::Screen;
use super::super::watch::Watch;
use super::{Listing, Ps};
use crate::wire::events::SubscribeEvents;

/// How often what has changed is read.
const FRAME: Duration = Duration::from_millis(250);
/// After so many frames ages are shown anew although nothing has changed.
const AGES: u32 = 4;

impl Ps {
    pub(super) async fn watch(&self, common: &Common) -> Result<u8, Failure> {
        let screen = Screen::new().filter(|_| stdout().is_terminal() && !common.json);
        let Some(mut screen) = screen else {
            return Err(
                Failure::usage("ps --watch draws on a terminal, and there is none")
                    .hint("a line for each change: abide events; the list as it is now: abide ps"),
            );
        };
        let mut interrupt = Interrupt::new()?;
        let link = Link::open(&common.place).await?;
        let filter = self.filter(&link).await?;
        let request = SubscribeEvents {
            kinds: vec!["run.*".to_owned(), "tool.*".to_owned()],
            ..SubscribeEvents::default()
        };
        let mut watch = Watch::open(link, &common.place, request, print::note).await?;
        let mut listing = self.list(&watch.link, filter.clone()).await?;
        let mut frames = tokio::time::interval(FRAME);
        let mut has_changed = false;
        let mut frame = 0;
        self.draw(&mut screen, &listing)?;
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
                            Ok(new) => listing = new,
                            // The subscription ends as well, and finds the daemon again.
                            Err(lost) if link::is_broken(&lost) || lost.kind == "unavailable" => {}
                            Err(failure) => return Err(failure),
                        }
                        self.draw(&mut screen, &listing)?;
                    } else if frame % AGES == 0 {
                        self.draw(&mut screen, &listing)?;
                    }
                }
                () = interrupt.pressed() => break,
            }
        }
        drop(screen);
        // The last picture stays.
        let runs = listing.runs()?;
        print::answer(&self.table(&runs, print::screen_width()).join("\n"))?;
        Ok(0)
    }

    fn draw(&self, screen: &mut Screen, listing: &Listing) -> Result<(), Failure> {
        let runs = listing.runs()?;
        let (columns, rows) = Screen::room();
        let mut lines = self.table(&runs, Some(columns));
        // The head and the sum stay in sight.
        let room = rows.saturating_sub(2).max(1);
        let shown = runs.len().min(room);
        lines.truncate(shown + 1);
        lines.push(print::styled(print::DIM, self.sum(shown, listing.total)));
        screen.draw(lines);
        Ok(())
    }
}
