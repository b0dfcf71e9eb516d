//! What runs ask while no turn is followed, put to the person who is at the prompt of `abide chat`.
//! The editor is not used for it: it may hold lines that were typed ahead, which are messages and no
//! answers.

use super::slash::{Slash, at_a_question};
use crate::cli::asked::{self, Asked, Put};
use crate::cli::failure::Failure;
use crate::cli::follow::Interrupt;
use crate::cli::link::{self, Link};
use crate::cli::person::{Person, Typed};
use crate::cli::print;
use crate::cli::screen::Screen;
use crate::clock::Clock;

/// Puts each of these to the person; what they leave stays open. `false`: they want to leave the
/// conversation.
pub(super) async fn put_all(
    link: &Link,
    person: &mut Person,
    interrupt: &mut Interrupt,
    open: Vec<Asked>,
) -> Result<bool, Failure> {
    let mut asking = Asking {
        link,
        person,
        interrupt,
        screen: Screen::new(),
    };
    for asked in open {
        match asking.put(asked).await? {
            Then::Next => {}
            Then::Enough => break,
            Then::Leave => return Ok(false),
        }
    }
    Ok(true)
}

/// What the person wants after one of them.
enum Then {
    /// The next one.
    Next,
    /// To be asked nothing more now.
    Enough,
    /// To leave the conversation.
    Leave,
}

/// What came of a prompt.
enum Said {
    Line(String),
    /// Ctrl-C.
    Nothing,
    /// The input has ended.
    End,
}

struct Asking<'a> {
    link: &'a Link,
    person: &'a mut Person,
    interrupt: &'a mut Interrupt,
    /// `None` on a terminal that cannot be drawn on.
    screen: Option<Screen>,
}

impl Asking<'_> {
    async fn put(&mut self, asked: Asked) -> Result<Then, Failure> {
        let rest = asked.pages(Clock::system().now());
        let mut put = Put { asked, rest };
        self.turn_page(&mut put).await;
        loop {
            let said = match self.line(&put).await {
                Said::Line(said) => said,
                Said::Nothing => return Ok(Then::Enough),
                Said::End => return Ok(Then::Leave),
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
                    Slash::Leave => return Ok(Then::Leave),
                }
            }
            if said.is_empty() && put.rest.is_empty() || said == "later" && !put.rest.is_empty() {
                return Ok(Then::Next);
            }
            if said.is_empty() {
                self.turn_page(&mut put).await;
                continue;
            }
            if put.is_too_early(said) {
                self.note("nothing was decided: there is more of it, which Enter shows");
                continue;
            }
            match put.asked.answer(self.link, said).await {
                Ok(true) => {
                    self.note(&put.asked.decided(said));
                    return Ok(Then::Next);
                }
                Ok(false) => self.note("say yes or no"),
                Err(lost) if link::is_broken(&lost) || lost.kind == "unavailable" => {
                    self.note("that was not heard; Enter on an empty line asks again");
                    return Ok(Then::Next);
                }
                // It ran out, another client was first, or the file is another one now.
                Err(refused) => {
                    self.note(&refused.to_string());
                    let Some(now) = asked::again(self.link, put.asked.id()).await? else {
                        return Ok(Then::Next);
                    };
                    let rest = now.pages(Clock::system().now());
                    put = Put { asked: now, rest };
                    self.turn_page(&mut put).await;
                }
            }
        }
    }

    /// Shows what comes next of it. What was typed before is no answer to that.
    async fn turn_page(&mut self, put: &mut Put) {
        if let Some(page) = put.rest.pop_front() {
            self.note(&page);
        }
        self.person.set_aside().await;
    }

    /// What the person says.
    async fn line(&mut self, put: &Put) -> Said {
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
                    false => Typed::Line(self.person.line().await),
                }
            };
            tokio::select! {
                typed = typed => match typed {
                    Typed::Line(Some(line)) => break Said::Line(line),
                    Typed::Line(None) => break Said::End,
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
