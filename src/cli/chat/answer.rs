//! What runs ask while no turn is followed, put to the person who is at the prompt of `abide chat`.
//! The editor is not used for it: it may hold lines that were typed ahead, which are messages and no
//! answers.

use crate::cli::asked::{self, Asked, Put};
use crate::cli::failure::Failure;
use crate::cli::follow::Interrupt;
use crate::cli::link::{self, Link};
use crate::cli::person::{Person, Typed};
use crate::cli::print;
use crate::cli::screen::Screen;
use crate::clock::Clock;

/// Puts each of these to the person; what they leave stays open.
pub(super) async fn put_all(
    link: &Link,
    person: &mut Person,
    interrupt: &mut Interrupt,
    open: Vec<Asked>,
) -> Result<(), Failure> {
    let mut asking = Asking {
        link,
        person,
        interrupt,
        screen: Screen::new(),
    };
    for asked in open {
        if !asking.put(asked).await? {
            break;
        }
    }
    Ok(())
}

struct Asking<'a> {
    link: &'a Link,
    person: &'a mut Person,
    interrupt: &'a mut Interrupt,
    /// `None` on a terminal that cannot be drawn on.
    screen: Option<Screen>,
}

impl Asking<'_> {
    /// `false`: the person wants to be asked nothing more now.
    async fn put(&mut self, asked: Asked) -> Result<bool, Failure> {
        let rest = asked.pages(Clock::system().now());
        let mut put = Put { asked, rest };
        self.turn_page(&mut put).await;
        loop {
            let Some(said) = self.line(&put).await else {
                return Ok(false);
            };
            let said = said.trim();
            if said.is_empty() && put.rest.is_empty() || said == "later" && !put.rest.is_empty() {
                return Ok(true);
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
                    return Ok(true);
                }
                Ok(false) => self.note("say yes or no"),
                Err(lost) if link::is_broken(&lost) || lost.kind == "unavailable" => {
                    self.note("that was not heard; Enter on an empty line asks again");
                    return Ok(true);
                }
                // It ran out, another client was first, or the file is another one now.
                Err(refused) => {
                    self.note(&refused.to_string());
                    let Some(now) = asked::again(self.link, put.asked.id()).await? else {
                        return Ok(true);
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

    /// What the person says; `None` after Ctrl-C and where the input has ended.
    async fn line(&mut self, put: &Put) -> Option<String> {
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
                typed = typed => if let Typed::Line(line) = typed {
                    break line;
                },
                () = self.interrupt.pressed() => break None,
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
