//! Requests of runs that arrive while no turn is followed, asked at the prompt of `abide chat`. The
//! line editor is not used: it may hold typed-ahead lines, which are messages and not answers.

use super::slash::{Slash, at_a_question};
use crate::cli::asking::open_requests;
use crate::cli::asking::open_requests::{OpenRequest, Prompted};
use crate::cli::asking::person::{LineProgress, Person};
use crate::cli::common::failure::Failure;
use crate::cli::link::{self, DaemonLink};
use crate::cli::live::follow::CtrlC;
use crate::cli::output::print;
use crate::cli::output::screen::Screen;
use crate::clock::Clock;

/// Asks the user about each of these requests; skipped ones stay open. `false`: the user wants to
/// quit the conversation.
pub(super) async fn put_all(
    link: &DaemonLink,
    person: &mut Person,
    interrupt: &mut CtrlC,
    open: Vec<OpenRequest>,
) -> Result<bool, Failure> {
    let mut asking = Asking {
        link,
        person,
        interrupt,
        screen: Screen::new(),
    };
    for asked in open {
        match asking.put(asked).await? {
            AfterRequest::Next => {}
            AfterRequest::Enough => break,
            AfterRequest::Leave => return Ok(false),
        }
    }
    Ok(true)
}

/// What to do after one request.
enum AfterRequest {
    /// Ask the next one.
    Next,
    /// Stop asking for now.
    Enough,
    /// Quit the conversation.
    Leave,
}

/// Result of reading one line at a prompt.
enum Said {
    Line(String),
    /// Ctrl-C was pressed.
    Nothing,
    /// The input has ended.
    End,
}

struct Asking<'a> {
    link: &'a DaemonLink,
    person: &'a mut Person,
    interrupt: &'a mut CtrlC,
    /// `None` if the terminal cannot be drawn on.
    screen: Option<Screen>,
}

impl Asking<'_> {
    async fn put(&mut self, asked: OpenRequest) -> Result<AfterRequest, Failure> {
        let mut put = Prompted::of(asked, Clock::system().now());
        self.turn_page(&mut put).await;
        loop {
            let said = match self.line(&put).await {
                Said::Line(said) => said,
                Said::Nothing => return Ok(AfterRequest::Enough),
                Said::End => return Ok(AfterRequest::Leave),
            };
            let mut said = said.trim();
            let slash;
            if !put.asked.is_secret() {
                slash = at_a_question(said);
                match &slash {
                    Slash::Answer(answer) => said = answer,
                    Slash::Say(text) => {
                        self.note(text);
                        continue;
                    }
                    Slash::Leave => return Ok(AfterRequest::Leave),
                }
            }
            if said.is_empty() && put.unshown_pages.is_empty()
                || said == "later" && !put.unshown_pages.is_empty()
            {
                return Ok(AfterRequest::Next);
            }
            if said.is_empty() {
                self.turn_page(&mut put).await;
                continue;
            }
            if put.is_undecidable_yet(said) {
                self.note("not decided yet: press Enter to see the rest first");
                continue;
            }
            match put.asked.answer(self.link, said).await {
                Ok(true) => {
                    self.note(&print::styled(print::DIM, put.asked.decided(said)));
                    return Ok(AfterRequest::Next);
                }
                Ok(false) => self.note("answer yes or no"),
                Err(lost) if link::is_broken(&lost) || lost.kind == "unavailable" => {
                    self.note("the answer was not delivered; press Enter on an empty line to be asked again");
                    return Ok(AfterRequest::Next);
                }
                // It expired, another client answered first, or the file has changed since.
                Err(refused) => {
                    self.note(&refused.to_string());
                    let Some(now) = open_requests::again(self.link, put.asked.id()).await? else {
                        return Ok(AfterRequest::Next);
                    };
                    put = Prompted::of(now, Clock::system().now());
                    self.turn_page(&mut put).await;
                }
            }
        }
    }

    /// Shows the next page. Input typed before it is set aside: it cannot be an answer.
    async fn turn_page(&mut self, put: &mut Prompted) {
        if let Some(page) = put.next_page() {
            self.note(&page);
        }
        self.person.set_aside().await;
    }

    /// Reads one line at the request's prompt.
    async fn line(&mut self, put: &Prompted) -> Said {
        let prompt = print::styled(print::HEAD, format!("{}> ", put.prompt()));
        if self.screen.is_none() {
            print::prompt(&prompt);
        }
        let line = loop {
            if let Some(screen) = &mut self.screen {
                let typed = self.person.typed();
                match put.asked.is_secret() {
                    true => {
                        screen.ask(Some((&prompt, &"•".repeat(typed.chars().count()))));
                    }
                    false => screen.ask(Some((&prompt, typed))),
                }
            }
            let typed = async {
                match self.screen.is_some() {
                    true => self.person.key().await,
                    false => LineProgress::Line(self.person.line().await),
                }
            };
            tokio::select! {
                typed = typed => match typed {
                    LineProgress::Line(Some(line)) => break Said::Line(line),
                    LineProgress::Line(None) => break Said::End,
                    _ => {}
                },
                () = self.interrupt.pressed() => break Said::Nothing,
            }
        };
        self.person.forget_typed();
        if let Some(screen) = &mut self.screen {
            screen.ask(None);
        }
        line
    }

    fn note(&mut self, text: &str) {
        match &mut self.screen {
            Some(screen) => screen.keep(text),
            None => print::note(text),
        }
    }
}
