//! What runs ask while no turn is followed, put to the person who is at the prompt of `abide chat`.

use super::editor::{Editor, Typed};
use super::slash::{Slash, at_a_question};
use crate::cli::asked::{Asked, Put};
use crate::cli::failure::Failure;
use crate::cli::link::{self, Link};
use crate::cli::print;
use crate::clock::Clock;

/// Puts each of these to the person; what they leave stays open. `false`: they want to leave the
/// conversation.
pub(super) async fn put_all(
    link: &Link,
    editor: &mut Editor,
    open: Vec<Asked>,
) -> Result<bool, Failure> {
    for asked in open {
        if !put(link, editor, asked).await? {
            return Ok(false);
        }
    }
    Ok(true)
}

async fn put(link: &Link, editor: &mut Editor, asked: Asked) -> Result<bool, Failure> {
    let rest = asked.pages(Clock::system().now());
    let mut put = Put { asked, rest };
    turn_page(&mut put);
    loop {
        let prompt = format!("{}> ", put.prompt());
        let said = match editor.ask(&prompt, put.asked.is_secret()).await {
            Typed::Text(said) => said,
            Typed::Dropped => return Ok(true),
            Typed::End => return Ok(false),
        };
        let mut said = said.trim();
        let slash;
        if !put.asked.is_secret() {
            slash = at_a_question(said);
            match &slash {
                Slash::Answer(answer) => said = answer,
                Slash::Say(text) => {
                    print::note(text);
                    continue;
                }
                Slash::Leave => return Ok(false),
            }
        }
        if said.is_empty() && put.rest.is_empty() || said == "later" && !put.rest.is_empty() {
            return Ok(true);
        }
        if said.is_empty() {
            turn_page(&mut put);
            continue;
        }
        if put.is_too_early(said) {
            print::note("nothing was decided: there is more of it, which Enter shows");
            continue;
        }
        match put.asked.answer(link, said).await {
            Ok(true) => {
                print::note(&put.asked.decided(said));
                return Ok(true);
            }
            Ok(false) => print::note("say yes or no"),
            Err(lost) if link::is_broken(&lost) || lost.kind == "unavailable" => {
                print::note("that was not heard; Enter on an empty line asks again");
                return Ok(true);
            }
            // It ran out, or another client was first.
            Err(refused) => {
                print::note(&refused.to_string());
                return Ok(true);
            }
        }
    }
}

fn turn_page(put: &mut Put) {
    if let Some(page) = put.rest.pop_front() {
        print::note(&page);
    }
}
